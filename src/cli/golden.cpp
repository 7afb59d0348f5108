// cedra golden DIR: does this build, on this machine, give the reference's numbers?
#include "golden/golden.h"

#include <cstdio>
#include <memory>

#include "cli/commands.h"

namespace cedra::cli {

void add_golden(CLI::App& app, Action& action) {
  struct Arguments {
    std::string folder;
    golden::Options options;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "golden", "compare this build with the reference values of a golden folder");
  command->add_option("folder", arguments->folder, "checkpoint folder with expected.safetensors")
      ->required();
  command->add_option("--isa", arguments->options.isa,
                      "kernel level: oracle, avx2, avx512, amx (default: the fastest here)");
  command->add_option("--only", arguments->options.only, "run items whose name contains this");
  command->add_option("--threads", arguments->options.threads, "0 = all usable cores")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--json", arguments->json, "print JSON instead of a table");
  command->callback([arguments, &action] {
    action = [arguments] {
      const Result<golden::Report> report = golden::run(arguments->folder, arguments->options);
      if (!report.has_value()) {
        std::fprintf(stderr, "cedra golden: %s\n", report.error().message.c_str());
        return 2;
      }
      if (report->items.empty()) {
        std::fprintf(stderr, "cedra golden: no item's name contains '%s'\n",
                     arguments->options.only.c_str());
        return 2;
      }
      const std::string text =
          arguments->json ? golden::to_json(*report) + "\n" : golden::to_text(*report);
      std::fputs(text.c_str(), stdout);
      return report->failed() == 0 ? 0 : 1;
    };
  });
}

}  // namespace cedra::cli

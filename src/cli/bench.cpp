// `cedra bench`: what the machine can do, and what the program makes of it.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "bench/kernels.h"
#include "bench/machine.h"
#include "bench/steps.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"

namespace cedra::cli {
namespace {

struct Outputs {
  std::string json, svg;
};

int fail(const Error& error) {
  fmt::print(stderr, "cedra bench: {}\n", error.message);
  return 1;
}

// Writes `text` to the file, if one is named.
bool write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fmt::print(stderr, "cedra bench: {}: cannot be written\n", path);
  return static_cast<bool>(file);
}

void add_outputs(CLI::App& app, Outputs& outputs, bool picture) {
  app.add_option("--json", outputs.json, "also write the results to this file");
  if (picture) app.add_option("--svg", outputs.svg, "also draw them into this file");
}

CLI::Option* add_rounds(CLI::App& app, int& rounds) {
  return app.add_option("--rounds", rounds, "the medians of so many rounds are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

CLI::Option* add_threads(CLI::App& app, int& threads) {
  return app.add_option("--threads", threads, "default: one per usable core")
      ->check(CLI::Range(0, 1024));
}

void add_machine(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "machine", "read and multiply rates, the cost of a barrier, NUMA nodes and caches");
  const auto options = std::make_shared<bench::MachineOptions>();
  const auto outputs = std::make_shared<Outputs>();
  add_threads(*command, options->threads);
  add_rounds(*command, options->rounds);
  command
      ->add_option("--gigabytes", options->gigabytes,
                   "that a pass reads (default: 1, or four times the caches)")
      ->check(CLI::Range(0.01, 1e4));
  command->add_option("--file", options->file, "file to map (default: a temporary one)")
      ->check(CLI::ExistingFile);
  add_outputs(*command, *outputs, false);
  command->callback([&action, options, outputs] {
    action = [options, outputs] {
      ProgressLine line;
      const auto report = bench::measure_machine(
          *options, [&](const std::string& what) { line.show("measuring: " + what); });
      line.clear();
      if (!report) return fail(report.error());
      fmt::print("{}", report->to_text());
      return write(outputs->json, report->to_json()) ? 0 : 1;
    };
  });
}

void add_kernels(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "kernels", "every hot operation at the released shapes against the machine's ceilings");
  const auto options = std::make_shared<bench::KernelOptions>();
  const auto outputs = std::make_shared<Outputs>();
  command->add_option("--isa", options->isa,
                      "kernel level: oracle, avx2, avx512, amx (default: the best here)");
  add_threads(*command, options->threads);
  add_rounds(*command, options->rounds);
  command
      ->add_option("--gigabytes", options->gigabytes,
                   "working set (default: 1, or four times the caches)")
      ->check(CLI::Range(0.01, 1e4));
  command->add_option("--only", options->only, "operations with this text in name or use");
  command->add_option("--rows", options->rows, "numbers of rows, as 1,8,64")
      ->delimiter(',')
      ->capture_default_str();
  add_outputs(*command, *outputs, true);
  command->callback([&action, options, outputs] {
    action = [options, outputs] {
      ProgressLine line;
      const auto report = bench::measure_kernels(
          *options, [&](const std::string& what) { line.show("measuring: " + what); });
      line.clear();
      if (!report) return fail(report.error());
      fmt::print("{}", report->to_text());
      const bool written =
          write(outputs->json, report->to_json()) && write(outputs->svg, report->to_svg());
      return written ? 0 : 1;
    };
  });
}

void add_model(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "model",
      "decode steps and a prompt of a checkpoint, by component, and what the release takes");
  const auto options = std::make_shared<bench::StepOptions>();
  const auto outputs = std::make_shared<Outputs>();
  command->add_option("model", options->folder, "checkpoint folder (cedra synth writes one)")
      ->required();
  command->add_option("--isa", options->isa,
                      "kernel level: oracle, avx2, avx512, amx (default: the best here)");
  add_threads(*command, options->threads);
  add_rounds(*command, options->rounds);
  command->add_option("--batch", options->batches, "sequences that decode together, as 1,8")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--context", options->contexts, "tokens before the step, as 1024,32768")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--prompt", options->prompt, "rows of the prompt that is timed, 0 = none")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command->add_flag("--follow-symlinks", options->follow_symlinks,
                    "follow links that leave the folder");
  add_outputs(*command, *outputs, false);
  command->callback([&action, options, outputs] {
    action = [options, outputs] {
      ProgressLine line;
      const auto report =
          bench::measure_steps(*options, [&](const std::string& what) { line.show(what); });
      line.clear();
      if (!report) return fail(report.error());
      fmt::print("{}", report->to_text());
      return write(outputs->json, report->to_json()) ? 0 : 1;
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("bench", "measure the machine, the kernels, and a model's steps");
  command->require_subcommand(1);
  add_machine(*command, action);
  add_kernels(*command, action);
  add_model(*command, action);
}

}  // namespace cedra::cli

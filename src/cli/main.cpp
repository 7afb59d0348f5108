// Entry point: one program, subcommands.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/commands.h"
#include "image/decode_worker.h"

namespace {

constexpr int kUsageError = 2;

}  // namespace

int main(int argc, char** argv) {
  // This program again, started by a server that has pictures to decode; not for people.
  if (argc == 3 && std::string_view(argv[1]) == cedra::image::kWorkerCommand) {
    return cedra::image::serve_decoding(std::atoll(argv[2]));
  }
  CLI::App app{"cedra: inference engine and server for DeepSeek-V4.1-Flash checkpoints", "cedra"};
  app.set_version_flag("--version", CEDRA_VERSION);
  app.require_subcommand(1);

  cedra::cli::Action action;
  cedra::cli::add_inspect(app, action);
  cedra::cli::add_golden(app, action);
  cedra::cli::add_encode(app, action);
  cedra::cli::add_parse(app, action);
  cedra::cli::add_tokenize(app, action);
  cedra::cli::add_plan(app, action);
  cedra::cli::add_synth(app, action);
  cedra::cli::add_bench(app, action);
  cedra::cli::add_serve(app, action);
  cedra::cli::add_run(app, action);
  cedra::cli::add_chat(app, action);

  // The library would only say that a subcommand is required.
  const auto named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(named).empty()) {
    std::fprintf(stderr, "cedra: unknown command '%s'; cedra --help lists them\n", argv[1]);
    return kUsageError;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return action ? action() : 0;
}

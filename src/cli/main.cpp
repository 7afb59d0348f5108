// Entry point: one program, subcommands.
#include <CLI/CLI.hpp>

#include "cli/commands.h"

int main(int argc, char** argv) {
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
  cedra::cli::add_serve(app, action);
  cedra::cli::add_run(app, action);
  cedra::cli::add_chat(app, action);

  CLI11_PARSE(app, argc, argv);
  return action ? action() : 0;
}

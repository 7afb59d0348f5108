// The subcommands of `cedra`. Each add_* declares its options on `app` and, when the user picks it,
// sets `action`, which main() then runs; its return value is the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace cedra::cli {

using Action = std::function<int()>;

void add_inspect(CLI::App& app, Action& action);   // inspect.cpp
void add_golden(CLI::App& app, Action& action);    // golden.cpp
void add_encode(CLI::App& app, Action& action);    // encode.cpp
void add_parse(CLI::App& app, Action& action);     // parse.cpp
void add_tokenize(CLI::App& app, Action& action);  // tokenize.cpp
void add_bench(CLI::App& app, Action& action);     // bench.cpp
void add_synth(CLI::App& app, Action& action);     // synth.cpp
void add_plan(CLI::App& app, Action& action);      // plan.cpp
void add_serve(CLI::App& app, Action& action);     // serve.cpp
void add_run(CLI::App& app, Action& action);       // run.cpp
void add_chat(CLI::App& app, Action& action);      // chat.cpp

}  // namespace cedra::cli

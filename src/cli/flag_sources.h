// Flags from elsewhere than the command line: the environment, a file; and all of them as a file
// again. A flag given on the command line counts before CEDRA_NAME, that before the file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace cedra::cli {

// "--max-model-len" is CEDRA_MAX_MODEL_LEN. Empty variables count as absent. These two throw
// CLI::ParseError like the command line does, and name the variable or the line.
void fill_from_environment(CLI::App& command);
// `name = value` lines as in TOML, lists in brackets, names without the dashes. An unknown name is
// an error.
void fill_from_file(CLI::App& command, const std::string& path);

// Every flag that has a value, in the file's form. Values of `secrets` are not shown.
std::string flags_as_file(const CLI::App& command, const std::vector<std::string_view>& secrets);

}  // namespace cedra::cli

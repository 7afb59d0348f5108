#include "cli/flag_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace cedra::cli {
namespace {

// Flags that say where flags come from, or that do something else instead of serving.
bool is_meta(const std::string& name) {
  return name == "help" || name == "config" || name == "print-config" || name.empty();
}

// The name as a file has it; "" for an option that has no long name.
std::string file_name(const CLI::Option& option) {
  const std::vector<std::string>& long_names = option.get_lnames();
  if (option.get_positional() && !option.get_name(true, false).empty()) {
    const std::string name = option.get_name(true, false);
    if (!name.starts_with('-')) return name;
  }
  return long_names.empty() ? std::string() : long_names.front();
}

std::string variable_of(std::string name) {
  for (char& c : name) {
    if (c == '-') c = '_';
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return "CEDRA_" + name;
}

bool is_switch(const CLI::Option& option) { return option.get_expected_max() == 0; }

void set(CLI::Option& option, const std::vector<std::string>& values, const std::string& source) {
  try {
    for (const std::string& value : values) {
      if (is_switch(option) && value != "true" && value != "false") {
        throw CLI::ValidationError(source, "must be true or false, got " + value);
      }
      option.add_result(value);
    }
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    throw CLI::ValidationError(source, error.what());
  }
}

std::string quoted(const std::string& value) {
  const bool plain = !value.empty() && std::ranges::count(value, '.') <= 1 &&
                     value.find_first_not_of("0123456789.") == std::string::npos;
  if (plain || value == "true" || value == "false") return value;
  const char mark = value.find('"') == std::string::npos ? '"' : '\'';
  return mark + value + mark;
}

}  // namespace

void fill_from_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string name = file_name(*option);
    if (is_meta(name) || option->count() > 0) continue;
    const std::string variable = variable_of(name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    set(*option, {value}, variable);
  }
}

void fill_from_file(CLI::App& command, const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw CLI::ValidationError("--config", path + ": no such file");
  }
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path)) {
    if (item.name == "++" || item.name == "--") continue;  // marks of sections
    const auto options = command.get_options();
    const auto found = std::ranges::find_if(options, [&](const CLI::Option* option) {
      const std::string name = file_name(*option);
      return item.parents.empty() && !is_meta(name) &&
             (name == item.name ||
              std::ranges::find(option->get_lnames(), item.name) != option->get_lnames().end());
    });
    if (found == options.end()) {
      throw CLI::ValidationError(path, "there is no flag named " + item.fullname());
    }
    if ((*found)->count() > 0) continue;
    set(**found, item.inputs, path + ": " + item.name);
  }
}

std::string flags_as_file(const CLI::App& command, const std::vector<std::string_view>& secrets) {
  std::string out;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = file_name(*option);
    if (is_meta(name)) continue;
    std::vector<std::string> values = option->results();
    if (values.empty() && !option->get_default_str().empty()) {
      values.push_back(option->get_default_str());
    }
    if (values.empty()) continue;
    if (std::ranges::find(secrets, name) != secrets.end()) {
      out += fmt::format("# {} is set and not shown\n", name);
      continue;
    }
    std::string line;
    for (const std::string& value : values) line += (line.empty() ? "" : ", ") + quoted(value);
    if (values.size() > 1) line = "[" + line + "]";
    out += fmt::format("{} = {}\n", name, line);
  }
  return out;
}

}  // namespace cedra::cli

// The program's log: lines on stderr, one per event. Answers of commands go to stdout, not here.
// Thin over spdlog, whose headers stay out of the rest of the program. Any thread may log.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

namespace cedra::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error", "off".
std::optional<Level> level_from_name(std::string_view name);

// Lines below this level are dropped; kInfo until set.
void set_level(Level level);
bool enabled(Level level);

// One JSON object per line from now on, instead of text.
void set_json(bool json);

// A named value of an event.
struct Field {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};
// A line with values: `message name=value ...`, or members of the object.
void event(Level level, std::string_view message, std::initializer_list<Field> fields);

// One finished line. Line breaks and other control characters in it are written as \xNN, so that
// text from clients cannot forge lines.
void write(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) {
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarning)) {
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) {
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace cedra::log

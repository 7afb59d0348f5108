#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <string>

namespace cedra::log {
namespace {

struct Row {
  std::string_view name;
  spdlog::level::level_enum level;
};
// In the order of the enum.
constexpr std::array<Row, 5> kRows = {{{"debug", spdlog::level::debug},
                                       {"info", spdlog::level::info},
                                       {"warning", spdlog::level::warn},
                                       {"error", spdlog::level::err},
                                       {"off", spdlog::level::off}}};

spdlog::level::level_enum native(Level level) { return kRows[static_cast<size_t>(level)].level; }

// One logger for the process, as stderr is one; made on first use.
spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("cedra", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    made.set_level(spdlog::level::info);
    made.flush_on(spdlog::level::warn);
    return made;
  }();
  return instance;
}

}  // namespace

std::optional<Level> level_from_name(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<Level>(i);
  }
  return std::nullopt;
}

void set_level(Level level) { logger().set_level(native(level)); }

bool enabled(Level level) { return level != Level::kOff && logger().should_log(native(level)); }

void write(Level level, std::string_view line) {
  std::string clean;
  clean.reserve(line.size());
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      clean += fmt::format("\\x{:02x}", byte);
    } else {
      clean += c;
    }
  }
  logger().log(native(level), spdlog::string_view_t(clean.data(), clean.size()));
}

}  // namespace cedra::log

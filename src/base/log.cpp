#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <chrono>
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

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v";

std::atomic<bool> json_lines{false};

// One logger for the process, as stderr is one; made on first use.
spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("cedra", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern(kTextPattern);
    made.set_level(spdlog::level::info);
    made.flush_on(spdlog::level::warn);
    return made;
  }();
  return instance;
}

void append_clean(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
}

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(std::string& out, const Field& field, bool json) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    const bool plain = !text->empty() && text->find_first_of(" \"") == std::string_view::npos;
    if (json) {
      append_json(out, *text);
    } else if (plain) {
      append_clean(out, *text);
    } else {
      out += '"';
      append_clean(out, *text);
      out += '"';
    }
  } else if (const auto* number = std::get_if<int64_t>(&field.value)) {
    out += fmt::format("{}", *number);
  } else {
    out += fmt::format("{:.3f}", std::get<double>(field.value));
  }
}

std::string json_line(Level level, std::string_view message, std::initializer_list<Field> fields) {
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  std::string out = fmt::format("{{\"time\":\"{:%FT%T}.{:03}Z\",\"level\":\"{}\",\"message\":",
                                fmt::gmtime(std::chrono::system_clock::to_time_t(now)), ms % 1000,
                                kRows[static_cast<size_t>(level)].name);
  append_json(out, message);
  for (const Field& field : fields) {
    out += ',';
    append_json(out, field.name);
    out += ':';
    append_value(out, field, true);
  }
  out += '}';
  return out;
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

void set_json(bool json) {
  json_lines = json;
  logger().set_pattern(json ? "%v" : kTextPattern);
}

void event(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!enabled(level)) return;
  std::string line;
  if (json_lines) {
    line = json_line(level, message, fields);
  } else {
    append_clean(line, message);
    for (const Field& field : fields) {
      line.append(" ").append(field.name).append("=");
      append_value(line, field, false);
    }
  }
  logger().log(native(level), spdlog::string_view_t(line.data(), line.size()));
}

void write(Level level, std::string_view line) { event(level, line, {}); }

}  // namespace cedra::log

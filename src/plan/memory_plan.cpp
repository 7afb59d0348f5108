#include "plan/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace cedra::plan {
namespace {

// The first number in a file, or -1 ("max" counts as no limit).
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

int64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

// Path of this process's cgroup below the controller's root.
std::string cgroup_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return line.substr(second + 1);
  }
  return "/";
}

int64_t cgroup_room() {
  int64_t room = std::numeric_limits<int64_t>::max();
  const auto consider = [&](const std::string& folder, const char* limit, const char* usage) {
    const int64_t most = number_in(folder + limit);
    const int64_t used = number_in(folder + usage);
    if (most > 0 && used >= 0) room = std::min(room, std::max<int64_t>(0, most - used));
  };
  for (const std::string& path : {cgroup_path(""), std::string("/")}) {
    consider("/sys/fs/cgroup" + path + "/", "memory.max", "memory.current");
  }
  for (const std::string& path : {cgroup_path("memory"), std::string("/")}) {
    consider("/sys/fs/cgroup/memory" + path + "/", "memory.limit_in_bytes",
             "memory.usage_in_bytes");
  }
  return room;
}

}  // namespace

int64_t MemoryPlan::taken() const {
  int64_t sum = 0;
  for (const Part& part : parts) sum += part.mapped ? 0 : part.bytes;
  return sum;
}

int64_t MemoryPlan::mapped() const {
  int64_t sum = 0;
  for (const Part& part : parts) sum += part.mapped ? part.bytes : 0;
  return sum;
}

std::string MemoryPlan::to_text() const {
  std::string text = "memory plan\n";
  for (const Part& part : parts) {
    text += fmt::format("  {:28} {:>12}  {}{}\n", part.name, format_bytes(part.bytes), part.detail,
                        part.mapped ? " (mapped file)" : "");
  }
  text += fmt::format("  {:28} {:>12}  of a budget of {}\n", "taken at start",
                      format_bytes(taken()), format_bytes(budget));
  text += fmt::format("  {:28} {:>12}  the machine has {}\n", "with mapped weights",
                      format_bytes(taken() + mapped()), format_bytes(available));
  text += fmt::format("  {:28} {:>12}\n", "context, all sequences",
                      fmt::format("{} tokens", context_tokens));
  return text;
}

std::string MemoryPlan::to_json() const {
  nlohmann::ordered_json document;
  for (const Part& part : parts) {
    document["parts"].push_back({{"name", part.name},
                                 {"bytes", part.bytes},
                                 {"mapped", part.mapped},
                                 {"detail", part.detail}});
  }
  document["taken_bytes"] = taken();
  document["mapped_bytes"] = mapped();
  document["budget_bytes"] = budget;
  document["available_bytes"] = available;
  document["context_tokens"] = context_tokens;
  return document.dump(2);
}

int64_t available_memory() { return std::min(mem_available(), cgroup_room()); }

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace cedra::plan

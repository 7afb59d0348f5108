#include "plan/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace cedra::plan {
namespace {

namespace fs = std::filesystem;

// The first number in a file, or -1 ("max" counts as no limit).
int64_t number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

// The number behind a key of a file of "KEY NUMBER ..." lines, or 0.
int64_t number_of(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  std::string line;
  int64_t value = 0;
  while (file >> name >> std::ws) {
    if (name == key) return file >> value ? value : 0;
    std::getline(file, line);
  }
  return 0;
}

// Path of this process's cgroup below the controller's root: "/a/b", "/" if there is none.
std::string cgroup_path(const fs::path& proc, std::string_view controller) {
  std::ifstream file(proc / "self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "5:cpu,memory:/a/b", "0::/a/b"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool found = controller.empty()
                           ? names == ",,"
                           : names.find(fmt::format(",{},", controller)) != std::string::npos;
    if (found) return line.substr(second + 1);
  }
  return "/";
}

struct CgroupFiles {
  std::string_view controller;
  std::string_view folder;  // below the mount of all groups
  std::string_view limit;
  std::string_view usage;
  std::string_view statistics_prefix;
};
constexpr CgroupFiles kCgroupVersions[] = {
    {"", "", "memory.max", "memory.current", ""},
    {"memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
};

int64_t cgroup_room(const fs::path& proc, const fs::path& cgroups) {
  int64_t room = std::numeric_limits<int64_t>::max();
  for (const CgroupFiles& files : kCgroupVersions) {
    const fs::path root = cgroups / files.folder;
    // Every group on the way up bounds us. In a container the path can be that of the host, and
    // only the root exists.
    for (fs::path group = cgroup_path(proc, files.controller);; group = group.parent_path()) {
      const fs::path folder = root / group.relative_path();
      const int64_t most = number_in(folder / files.limit);
      const int64_t used = number_in(folder / files.usage);
      if (most > 0 && used >= 0) {
        const fs::path statistics = folder / "memory.stat";
        const std::string prefix(files.statistics_prefix);
        const int64_t droppable = number_of(statistics, prefix + "inactive_file") +
                                  number_of(statistics, prefix + "active_file");
        room = std::min(room, std::max<int64_t>(0, most - std::max<int64_t>(0, used - droppable)));
      }
      if (!group.has_relative_path()) break;
    }
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

int64_t available_memory(const fs::path& proc, const fs::path& cgroups) {
  const int64_t machine = number_of(proc / "meminfo", "MemAvailable:") * 1024;
  return std::min(machine, cgroup_room(proc, cgroups));
}

int64_t resident_bytes(const fs::path& proc) {
  return number_of(proc / "self/status", "RssAnon:") * 1024;
}

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

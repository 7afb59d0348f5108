// Reads affinity, SMT siblings and control-group quotas.
#include "parallel/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>

namespace cedra {
namespace {

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The number at the start of text (after blanks); 0 if there is none.
double leading_number(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return 0;
  text.remove_prefix(begin);
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? static_cast<double>(value) : 0;
}

double tighter(double a, double b) {
  if (a <= 0) return b;
  if (b <= 0) return a;
  return std::min(a, b);
}

double quota_of_group(const std::string& directory, bool v2) {
  if (v2) {
    const auto text = read_text(directory + "/cpu.max");
    return text ? parse_cpu_max(*text) : 0;
  }
  const auto quota = read_text(directory + "/cpu.cfs_quota_us");
  const auto period = read_text(directory + "/cpu.cfs_period_us");
  return quota && period ? parse_cfs_quota(*quota, *period) : 0;
}

// Limits of every group from `path` up to the root of the hierarchy. Inside a container the path
// may name a group that is not mounted; the root then stands for it.
double quota_up_the_tree(const std::string& root, std::string path, bool v2) {
  double quota = 0;
  while (!path.empty() && path != "/") {
    quota = tighter(quota, quota_of_group(root + path, v2));
    path.resize(path.find_last_of('/'));
  }
  return tighter(quota, quota_of_group(root, v2));
}

std::vector<int> allowed_cpus() {
  // Machines with more CPUs than cpu_set_t holds need a larger set; the kernel says EINVAL then.
  for (int capacity = CPU_SETSIZE; capacity <= (1 << 16); capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(capacity);
    std::vector<int> cpus;
    const bool ok = sched_getaffinity(0, size, set) == 0;
    for (int cpu = 0; ok && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, size, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (ok) return cpus;
  }
  return {};
}

}  // namespace

int Topology::usable_threads() const {
  const int count = static_cast<int>(cores.size());
  if (quota_cpus <= 0) return count;
  return std::clamp(static_cast<int>(std::ceil(quota_cpus)), 1, count);
}

double parse_cpu_max(std::string_view text) {
  const double quota = leading_number(text);  // "max" has no number: no limit
  const size_t space = text.find(' ');
  const double period = space == std::string_view::npos ? 0 : leading_number(text.substr(space));
  return quota > 0 && period > 0 ? quota / period : 0;
}

double parse_cfs_quota(std::string_view quota_us, std::string_view period_us) {
  const double quota = leading_number(quota_us);  // -1: no limit
  const double period = leading_number(period_us);
  return quota > 0 && period > 0 ? quota / period : 0;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) break;
    int last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc()) break;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (parsed.ptr >= end || *parsed.ptr != ',') break;
    at = parsed.ptr + 1;
  }
  return cpus;
}

double cgroup_quota(std::string_view proc_cgroup, const std::string& root) {
  double quota = 0;
  while (!proc_cgroup.empty()) {
    const size_t newline = std::min(proc_cgroup.find('\n'), proc_cgroup.size());
    const std::string_view line = proc_cgroup.substr(0, newline);
    proc_cgroup.remove_prefix(std::min(newline + 1, proc_cgroup.size()));
    // hierarchy-id:controllers:path
    const size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string path(line.substr(second + 1));
    if (path.empty() || path[0] != '/') continue;
    if (controllers.empty()) {
      quota = tighter(quota, quota_up_the_tree(root, path, true));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      quota = tighter(quota, quota_up_the_tree(root + "/cpu", path, false));
      quota = tighter(quota, quota_up_the_tree(root + "/" + controllers, path, false));
    }
  }
  return quota;
}

Topology read_topology() {
  Topology topology;
  const std::vector<int> cpus = allowed_cpus();
  for (const int cpu : cpus) {
    const auto siblings = read_text("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                    "/topology/thread_siblings_list");
    const std::vector<int> group = siblings ? parse_cpu_list(*siblings) : std::vector<int>{};
    const bool taken = std::any_of(group.begin(), group.end(), [&](int sibling) {
      return std::find(topology.cores.begin(), topology.cores.end(), sibling) !=
             topology.cores.end();
    });
    if (!taken) topology.cores.push_back(cpu);
  }
  if (topology.cores.empty()) topology.cores.push_back(0);
  topology.allowed_cpus = std::max<int>(1, static_cast<int>(cpus.size()));
  if (const auto groups = read_text("/proc/self/cgroup")) {
    topology.quota_cpus = cgroup_quota(*groups, "/sys/fs/cgroup");
  }
  return topology;
}

}  // namespace cedra

// What of the machine this process may use: the affinity mask, one CPU per physical core, and the
// CPU quota of the control group (v1 and v2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cedra {

struct Topology {
  std::vector<int> cores;  // one allowed CPU of each physical core, ascending; never empty
  int allowed_cpus = 1;    // CPUs in the affinity mask, SMT siblings counted
  double quota_cpus = 0;   // CPU time per wall time that the control group grants; 0 = no limit

  // Threads that can run at once: a core each, and no more than the quota (rounded up) pays for.
  int usable_threads() const;
};

Topology read_topology();

// Parts of the above, for tests. Both return 0 for "no limit" and for text they do not understand.
double parse_cpu_max(std::string_view text);                                    // v2 cpu.max
double parse_cfs_quota(std::string_view quota_us, std::string_view period_us);  // v1
// "0-3,8" -> {0, 1, 2, 3, 8}
std::vector<int> parse_cpu_list(std::string_view text);
// Smallest limit on the path of the control group named in `proc_cgroup` (text of
// /proc/self/cgroup) below `root` (/sys/fs/cgroup).
double cgroup_quota(std::string_view proc_cgroup, const std::string& root);

}  // namespace cedra

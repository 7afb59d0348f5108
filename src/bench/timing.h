// Clocks and medians of the measurements.
//
// Kernels and ceilings are timed in CPU time, the longest of the members': neighbours on the
// machine then cost bandwidth, but not whole time slices, and a ratio of two such times means
// something on a busy machine too. What a user waits for (a step, a start) is timed by the wall
// clock.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

#include "parallel/team.h"

namespace cedra::bench {

inline double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
inline double cpu_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
inline double wall_seconds() { return seconds_of(CLOCK_MONOTONIC); }

// Runs fn(member) on the team; the longest CPU time of a member.
template <class Fn>
double team_seconds(Team& team, Fn&& fn) {
  std::vector<double> seconds(static_cast<size_t>(team.size()));
  team.run([&](int member) {
    const double begin = cpu_seconds();
    fn(member);
    seconds[static_cast<size_t>(member)] = cpu_seconds() - begin;
  });
  return *std::ranges::max_element(seconds);
}

// 0 for no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace cedra::bench

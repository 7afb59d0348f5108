// The clock of steps, deadlines and statistics. Internal to engine/.
#pragma once

#include <chrono>

namespace cedra::engine {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace cedra::engine

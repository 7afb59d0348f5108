// What the server and a decoding worker say to each other: one fixed head each way, bytes behind
// it. Both ends are the same program. Internal to image/.
#pragma once

#include <cstdint>

#include "image/prepared.h"

namespace cedra::image::wire {

// What a worker says before all else.
struct Hello {
  enum : int64_t { kFiltered = 1, kUnfiltered = 2, kInstrumented = 3 };
  int64_t walls = 0;
  int64_t code = 0;  // kUnfiltered: errno of the call that failed
};

struct Request {
  int64_t bytes = 0;  // of the file, which follows
  int64_t cpu_microseconds = 0;
  PrepareOptions options;
};

struct Reply {
  int64_t failed = 0;  // 1: `code` and a message of `bytes` follow
  int64_t code = 0;
  int64_t width = 0;  // of the picture before fitting, after shrinking
  int64_t height = 0;
  int64_t bytes = 0;  // what follows: the message or the fitted pixels
};

constexpr int64_t kMaxMessage = 500;

}  // namespace cedra::image::wire

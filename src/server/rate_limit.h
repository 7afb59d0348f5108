// How many requests one client may make: a bucket that fills evenly and holds a minute's worth.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace cedra::server {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: no limit.
  explicit RateLimit(int64_t per_minute) : per_minute_(per_minute) {}

  // 0 if `who` may go on now, else how long to wait. Any thread.
  std::chrono::milliseconds take(const std::string& who, Clock::time_point now);

 private:
  struct Bucket {
    double left = 0;
    Clock::time_point seen;
  };
  void forget_full(Clock::time_point now);
  double refilled(const Bucket& bucket, Clock::time_point now) const;

  const int64_t per_minute_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace cedra::server

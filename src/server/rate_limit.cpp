#include "server/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace cedra::server {
namespace {

constexpr size_t kMostBuckets = 65536;

}  // namespace

std::chrono::milliseconds RateLimit::take(const std::string& who, Clock::time_point now) {
  if (per_minute_ == 0) return {};
  const std::lock_guard lock(mutex_);
  if (buckets_.size() >= kMostBuckets) forget_full(now);
  const auto [found, fresh] =
      buckets_.try_emplace(who, Bucket{static_cast<double>(per_minute_), now});
  Bucket& bucket = found->second;
  bucket.left = refilled(bucket, now);
  bucket.seen = now;
  if (bucket.left >= 1) {
    bucket.left -= 1;
    return {};
  }
  const double seconds = (1 - bucket.left) * 60 / static_cast<double>(per_minute_);
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

double RateLimit::refilled(const Bucket& bucket, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - bucket.seen).count();
  const auto full = static_cast<double>(per_minute_);
  return std::min(bucket.left + seconds * full / 60, full);
}

// A full bucket is like a new one. Should none be full, all start anew: memory stays bounded.
void RateLimit::forget_full(Clock::time_point now) {
  const auto full = static_cast<double>(per_minute_);
  std::erase_if(buckets_, [&](const auto& entry) { return refilled(entry.second, now) >= full; });
  if (buckets_.size() >= kMostBuckets) buckets_.clear();
}

}  // namespace cedra::server

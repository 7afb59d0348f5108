// Counters and histograms of the server, written as Prometheus text under the names that dashboards
// for vLLM use (spec chat.md 4.7). Updates are relaxed atomics: any thread, no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace cedra::server {

class Histogram {
 public:
  static constexpr size_t kMaxBounds = 20;
  // Ascending upper bounds, in seconds or tokens; the last bucket (+Inf) is implied.
  explicit Histogram(std::initializer_list<double> bounds);
  void observe(double value);
  void write(std::string& out, std::string_view name, std::string_view help,
             std::string_view labels) const;

 private:
  std::array<double, kMaxBounds> bounds_{};
  size_t count_ = 0;
  std::array<std::atomic<uint64_t>, kMaxBounds + 1> buckets_{};
  std::atomic<uint64_t> billionths_{0};  // of the sum
};

struct Metrics {
  Histogram time_to_first_token{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,
                                0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 160.0, 640.0};
  Histogram inter_token{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                        0.2,    0.3,   0.4,    0.5,   0.75, 1.0,   2.5,  5.0,   10.0};
  Histogram end_to_end{0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,
                       5.0,  10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0, 1920.0};
  // Parts of it: until the first rows of the prompt ran, until the first token, until the end.
  Histogram queue{0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,
                  5.0,  10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0, 1920.0};
  Histogram prefill{0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,
                    5.0,  10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0, 1920.0};
  Histogram decode{0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,
                   5.0,  10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0, 1920.0};
  Histogram prompt_tokens{1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                          2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  Histogram generated_tokens{1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                             2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  std::atomic<uint64_t> finished_stop{0};
  std::atomic<uint64_t> finished_length{0};
  std::atomic<uint64_t> finished_aborted{0};
  std::atomic<uint64_t> finished_error{0};
  std::atomic<uint64_t> refused{0};        // by the engine: queue full or draining
  std::atomic<uint64_t> client_errors{0};  // 4xx answers
  std::atomic<uint64_t> server_errors{0};  // 5xx answers
  std::atomic<uint64_t> disconnects{0};    // clients that left before their answer was complete
};

std::string prometheus_text(const Metrics& metrics, const engine::Stats& stats,
                            std::string_view model);

}  // namespace cedra::server

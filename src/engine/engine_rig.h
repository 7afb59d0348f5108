// What the engine's tests share: a sink that keeps everything, prompts, and engines on the golden
// folders.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "engine/load.h"
#include "kernels/ops.h"

namespace cedra::engine::testing {

inline const std::string kTiny = CEDRA_SOURCE_DIR "/tests/golden/tiny";  // window 16
inline const std::string kDeep = CEDRA_SOURCE_DIR "/tests/golden/deep";  // window 64

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  Finish finish;
  int64_t finishes = 0;
  int64_t prefilled = 0;
};

class Collector final : public Sink {
 public:
  void on_prefill(int64_t done, int64_t total) override {
    const std::lock_guard lock(mutex_);
    EXPECT_GE(done, answer_.prefilled);
    EXPECT_LE(done, total);
    answer_.prefilled = done;
    changed_.notify_all();
  }
  bool on_token(const Token& token) override {
    const std::lock_guard lock(mutex_);
    answer_.tokens.push_back(token.id);
    answer_.logprobs.push_back(token.logprob);
    changed_.notify_all();
    return true;
  }
  void on_finish(const Finish& finish) override {
    const std::lock_guard lock(mutex_);
    answer_.finish = finish;
    ++answer_.finishes;
    changed_.notify_all();
  }
  Answer wait() {
    wait_for([](const Answer& answer) { return answer.finishes > 0; });
    const std::lock_guard lock(mutex_);
    return answer_;
  }
  void wait_tokens(size_t count) {
    wait_for([count](const Answer& a) { return a.finishes > 0 || a.tokens.size() >= count; });
  }
  void wait_prefill(int64_t rows) {
    wait_for([rows](const Answer& a) { return a.finishes > 0 || a.prefilled >= rows; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return answer_.tokens.size();
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return answer_.finishes > 0;
  }

 private:
  template <class Condition>
  void wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    const bool met =
        changed_.wait_for(lock, std::chrono::minutes(3), [&] { return condition(answer_); });
    EXPECT_TRUE(met) << "a request is stuck";
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_;
};

inline std::vector<int32_t> random_prompt(uint32_t seed, int64_t length) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(random() % 440 + 3));
  return prompt;
}

inline std::vector<int32_t> join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline std::vector<int32_t> front(const std::vector<int32_t>& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

inline Request greedy_request(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.top_logprobs = 0;
  return request;
}

inline Options small_options(PrefillMode mode) {
  Options options;
  options.threads = 1;
  options.block_size = 16;
  options.max_model_len = 512;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.prefill_mode = mode;
  options.window_interval = 1;
  options.memory_budget = int64_t{1} << 30;
  return options;
}
inline Options without_cache(Options options) {
  options.enable_prefix_caching = false;
  return options;
}

inline Loaded load_engine(const std::string& folder, const Options& options) {
  Result<Loaded> loaded = load(folder, options);
  if (!loaded.has_value()) throw std::runtime_error(loaded.error().message);
  return std::move(*loaded);
}

// With the smallest cache that the plan admits: one full context.
inline Loaded load_smallest(const std::string& folder, Options options) {
  options.memory_budget = int64_t{1} << 30;
  int64_t cache = 0;
  {
    const Loaded roomy = load_engine(folder, options);
    for (const plan::Part& part : roomy.plan.parts) {
      if (part.name == "compressed cache") cache = part.bytes;
    }
    const int64_t contexts = roomy.plan.context_tokens / roomy.engine->info().context_length;
    options.memory_budget = roomy.plan.taken() - cache + cache / contexts;
  }
  for (;; options.memory_budget += 8 << 10) {
    Result<Loaded> loaded = load(folder, options);
    if (loaded.has_value()) return std::move(*loaded);
    if (loaded.error().code != Code::kExhausted) throw std::runtime_error(loaded.error().message);
  }
}

struct Ticket {
  RequestId id = 0;
  std::shared_ptr<Collector> sink = std::make_shared<Collector>();
};
inline Ticket submit(Engine& engine, Request request) {
  Ticket ticket;
  const Result<RequestId> id = engine.submit(std::move(request), ticket.sink);
  if (!id.has_value()) throw std::runtime_error(id.error().message);
  ticket.id = *id;
  return ticket;
}
inline Answer ask(Engine& engine, Request request) {
  return submit(engine, std::move(request)).sink->wait();
}

// Bit for bit.
inline void expect_same(const Answer& got, const Answer& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

inline std::vector<std::string> levels() {
  std::vector<std::string> names;
  for (const kernels::Ops* ops : kernels::available_ops()) names.emplace_back(ops->name);
  return names;
}

}  // namespace cedra::engine::testing

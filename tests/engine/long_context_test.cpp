// A context of a million tokens on tiny dims (tests/golden/shapes/long): planned, prefilled in
// chunks, decoded, with no memory but the planned bytes per token.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>

#include "engine/engine_rig.h"
#include "plan/memory_plan.h"

namespace cedra::engine::testing {
namespace {

constexpr int64_t kContext = CEDRA_LONG_CONTEXT;

class Watch final : public Sink {
 public:
  void on_prefill(int64_t done, int64_t total) override {
    rows = done;
    most = std::max(most, plan::resident_bytes());
    if (chunks++ % 32 == 0) std::printf("%ld of %ld rows\n", done, total);
  }
  bool on_token(const Token&) override {
    ++tokens;
    return true;
  }
  void on_finish(const Finish& finish) override {
    most = std::max(most, plan::resident_bytes());
    reason = finish.reason;
    const std::lock_guard lock(mutex);
    finished = true;
    changed.notify_all();
  }
  int64_t chunks = 0, rows = 0, tokens = 0, most = 0;
  FinishReason reason = FinishReason::kError;
  std::mutex mutex;
  std::condition_variable changed;
  bool finished = false;
};

TEST(LongContext, TakesThePlannedBytesAndNothingElse) {
  constexpr int64_t kAnswer = 32;
  Options options;
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = 2048;
  options.memory_budget = int64_t{2} << 30;
  options.max_model_len = kContext;
  const Loaded loaded = load_engine(CEDRA_SOURCE_DIR "/tests/golden/shapes/long", options);
  EXPECT_GE(loaded.plan.context_tokens, kContext);
  const int64_t at_start = plan::resident_bytes();
  const auto sink = std::make_shared<Watch>();
  std::vector<int32_t> prompt = random_prompt(1, kContext - kAnswer);
  for (int32_t& token : prompt) token %= 280;
  Request request = greedy_request(std::move(prompt), kAnswer);
  request.sampling.top_logprobs = -1;
  ASSERT_TRUE(loaded.engine->submit(std::move(request), sink).has_value());
  {
    std::unique_lock lock(sink->mutex);
    sink->changed.wait(lock, [&] { return sink->finished; });
  }
  EXPECT_EQ(sink->reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens, kAnswer);
  EXPECT_EQ(sink->rows, kContext - kAnswer);
  // The cache is there from the start. A buffer of rows times context would be 2048 * kContext
  // bytes at least.
  std::printf("%ld tokens: %.1f MiB at start, %.1f at most, planned %.1f\n", kContext,
              static_cast<double>(at_start) / 1048576, static_cast<double>(sink->most) / 1048576,
              static_cast<double>(loaded.plan.taken()) / 1048576);
  EXPECT_LE(sink->most, loaded.plan.taken());
  // Planned for token ids are this request's and four more contexts that could wait.
  constexpr int64_t kIds = kContext * int64_t{sizeof(int32_t)};
  EXPECT_GE(static_cast<double>(sink->most),
            0.97 * static_cast<double>(loaded.plan.taken() - 3 * kIds));
  EXPECT_LE(sink->most - at_start, 2 * kIds + (4 << 20))
      << "more than the token ids, as sent and in the slot, came on top";
}

}  // namespace
}  // namespace cedra::engine::testing

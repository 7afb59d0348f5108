// A context of CEDRA_LONG_CONTEXT tokens on tiny dims: planned, prefilled in chunks, decoded, with
// no memory but the planned bytes per token. The folder is models/tiny with a longer context in its
// config.json.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "engine/engine_rig.h"
#include "plan/memory_plan.h"

namespace cedra::engine::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kContext = CEDRA_LONG_CONTEXT;

class LongContext : public ::testing::Test {
 protected:
  LongContext()
      : folder_(fs::path(::testing::TempDir()) / ("cedra_long_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    for (const auto& entry : fs::directory_iterator(CEDRA_SOURCE_DIR "/models/tiny")) {
      fs::copy_file(entry.path(), folder_ / entry.path().filename());
    }
    std::stringstream text;
    text << std::ifstream(folder_ / "config.json").rdbuf();
    std::string config = text.str();
    const std::string old = "\"max_position_embeddings\": 1024";
    const size_t at = config.find(old);
    EXPECT_NE(at, std::string::npos);
    config.replace(at, old.size(), "\"max_position_embeddings\": " + std::to_string(kContext));
    std::ofstream(folder_ / "config.json") << config;
  }
  ~LongContext() override { fs::remove_all(folder_); }

  fs::path folder_;
};

class Watch final : public Sink {
 public:
  void on_prefill(int64_t done, int64_t total) override {
    const int64_t now = plan::resident_bytes();
    if (chunks++ == 1) {
      first_rows = done;
      first_bytes = now;
    }
    rows = done;
    bytes = now;
    if (chunks % 16 == 0)
      std::printf("%ld of %ld rows, %.1f MiB\n", done, total, static_cast<double>(now) / 1048576);
  }
  bool on_token(const Token&) override {
    ++tokens;
    return true;
  }
  void on_finish(const Finish& finish) override {
    last_bytes = plan::resident_bytes();
    reason = finish.reason;
    const std::lock_guard lock(mutex);
    finished = true;
    changed.notify_all();
  }
  int64_t chunks = 0, first_rows = 0, first_bytes = 0, rows = 0, bytes = 0, tokens = 0,
          last_bytes = 0;
  FinishReason reason = FinishReason::kError;
  std::mutex mutex;
  std::condition_variable changed;
  bool finished = false;
};

TEST_F(LongContext, TakesThePlannedBytesPerTokenAndNothingElse) {
  constexpr int64_t kAnswer = 32;
  Options options;
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = 2048;
  options.memory_budget = int64_t{2} << 30;
  const Loaded loaded = load_engine(folder_.string(), options);
  EXPECT_GE(loaded.plan.context_tokens, kContext);
  double per_token = 0;
  for (const plan::Part& part : loaded.plan.parts) {
    if (part.name == "compressed cache") {
      per_token = static_cast<double>(part.bytes) / static_cast<double>(loaded.plan.context_tokens);
    }
  }
  const auto sink = std::make_shared<Watch>();
  Request request = greedy_request(random_prompt(1, kContext - kAnswer), kAnswer);
  request.sampling.top_logprobs = -1;
  ASSERT_TRUE(loaded.engine->submit(std::move(request), sink).has_value());
  {
    std::unique_lock lock(sink->mutex);
    sink->changed.wait(lock, [&] { return sink->finished; });
  }
  EXPECT_EQ(sink->reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens, kAnswer);
  EXPECT_EQ(sink->rows, kContext - kAnswer);
  // Rows beyond the first two chunks add their records, and no buffer of rows times context: such a
  // one would be 2048 * kContext bytes at least. 2 MiB: huge pages are touched whole.
  const double added = static_cast<double>(sink->bytes - sink->first_bytes);
  const double expected = per_token * static_cast<double>(sink->rows - sink->first_rows);
  std::printf("%.1f MiB added for %ld rows, planned %.1f MiB (%.1f bytes per token)\n",
              added / 1048576, sink->rows - sink->first_rows, expected / 1048576, per_token);
  EXPECT_LE(added, 1.03 * expected + (2 << 20));
  EXPECT_LE(sink->last_bytes, sink->bytes + (1 << 20)) << "decoding grew";
  EXPECT_LE(sink->last_bytes, loaded.plan.taken());
}

}  // namespace
}  // namespace cedra::engine::testing

// The engine on real (random) weights: a request's tokens are the same alone and in any company.
#include "engine/local_engine.h"

#include <gtest/gtest.h>

#include <future>

#include "engine/engine_rig.h"

namespace cedra::engine {
namespace {

using testing::Answer;
using testing::ask;
using testing::Collector;
using testing::expect_same;
using testing::greedy_request;
using testing::kTiny;
using testing::random_prompt;
using testing::small_options;

Loaded load_tiny(const Options& options) { return testing::load_engine(kTiny, options); }

class EngineModes : public ::testing::TestWithParam<PrefillMode> {};
INSTANTIATE_TEST_SUITE_P(All, EngineModes,
                         ::testing::Values(PrefillMode::kExact, PrefillMode::kBounded));

TEST_P(EngineModes, AnswersAreTheSameAloneAndTogetherAtAnyBudget) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 17; ++i) {
    requests.push_back(greedy_request(random_prompt(i, 1 + 13 * i % 97), 5 + i % 7));
  }
  std::vector<Answer> alone;
  {
    Options options = small_options(GetParam());
    options.enable_prefix_caching = false;
    const Loaded loaded = load_tiny(options);
    for (const Request& request : requests) alone.push_back(ask(*loaded.engine, request));
  }
  for (const int64_t budget : {1, 7, 64, 4096}) {
    Options options = small_options(GetParam());
    options.enable_prefix_caching = false;
    options.max_num_batched_tokens = budget;
    const Loaded loaded = load_tiny(options);
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(loaded.engine->submit(request, sinks.back()).has_value());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i << " budget " << budget);
      expect_same(sinks[i]->wait(), alone[i]);
    }
    loaded.engine->drain(std::chrono::seconds(10));
    EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
  }
}

TEST(Engine, ExactHitsChangeNothing) {
  Options cold_options = small_options(PrefillMode::kExact);
  cold_options.enable_prefix_caching = false;
  const Loaded cold = load_tiny(cold_options);
  const Loaded warm = load_tiny(small_options(PrefillMode::kExact));
  const std::vector<int32_t> base = random_prompt(7, 200);
  const Answer first = ask(*warm.engine, greedy_request(base, 40));
  EXPECT_EQ(first.finish.usage.cached_tokens, 0);
  // Every cut of the prompt, then what the first answer wrote.
  std::vector<int32_t> conversation = base;
  conversation.insert(conversation.end(), first.tokens.begin(), first.tokens.end());
  for (size_t keep = 1; keep <= conversation.size(); keep += 7) {
    std::vector<int32_t> prompt(conversation.begin(), conversation.begin() + keep);
    const std::vector<int32_t> tail = random_prompt(static_cast<uint32_t>(1000 + keep), keep % 5);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    SCOPED_TRACE(keep);
    const Answer hit = ask(*warm.engine, greedy_request(prompt, 6));
    expect_same(hit, ask(*cold.engine, greedy_request(prompt, 6)));
    if (keep > 40) {
      EXPECT_GT(hit.finish.usage.cached_tokens, 0);
    }
  }
}

TEST(Engine, CancelledRequestsGiveEverythingBackAndChangeNobody) {
  Options options = small_options(PrefillMode::kExact);
  options.enable_prefix_caching = false;
  const Loaded loaded = load_tiny(options);
  const Request marked = greedy_request(random_prompt(3, 77), 30);
  const Answer alone = ask(*loaded.engine, marked);
  for (int round = 0; round < 5; ++round) {
    std::vector<RequestId> ids;
    std::vector<std::shared_ptr<Collector>> sinks;
    for (uint32_t i = 0; i < 3; ++i) {
      sinks.push_back(std::make_shared<Collector>());
      ids.push_back(*loaded.engine->submit(greedy_request(random_prompt(100 + i, 20 + 60 * i), 200),
                                           sinks.back()));
    }
    auto sink = std::make_shared<Collector>();
    ASSERT_TRUE(loaded.engine->submit(marked, sink).has_value());
    sink->wait_tokens(static_cast<size_t>(round));
    for (const RequestId id : ids) loaded.engine->cancel(id);
    expect_same(sink->wait(), alone);
    for (auto& other : sinks) EXPECT_EQ(other->wait().finish.reason, FinishReason::kCancelled);
    EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
  }
}

TEST(Engine, BoundedHitsRecomputeOneWindowAtMost) {
  // 8 conversations take turns in a small cache; each turn appends to its history (fault 20b).
  Options options = small_options(PrefillMode::kBounded);
  const Loaded loaded = load_tiny(options);
  const int64_t window = 16;
  std::vector<std::vector<int32_t>> histories;
  for (uint32_t c = 0; c < 8; ++c) histories.push_back(random_prompt(c, 50));
  for (int turn = 0; turn < 4; ++turn) {
    for (uint32_t c = 0; c < 8; ++c) {
      std::vector<int32_t>& history = histories[c];
      const int64_t known = static_cast<int64_t>(history.size());
      const std::vector<int32_t> more = random_prompt(100 * c + turn, 9);
      history.insert(history.end(), more.begin(), more.end());
      const Stats before = loaded.engine->stats();
      const Answer answer = ask(*loaded.engine, greedy_request(history, 5));
      history.insert(history.end(), answer.tokens.begin(), answer.tokens.end());
      if (turn == 0) continue;
      const int64_t computed =
          static_cast<int64_t>(history.size()) - 5 - answer.finish.usage.cached_tokens + window;
      // New tokens, the part of a block that was not full, and the window.
      EXPECT_LE(computed, static_cast<int64_t>(history.size()) - 5 - known + 16 + 5 + window);
      EXPECT_GT(loaded.engine->stats().cached_prompt_tokens, before.cached_prompt_tokens);
    }
  }
}

TEST(Engine, EvictionNeverBreaksAnAnswer) {
  Options options = small_options(PrefillMode::kExact);
  options.max_num_seqs = 1;
  options.max_model_len = 128;  // 8 blocks per context; the cache holds 16
  options.window_records = 2;
  Options cold_options = options;
  cold_options.enable_prefix_caching = false;
  const Loaded warm = load_tiny(options);
  const Loaded cold = load_tiny(cold_options);
  for (int round = 0; round < 3; ++round) {
    for (uint32_t c = 0; c < 5; ++c) {
      const Request request = greedy_request(random_prompt(c, 60 + 7 * c), 20);
      expect_same(ask(*warm.engine, request), ask(*cold.engine, request));
    }
  }
  EXPECT_LE(warm.engine->stats().cache_blocks_used, warm.engine->stats().cache_blocks_total);
}

TEST(Engine, RefusesWhatCannotFit) {
  Options options = small_options(PrefillMode::kExact);
  options.memory_budget = 1 << 20;
  const Result<Loaded> loaded = load(kTiny, options);
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::kExhausted);
  EXPECT_NE(loaded.error().message.find("more than the budget of 1.0 MiB"), std::string::npos)
      << loaded.error().message;

  const Loaded good = load_tiny(small_options(PrefillMode::kExact));
  auto sink = std::make_shared<Collector>();
  const Result<RequestId> id = good.engine->submit(greedy_request(random_prompt(1, 600), 5), sink);
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().code, Code::kTooLarge);
}

TEST(Engine, PromptLogprobsCoverEveryPosition) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kBounded}) {
    const Loaded loaded = load_tiny(small_options(mode));
    struct Prompt final : Sink {
      std::vector<Token> tokens;
      std::promise<void> done;
      void on_prompt_logprobs(std::span<const Token> all) override {
        tokens.assign(all.begin(), all.end());
      }
      bool on_token(const Token&) override { return true; }
      void on_finish(const Finish&) override { done.set_value(); }
    };
    auto sink = std::make_shared<Prompt>();
    Request request = greedy_request(random_prompt(5, 150), 1);
    request.sampling.prompt_logprobs = 2;
    ASSERT_TRUE(loaded.engine->submit(request, sink).has_value());
    sink->done.get_future().wait();
    ASSERT_EQ(sink->tokens.size(), 150u);
    EXPECT_EQ(sink->tokens[0].id, request.prompt[0]);
    EXPECT_TRUE(sink->tokens[0].top.empty());
    for (size_t i = 1; i < sink->tokens.size(); ++i) {
      EXPECT_EQ(sink->tokens[i].id, request.prompt[i]);
      EXPECT_EQ(sink->tokens[i].top.size(), 2u);
      EXPECT_LT(sink->tokens[i].logprob, 0);
    }
  }
}

}  // namespace
}  // namespace cedra::engine

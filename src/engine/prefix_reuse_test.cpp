// What a request may take from earlier ones: how much, and that in exact mode nothing else changes.
#include <gtest/gtest.h>

#include "engine/engine_rig.h"

namespace cedra::engine::testing {
namespace {

constexpr int64_t kBlock = 16;

class ExactHits : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Levels, ExactHits, ::testing::ValuesIn(levels()),
                         [](const auto& param) { return param.param; });

// Every number of blocks, found warm, found again after eviction of the rest, and cold.
TEST_P(ExactHits, AtEveryBlockCountAnswerAsCold) {
  Options options = small_options(PrefillMode::kExact);
  options.isa = GetParam();
  options.window_records = 32;
  const Loaded warm = load_engine(kTiny, options);
  const Loaded cold = load_engine(kTiny, without_cache(options));
  const std::vector<int32_t> base = random_prompt(7, 10 * kBlock + 5);
  expect_same(ask(*warm.engine, greedy_request(base, 4)),
              ask(*cold.engine, greedy_request(base, 4)));
  for (int64_t blocks = 0; blocks <= 10; ++blocks) {
    SCOPED_TRACE(blocks);
    const auto prompt =
        join(front(base, blocks * kBlock), random_prompt(static_cast<uint32_t>(blocks), 3));
    const Answer hit = ask(*warm.engine, greedy_request(prompt, 4));
    EXPECT_EQ(hit.finish.usage.cached_tokens, blocks * kBlock);
    expect_same(hit, ask(*cold.engine, greedy_request(prompt, 4)));
  }
}

TEST_P(ExactHits, OfGeneratedTokensAnswerAsCold) {
  Options options = small_options(PrefillMode::kExact);
  options.isa = GetParam();
  const Loaded warm = load_engine(kTiny, options);
  const Loaded cold = load_engine(kTiny, without_cache(options));
  const std::vector<int32_t> base = random_prompt(9, 21);
  const Answer first = ask(*warm.engine, greedy_request(base, 60));
  const auto turn = join(join(base, first.tokens), random_prompt(10, 6));
  const Answer hit = ask(*warm.engine, greedy_request(turn, 8));
  // 21 + 60 tokens, of which the last one was never read back: 80 are in the cache.
  EXPECT_EQ(hit.finish.usage.cached_tokens, 80 / kBlock * kBlock);
  expect_same(hit, ask(*cold.engine, greedy_request(turn, 8)));
}

// Fault 11: two parts of the engine disagree at some length. Suffixes around block (16), window
// (16) and step (64) borders, with a hit and without one.
TEST(PrefixReuse, SuffixesOfEveryLengthAnswerAsCold) {
  const Options options = small_options(PrefillMode::kExact);
  const Loaded warm = load_engine(kTiny, options);
  const Loaded cold = load_engine(kTiny, without_cache(options));
  const std::vector<int32_t> base = random_prompt(1, 4 * kBlock);
  ask(*warm.engine, greedy_request(join(base, {3}), 1));
  for (int64_t suffix = 1; suffix <= 40; ++suffix) {
    SCOPED_TRACE(suffix);
    const std::vector<int32_t> tail = random_prompt(static_cast<uint32_t>(500 + suffix), suffix);
    const Request with_hit = greedy_request(join(base, tail), 2);
    const Answer hit = ask(*warm.engine, with_hit);
    EXPECT_EQ(hit.finish.usage.cached_tokens, 4 * kBlock);
    expect_same(hit, ask(*cold.engine, with_hit));
    const Request without = greedy_request(tail, 2);
    expect_same(ask(*warm.engine, without), ask(*cold.engine, without));
  }
  for (int64_t pages = 1; pages <= 5; ++pages) {
    for (const int64_t length : {pages * kBlock - 1, pages * kBlock, pages * kBlock + 1}) {
      SCOPED_TRACE(length);
      const Request request = greedy_request(random_prompt(77, length), 2);
      for (int i = 0; i < 2; ++i)
        expect_same(ask(*warm.engine, request), ask(*cold.engine, request));
    }
  }
}

// The same sweep in bounded mode: what is found is not exact, but always answers, and recomputes
// one window at most.
TEST(PrefixReuse, SuffixesOfEveryLengthReplayOneWindow) {
  const Loaded warm = load_engine(kTiny, small_options(PrefillMode::kBounded));
  const std::vector<int32_t> base = random_prompt(1, 4 * kBlock);
  ask(*warm.engine, greedy_request(join(base, {3}), 1));
  for (int64_t suffix = 1; suffix <= 40; ++suffix) {
    const std::vector<int32_t> tail = random_prompt(static_cast<uint32_t>(500 + suffix), suffix);
    const Answer hit = ask(*warm.engine, greedy_request(join(base, tail), 2));
    EXPECT_EQ(hit.finish.usage.cached_tokens, 4 * kBlock);
    EXPECT_EQ(hit.tokens.size(), 2u);
  }
  // A hit no longer than the window is not worth a replay of it.
  EXPECT_EQ(ask(*warm.engine, greedy_request(join(front(base, kBlock), {5, 6}), 1))
                .finish.usage.cached_tokens,
            0);
  EXPECT_EQ(ask(*warm.engine, greedy_request(join(front(base, 2 * kBlock), {5, 6}), 1))
                .finish.usage.cached_tokens,
            2 * kBlock);
}

// Fault 13: the second identical prompt, in the same slot and in another.
TEST(PrefixReuse, TheSamePromptTwiceAnswersTheSame) {
  const Options options = small_options(PrefillMode::kExact);
  const Loaded warm = load_engine(kTiny, options);
  const Loaded cold = load_engine(kTiny, without_cache(options));
  const Request request = greedy_request(random_prompt(3, 3 * 16 + 1), 12);
  const Answer want = ask(*cold.engine, request);
  expect_same(ask(*warm.engine, request), want);
  expect_same(ask(*warm.engine, request), want);
  const Ticket other = submit(*warm.engine, greedy_request(random_prompt(4, 30), 200));
  other.sink->wait_tokens(1);  // it has the first slot now
  const Answer second_slot = ask(*warm.engine, request);
  EXPECT_EQ(second_slot.finish.usage.cached_tokens, 48);
  expect_same(second_slot, want);
  warm.engine->cancel(other.id);
  other.sink->wait();
}

// Faults 14 and 15: 50 turns, each of which changes the last 10 tokens of the one before; what was
// said at the front stays in reach, and nobody recomputes more than a bounded stretch.
TEST(PrefixReuse, FiftyEditedTurns) {
  const Options options = small_options(PrefillMode::kExact);
  const Loaded warm = load_engine(kTiny, options);
  const Loaded cold = load_engine(kTiny, without_cache(options));
  std::vector<int32_t> history = random_prompt(1, 100);
  for (uint32_t turn = 0; turn < 50; ++turn) {
    SCOPED_TRACE(turn);
    for (size_t i = history.size() - 10; i < history.size(); ++i) {
      history[i] = static_cast<int32_t>(3 + (turn * 31 + i) % 440);
    }
    history = join(history, random_prompt(900 + turn, 4));
    const Answer hit = ask(*warm.engine, greedy_request(history, 2));
    if (turn % 10 == 0) expect_same(hit, ask(*cold.engine, greedy_request(history, 2)));
    EXPECT_EQ(hit.tokens.size(), 2u);
    if (turn == 0) continue;
    const int64_t computed = std::ssize(history) - hit.finish.usage.cached_tokens;
    EXPECT_LE(computed, 10 + 4 + 4 + kBlock);
  }
}

// Fault 17: the history of a thinking turn as clients send it back: whole, without the reasoning,
// or with a blank in its place. The visible front is matched as far as it goes.
class ThinkingTurns : public ::testing::TestWithParam<PrefillMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ThinkingTurns,
                         ::testing::Values(PrefillMode::kExact, PrefillMode::kBounded));

TEST_P(ThinkingTurns, AreFoundAsFarAsTheyAreVisible) {
  constexpr int32_t kThink = 60, kEndThink = 61, kBlank = 62;
  const std::vector<int32_t> prompt = join(random_prompt(21, 75), {kThink});
  const std::vector<int32_t> next = random_prompt(22, 9);
  for (const char kind : {'a', 'b', 'c'}) {
    SCOPED_TRACE(kind);
    const Loaded loaded = load_engine(kTiny, small_options(GetParam()));
    const Answer first = ask(*loaded.engine, greedy_request(prompt, 50));
    const std::vector<int32_t> answer(first.tokens.begin() + 40, first.tokens.end());
    std::vector<int32_t> history = prompt;
    int64_t visible = std::ssize(prompt);
    if (kind == 'a') {
      history = join(history, first.tokens);
      visible = std::ssize(history) - 1;  // the last token was never read back
    } else if (kind == 'b') {
      history = join(join(history, {kEndThink}), answer);
    } else {
      history = join(join(history, {kBlank, kEndThink}), answer);
    }
    const Answer second = ask(*loaded.engine, greedy_request(join(history, next), 5));
    EXPECT_EQ(second.finish.usage.cached_tokens, visible / kBlock * kBlock);
  }
}

// Fault 18: two stored windows, three conversations: the one a request continues from is copied
// before anything it stores can take its place, so every hit answers as cold.
TEST(PrefixReuse, AFullStoreNeverTakesWhatTheRequestContinuesFrom) {
  Options options = small_options(PrefillMode::kExact);
  options.window_records = 2;
  const Loaded warm = load_engine(kTiny, options);
  const Loaded cold = load_engine(kTiny, without_cache(options));
  std::vector<std::vector<int32_t>> histories;
  for (uint32_t c = 0; c < 3; ++c) histories.push_back(random_prompt(c, 50));
  for (int turn = 0; turn < 4; ++turn) {
    for (size_t c = 0; c < histories.size(); ++c) {
      histories[c] =
          join(histories[c],
               random_prompt(static_cast<uint32_t>(100 * turn) + static_cast<uint32_t>(c), 9));
      const Request request = greedy_request(histories[c], 3);
      expect_same(ask(*warm.engine, request), ask(*cold.engine, request));
    }
  }
  // And the one that just ran is always found.
  const Request again = greedy_request(join(histories[2], {9, 9}), 2);
  EXPECT_GT(ask(*warm.engine, again).finish.usage.cached_tokens, 0);
}

TEST(PrefixReuse, SaltsDoNotMeet) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kBounded));
  Request request = greedy_request(random_prompt(1, 100), 2);
  request.cache_salt = "alice";
  EXPECT_EQ(ask(*loaded.engine, request).finish.usage.cached_tokens, 0);
  EXPECT_EQ(ask(*loaded.engine, request).finish.usage.cached_tokens, 96);
  request.cache_salt = "bob";
  EXPECT_EQ(ask(*loaded.engine, request).finish.usage.cached_tokens, 0);
  request.cache_salt = "";
  EXPECT_EQ(ask(*loaded.engine, request).finish.usage.cached_tokens, 0);
}

TEST(PrefixReuse, CountsAreThoseOfTheDashboards) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kBounded));
  const Request request = greedy_request(random_prompt(1, 100), 2);
  ask(*loaded.engine, request);
  ask(*loaded.engine, request);
  const Stats stats = loaded.engine->stats();
  EXPECT_EQ(stats.prompt_tokens, 200);
  EXPECT_EQ(stats.prefix_queries, 200);
  EXPECT_EQ(stats.cached_prompt_tokens, 96);
  EXPECT_EQ(stats.generated_tokens, 4);
  EXPECT_EQ(stats.cache_blocks_used, 0);
  EXPECT_GT(stats.cache_blocks_cached, 0);
}

}  // namespace
}  // namespace cedra::engine::testing

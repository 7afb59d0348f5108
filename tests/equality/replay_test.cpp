// Encoder bounded replay (spec kv_cache.md 4a): a sequence adopts the blocks of a prefix and runs
// its last r positions again, for the windows alone.
//
// What makes this testable bit by bit: window keys of layer n at position p are exact as soon as
// p >= s + n * (W - 1), for every query then sees a full window of exact keys. So a replay long
// enough ends in the bits of the cold run.
#include <gtest/gtest.h>

#include <algorithm>

#include "rig.h"

namespace cedra::equality {
namespace {

constexpr int64_t kBlockTokens = 8;

class Replay : public testing::TestWithParam<std::string> {
 protected:
  Replay()
      : rig_("tiny", GetParam()),
        tokens_(random_tokens(rig_.model(), kHit + 20, 41)),
        session_(rig_.session({.block_tokens = kBlockTokens, .sequences = 4})) {}

  static constexpr int64_t kStart = 9;  // odd: inside a compression group
  static constexpr int64_t kHit = 104;  // 9 + 6 * 15 = 99: exact from there on
  int64_t end() const { return std::ssize(tokens_); }
  int64_t exact_from(int64_t start, int64_t layers) const {
    return start + layers * (rig_.window() - 1);
  }

  // A sequence that has the compressed rows of [0, hit) from `donor` and nothing else, about to run
  // position `start`.
  Session::SequencePtr adopt(cache::Sequence& donor, int64_t hit, int64_t start) {
    Session::SequencePtr sequence = session_->new_sequence();
    soil(*sequence);
    for (int64_t i = 0; i < hit / kBlockTokens; ++i) {
      const cache::BlockId block = donor.blocks[static_cast<size_t>(i)];
      session_->pool().retain(block);
      sequence->blocks.push_back(block);
    }
    sequence->length = start;
    sequence->encoder_window_start = start;
    sequence->decoder_window_start = start;
    const int64_t lookback = rig_.text().engram_max_ngram_size - 1;
    for (int64_t p = std::max<int64_t>(0, start - lookback); p < start; ++p) {
      sequence->engram_history.push_back(
          rig_.model().hasher()->compress(tokens_[static_cast<size_t>(p)], false));
    }
    return sequence;
  }

  // Positions [length, stop) in chunks; logits of all rows.
  Logits replay(cache::Sequence& sequence, int64_t hit, int64_t stop, int64_t chunk,
                bool bounded = false) {
    if (bounded) sequence.begin_prefill();
    Logits all;
    while (sequence.length < stop) {
      const int64_t next = std::min(stop, sequence.length + chunk);
      Segment segment;
      segment.sequence = &sequence;
      segment.tokens = slice(tokens_, sequence.length, next);
      segment.want = Want::kAll;
      segment.replay_until = hit;
      segment.bounded = bounded;
      segment.more_follows = next < stop;
      session_->forward().poison();
      const Logits some = session_->run(segment);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  Rig rig_;
  Tokens tokens_;
  std::unique_ptr<Session> session_;
};

TEST_P(Replay, LongEnoughItEndsInTheBitsOfTheColdRun) {
  const auto donor = session_->new_sequence();
  const Logits cold = session_->run(*donor, tokens_, Want::kAll);
  const std::vector<uint8_t> rows = compressed_bytes(*session_, *donor, end());
  const int64_t exact = exact_from(kStart, rig_.text().num_hidden_layers);
  ASSERT_LT(exact, kHit);
  Logits first;
  for (const int64_t chunk : {int64_t{1000}, int64_t{7}, int64_t{1}}) {
    if (rig_.oracle() && chunk == 1) continue;
    SCOPED_TRACE(chunk);
    const auto warm = adopt(*donor, kHit, kStart);
    const Logits got = replay(*warm, kHit, end(), chunk);
    EXPECT_TRUE(
        rig_.same(rig_.rows(got, exact - kStart, end() - kStart), rig_.rows(cold, exact, end())));
    // The cached rows stayed as they were, and the new ones are those of the cold run.
    EXPECT_EQ(compressed_bytes(*session_, *donor, end()), rows);
    EXPECT_EQ(compressed_bytes(*session_, *warm, end()), rows);
    // Where it is an approximation, it is the same one in every chunking.
    if (first.empty()) first = got;
    EXPECT_TRUE(rig_.same(got, first));
  }
  EXPECT_FALSE(rig_.same(rig_.rows(first, 0, exact - kStart), rig_.rows(cold, kStart, exact)))
      << "a replay that starts without windows cannot be exact from the start";
}

TEST_P(Replay, OfTheWholePrefixIsTheColdRun) {
  const auto donor = session_->new_sequence();
  const int64_t stop = 2 * rig_.window() + 9;
  const Logits cold = session_->run(*donor, slice(tokens_, 0, stop), Want::kAll);
  for (const int64_t hit : {int64_t{8}, rig_.window(), 2 * rig_.window()}) {
    const std::vector<uint8_t> rows = compressed_bytes(*session_, *donor, stop);
    for (const int64_t chunk : {int64_t{1000}, int64_t{5}}) {
      const auto warm = adopt(*donor, hit, 0);
      EXPECT_TRUE(rig_.same(replay(*warm, hit, stop, chunk), cold)) << hit << " in " << chunk;
      EXPECT_EQ(compressed_bytes(*session_, *warm, stop), rows);
    }
  }
}

// The rule of the server: r = W. An approximation, but one of its own making: it reads the cached
// rows, writes none of them, and reads no window key from before its start.
TEST_P(Replay, OfOneWindowKeepsTheCachedRows) {
  const auto donor = session_->new_sequence();
  const int64_t hit = 4 * rig_.window();
  const int64_t stop = hit + 11;
  session_->run(*donor, slice(tokens_, 0, stop), Want::kNone);
  const std::vector<uint8_t> rows = compressed_bytes(*session_, *donor, hit);
  Logits want;
  for (const int64_t chunk : {int64_t{1000}, int64_t{1}, int64_t{6}, rig_.window() + 1}) {
    SCOPED_TRACE(chunk);
    const auto warm = adopt(*donor, hit, hit - rig_.window());
    const Logits got = replay(*warm, hit, stop, chunk);
    if (want.empty()) want = got;
    EXPECT_TRUE(rig_.same(got, want));
    EXPECT_EQ(compressed_bytes(*session_, *warm, hit), rows);
    EXPECT_EQ(compressed_bytes(*session_, *donor, hit), rows);
  }
  // Replay reads what is in the blocks: with other rows there, other logits.
  const auto other = session_->new_sequence();
  session_->run(*other, random_tokens(rig_.model(), hit, 42), Want::kNone);
  const auto strange = adopt(*other, hit, hit - rig_.window());
  EXPECT_FALSE(rig_.same(replay(*strange, hit, stop, 1000), want));
}

// Bounded on both sides: the decoder half starts N - W, so the encoder half alone has to recover.
TEST_P(Replay, ThenBoundedPrefillEqualsTheColdBoundedPrefill) {
  const int64_t hit = 72;
  const int64_t stop = hit + 6;
  ASSERT_LE(exact_from(kStart, rig_.text().replay_seam()), stop - rig_.window());
  const auto donor = session_->new_sequence();
  const Logits cold = run_bounded(*session_, *donor, slice(tokens_, 0, stop), stop);
  const std::vector<uint8_t> rows = compressed_bytes(*session_, *donor, stop);
  const Logits next = run_chunks(*session_, *donor, slice(tokens_, stop, stop + 3), 1);
  for (const int64_t chunk : {int64_t{1000}, int64_t{13}}) {
    const auto warm = adopt(*donor, hit, kStart);
    EXPECT_TRUE(rig_.same(replay(*warm, hit, stop, chunk, true), cold)) << chunk;
    EXPECT_EQ(warm->decoder_window_start, stop - rig_.window());
    EXPECT_EQ(compressed_bytes(*session_, *warm, stop), rows);
    EXPECT_TRUE(rig_.same(run_chunks(*session_, *warm, slice(tokens_, stop, stop + 3), 1), next));
  }
}

// One step with replaying and ordinary rows.
TEST_P(Replay, SharesAStepWithOthers) {
  const auto donor = session_->new_sequence();
  const int64_t hit = 2 * rig_.window();
  const int64_t stop = hit + 4;
  const Logits cold = session_->run(*donor, slice(tokens_, 0, stop), Want::kAll);
  const std::vector<uint8_t> rows = compressed_bytes(*session_, *donor, stop);
  const auto warm = adopt(*donor, hit, 0);
  const auto fresh = session_->new_sequence();
  Segment segments[3];
  segments[0].sequence = fresh.get();
  segments[0].tokens = slice(tokens_, 0, 13);
  segments[1].sequence = warm.get();
  segments[1].tokens = slice(tokens_, 0, stop);
  segments[1].replay_until = hit;
  segments[2].sequence = donor.get();
  segments[2].tokens = slice(tokens_, stop, stop + 1);
  for (Segment& segment : segments) {
    segment.want = Want::kAll;
    session_->reserve(*segment.sequence, segment.sequence->length + std::ssize(segment.tokens));
  }
  session_->forward().run(segments);
  const Logits all = all_logits(*session_);
  EXPECT_TRUE(rig_.same(rig_.rows(all, 0, 13), rig_.rows(cold, 0, 13)));
  EXPECT_TRUE(rig_.same(rig_.rows(all, 13, 13 + stop), cold));
  EXPECT_EQ(compressed_bytes(*session_, *warm, stop), rows);
  const auto again = session_->new_sequence();
  const Logits longer = session_->run(*again, slice(tokens_, 0, stop + 1), Want::kLast);
  EXPECT_TRUE(rig_.same(rig_.rows(all, 13 + stop, 14 + stop), longer));
}

INSTANTIATE_TEST_SUITE_P(All, Replay, testing::ValuesIn(levels()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace cedra::equality

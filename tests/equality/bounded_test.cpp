// Bounded prefill (spec kv_cache.md 4b): the decoder half sees a prompt's last window only. Chunks,
// batches and turns must not change what it computes.
#include <gtest/gtest.h>

#include <algorithm>

#include "rig.h"

namespace cedra::equality {
namespace {

using Param = std::tuple<const char*, std::string>;

class Bounded : public testing::TestWithParam<Param> {
 protected:
  Bounded()
      : rig_(std::get<0>(GetParam()), std::get<1>(GetParam())),
        length_(2 * window() + (rig_.oracle() ? 5 : 33)),
        tokens_(random_tokens(rig_.model(), length_ + 8, 21)),
        prompt_(tokens_.begin(), tokens_.begin() + length_) {}

  int64_t window() const { return rig_.window(); }
  std::vector<int64_t> chunks() const {
    if (rig_.oracle()) return {17};
    return {1, 7, 16, 17, 40, window() - 1, window() + 1};
  }

  // Five decode steps.
  Logits decode(Session& session, cache::Sequence& sequence) {
    return run_chunks(session, sequence, slice(tokens_, length_, length_ + 5), 1);
  }

  Rig rig_;
  int64_t length_;
  Tokens tokens_;
  Tokens prompt_;
};

TEST_P(Bounded, ChunksOfAnySizeGiveTheSameBits) {
  const auto session = rig_.session({.sequences = 2});
  const auto whole = session->new_sequence();
  const Logits want = run_bounded(*session, *whole, prompt_, length_);
  ASSERT_EQ(static_cast<int64_t>(want.size()), window() * rig_.text().vocab_size);
  EXPECT_EQ(whole->decoder_window_start, length_ - window());
  const std::vector<uint8_t> rows = compressed_bytes(*session, *whole, length_);
  const Logits next = decode(*session, *whole);
  for (const int64_t chunk : chunks()) {
    SCOPED_TRACE(chunk);
    const auto sequence = session->new_sequence();
    soil(*sequence);
    session->forward().poison();
    EXPECT_TRUE(rig_.same(run_bounded(*session, *sequence, prompt_, chunk), want));
    EXPECT_EQ(sequence->decoder_window_start, length_ - window());
    EXPECT_EQ(compressed_bytes(*session, *sequence, length_), rows);
    EXPECT_TRUE(rig_.same(decode(*session, *sequence), next));
  }
}

// The encoder half and every compressed row are those of exact mode; what follows is not.
TEST_P(Bounded, OnlyTheDecoderHalfIsAnApproximation) {
  const auto session = rig_.session({.sequences = 2});
  const auto exact = session->new_sequence();
  const auto bounded = session->new_sequence();
  const Logits exact_last = session->run(*exact, prompt_, Want::kLast);
  const Logits last = run_bounded(*session, *bounded, prompt_, 23, Want::kLast);
  EXPECT_EQ(compressed_bytes(*session, *bounded, length_),
            compressed_bytes(*session, *exact, length_));
  const int64_t seam = rig_.text().replay_seam();
  ASSERT_GE(seam, 0);
  for (int64_t layer = 0; layer <= seam; ++layer) {
    EXPECT_EQ(window_bytes(*bounded, layer, length_ - window(), length_),
              window_bytes(*exact, layer, length_ - window(), length_))
        << "layer " << layer;
  }
  EXPECT_FALSE(rig_.same(last, exact_last)) << "the prompt is too short to test anything";
}

TEST_P(Bounded, UpToOneWindowItIsExact) {
  const auto session = rig_.session({.sequences = 2});
  for (const int64_t n : {int64_t{1}, int64_t{2}, window() - 1, window()}) {
    SCOPED_TRACE(n);
    const auto exact = session->new_sequence();
    const Logits want = session->run(*exact, slice(tokens_, 0, n), Want::kAll);
    const Logits next = run_chunks(*session, *exact, slice(tokens_, n, n + 3), 1);
    for (const int64_t chunk : {n, int64_t{5}}) {
      const auto sequence = session->new_sequence();
      soil(*sequence);
      EXPECT_TRUE(rig_.same(run_bounded(*session, *sequence, slice(tokens_, 0, n), chunk), want));
      EXPECT_EQ(sequence->decoder_window_start, 0);
      EXPECT_TRUE(rig_.same(run_chunks(*session, *sequence, slice(tokens_, n, n + 3), 1), next));
    }
  }
}

// A second turn: a bounded prefill on a sequence that has one behind it, and some decoded tokens.
TEST_P(Bounded, SecondTurnInChunks) {
  const auto session = rig_.session({.sequences = 2});
  for (const int64_t more : {window() / 2, window(), window() + 13}) {
    SCOPED_TRACE(more);
    const Tokens turn = random_tokens(rig_.model(), more, 22);
    Logits want;
    for (const int64_t chunk : {more, int64_t{9}, int64_t{1}}) {
      if (rig_.oracle() && chunk == 1) continue;
      const auto sequence = session->new_sequence();
      soil(*sequence);
      run_bounded(*session, *sequence, slice(prompt_, 0, window() + 6), 50, Want::kNone);
      run_chunks(*session, *sequence, slice(tokens_, length_, length_ + 3), 1);
      Logits got = run_bounded(*session, *sequence, turn, chunk);
      const Logits next = run_chunks(*session, *sequence, slice(tokens_, 0, 2), 1);
      got.insert(got.end(), next.begin(), next.end());
      if (chunk == more) want = got;
      EXPECT_TRUE(rig_.same(got, want)) << "chunk " << chunk;
      const int64_t start = more > window() ? window() + 9 + more - window() : 6;
      EXPECT_EQ(sequence->decoder_window_start, start);
    }
    // Nothing is dropped of a turn that fits a window: it is an exact continuation.
    if (more > window()) continue;
    const auto sequence = session->new_sequence();
    run_bounded(*session, *sequence, slice(prompt_, 0, window() + 6), 50, Want::kNone);
    run_chunks(*session, *sequence, slice(tokens_, length_, length_ + 3), 1);
    Logits exact = session->run(*sequence, turn, Want::kAll);
    const Logits next = run_chunks(*session, *sequence, slice(tokens_, 0, 2), 1);
    exact.insert(exact.end(), next.begin(), next.end());
    EXPECT_TRUE(rig_.same(exact, want)) << "not the exact continuation";
  }
}

// Bounded chunks, exact chunks and decode rows in the same steps. The step holds fewer rows than
// the prompts that end together keep, so the decoder half runs in groups.
TEST_P(Bounded, MixedWithEverythingElseInGroups) {
  constexpr int kPrompts = 4;
  const auto solo = rig_.session({.sequences = 2});
  std::vector<Tokens> prompts;
  std::vector<Logits> want(kPrompts);
  std::vector<Logits> want_next(kPrompts);
  for (int i = 0; i < kPrompts; ++i) {
    const int64_t n = i == 3 ? window() / 2 : window() + 3 + 5 * i;  // one keeps less than a window
    prompts.push_back(random_tokens(rig_.model(), n, static_cast<uint32_t>(30 + i)));
    const auto sequence = solo->new_sequence();
    want[i] = run_bounded(*solo, *sequence, prompts[i], n, Want::kLast);
    want_next[i] = run_chunks(*solo, *sequence, slice(tokens_, 0, 2), 1);
  }
  const Tokens chat(tokens_.begin(), tokens_.begin() + 20);
  const Logits chat_want = rig_.one_shot(chat);

  for (const int64_t max_rows : {window() + 1, 2 * window() + 2, 8 * window()}) {
    SCOPED_TRACE(max_rows);
    const auto session =
        rig_.session({.threads = 2, .max_rows = max_rows, .sequences = kPrompts + 1});
    std::vector<Session::SequencePtr> sequences;
    for (int i = 0; i < kPrompts; ++i) {
      sequences.push_back(session->new_sequence());
      soil(*sequences.back());
      sequences.back()->begin_prefill();
      // All but the last two tokens, alone.
      for (int64_t at = 0; at < std::ssize(prompts[i]) - 2; at += 10) {
        Segment segment;
        segment.sequence = sequences.back().get();
        segment.tokens =
            slice(prompts[i], at, std::min<int64_t>(at + 10, std::ssize(prompts[i]) - 2));
        segment.bounded = true;
        segment.more_follows = true;
        session->run(segment);
        EXPECT_EQ(session->forward().wanted_rows(), 0);
      }
    }
    const auto other = session->new_sequence();
    Logits other_got = session->run(*other, slice(chat, 0, 10), Want::kAll);

    // Two steps with one token of each: the first while more follows, the second the last.
    std::vector<Logits> got(kPrompts);
    for (const bool last : {false, true}) {
      std::vector<Segment> segments;
      for (int i = 0; i < kPrompts; ++i) {
        Segment segment;
        segment.sequence = sequences[i].get();
        segment.tokens = slice(prompts[i], sequences[i]->length, sequences[i]->length + 1);
        segment.bounded = true;
        segment.more_follows = !last;
        session->reserve(*sequences[i], sequences[i]->length + 1);
        segments.push_back(segment);
        if (i != 1) continue;
        Segment decode;  // in the middle
        decode.sequence = other.get();
        decode.tokens = slice(chat, other->length, other->length + 1 + last);
        decode.want = Want::kAll;
        session->reserve(*other, other->length + 2);
        segments.push_back(decode);
      }
      session->forward().poison();
      session->forward().run(segments);
      const Logits all = all_logits(*session);
      const int64_t rows = std::ssize(all) / rig_.text().vocab_size;
      ASSERT_EQ(rows, last ? kPrompts + 2 : 1);
      const int64_t first = last ? 2 : 0;
      const Logits decoded = rig_.rows(all, first, first + 1 + last);
      other_got.insert(other_got.end(), decoded.begin(), decoded.end());
      if (!last) continue;
      for (int i = 0; i < kPrompts; ++i) {
        const int64_t row = i < 2 ? i : i + 2;
        got[i] = rig_.rows(all, row, row + 1);
      }
    }
    EXPECT_TRUE(rig_.same(other_got, rig_.rows(chat_want, 0, 13)));
    for (int i = 0; i < kPrompts; ++i) {
      EXPECT_TRUE(rig_.same(got[i], want[i])) << "prompt " << i;
      EXPECT_TRUE(
          rig_.same(run_chunks(*session, *sequences[i], slice(tokens_, 0, 2), 1), want_next[i]))
          << "prompt " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bounded,
                         testing::Combine(testing::Values("tiny"), testing::ValuesIn(levels())),
                         [](const auto& param) {
                           return std::string("tiny_") + std::get<1>(param.param);
                         });
INSTANTIATE_TEST_SUITE_P(
    Deep, Bounded, testing::Combine(testing::Values("deep"), testing::Values(levels().back())),
    [](const auto& param) { return std::string("deep_") + std::get<1>(param.param); });

}  // namespace
}  // namespace cedra::equality

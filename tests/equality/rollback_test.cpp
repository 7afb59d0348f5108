// Rows that are taken back leave no trace: wrong guesses are run after right tokens, at every phase
// of window and compression group, and everything goes on with the bits of a run without them.
#include <gtest/gtest.h>

#include <algorithm>

#include "rig.h"

namespace cedra::equality {
namespace {

using model::DraftCommit;
using model::DraftRequest;
using model::DraftState;

enum class Guesses { kAllRight, kFirstWrong, kLastWrong, kRandom };

class Rollback : public testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  Rollback()
      : rig_(std::get<0>(GetParam()), std::get<1>(GetParam())),
        length_(rig_.oracle() ? rig_.window() + 14 : 2 * rig_.window() + 27),
        truth_(random_tokens(rig_.model(), length_ + 8, 41)) {}

  // How many of `width` guesses are right.
  static int64_t right(Guesses guesses, int64_t width, std::mt19937& random) {
    switch (guesses) {
      case Guesses::kAllRight:
        return width;
      case Guesses::kFirstWrong:
        return 0;
      case Guesses::kLastWrong:
        return width - 1;
      case Guesses::kRandom:
        break;
    }
    return static_cast<int64_t>(random() % static_cast<uint32_t>(width + 1));
  }

  // The true token of position n and `width` guesses, the first `good` of them right.
  Tokens block(int64_t n, int64_t width, int64_t good) const {
    Tokens tokens(truth_.begin() + n, truth_.begin() + n + 1 + width);
    const int32_t vocab = static_cast<int32_t>(rig_.text().vocab_size);
    for (int64_t i = good + 1; i <= width; ++i) {
      int32_t& token = tokens[static_cast<size_t>(i)];
      token = (token + static_cast<int32_t>(7 * i)) % vocab;
    }
    return tokens;
  }

  // Runs one block and takes back what was wrong; the logits of the right rows.
  Logits verify(Session& session, cache::Sequence& sequence, DraftState* state,
                const Tokens& tokens, int64_t good) {
    Segment segment;
    segment.sequence = &sequence;
    segment.tokens = tokens;
    segment.want = Want::kAll;
    segment.may_roll_back = static_cast<int64_t>(tokens.size()) - 1;
    const int64_t begin = sequence.length;
    const Logits logits = session.run(segment);
    if (state != nullptr) {
      model::Taps taps = session.forward().taps(0);
      taps.count = 1 + good;
      const DraftCommit commit{state, taps};
      session.drafter()->commit({&commit, 1});
    }
    sequence.rollback(begin + 1 + good);
    return rig_.rows(logits, 0, 1 + good);
  }

  // Everything that later rows can see.
  void expect_same_state(Session& session, cache::Sequence& got, cache::Sequence& want) {
    ASSERT_EQ(got.length, want.length);
    for (int64_t layer = 0; layer < rig_.text().num_hidden_layers; ++layer) {
      const int64_t begin = std::max<int64_t>(0, got.length - rig_.window());
      ASSERT_EQ(window_bytes(got, layer, begin, got.length),
                window_bytes(want, layer, begin, got.length))
          << "layer " << layer;
    }
    EXPECT_EQ(compressed_bytes(session, got, got.length),
              compressed_bytes(session, want, got.length));
    const auto tail = [&](const cache::Sequence& sequence) {
      const size_t count =
          std::min(sequence.engram_history.size(), static_cast<size_t>(sequence.limits().lookback));
      return Tokens(sequence.engram_history.end() - static_cast<std::ptrdiff_t>(count),
                    sequence.engram_history.end());
    };
    EXPECT_EQ(tail(got), tail(want));
  }

  Rig rig_;
  int64_t length_;
  Tokens truth_;
};

TEST_P(Rollback, RejectedRowsLeaveNoTraceAtAnyWidthAndPhase) {
  const auto session = rig_.session({.sequences = 2});
  const Logits solo = rig_.one_shot(Tokens(truth_.begin(), truth_.begin() + length_));
  const auto plain = session->new_sequence();
  session->run(*plain, slice(truth_, 0, length_), Want::kNone);
  const bool drafts = session->drafter() != nullptr;
  DraftState plain_state(rig_.text());
  std::vector<float> want_draft;
  const auto propose = [&](const DraftState& state) {
    const DraftRequest request{&state, truth_[0], 5};
    session->drafter()->propose({&request, 1});
    const float* logits = session->drafter()->draft(0).logits;
    return std::vector<float>(logits, logits + 5 * rig_.text().vocab_size);
  };
  if (drafts) {
    const DraftCommit commit{&plain_state, session->forward().taps(0)};
    session->drafter()->commit({&commit, 1});
    want_draft = propose(plain_state);
  }
  std::mt19937 random(5);
  std::vector<int64_t> widths = {1, 2, 3, 4, 5, 6, 7};
  if (rig_.oracle()) widths = {3};
  for (const int64_t width : widths) {
    for (const Guesses guesses :
         {Guesses::kFirstWrong, Guesses::kLastWrong, Guesses::kAllRight, Guesses::kRandom}) {
      SCOPED_TRACE(testing::Message()
                   << "width " << width << ", guesses " << static_cast<int>(guesses));
      const auto sequence = session->new_sequence();
      soil(*sequence);
      session->forward().poison();
      session->reserve(*sequence, length_ + 8);
      DraftState state(rig_.text());
      // Wider blocks begin at other phases, so that long steps meet all of them as well.
      const int64_t start = width % 3;
      if (start > 0) {
        session->run(*sequence, slice(truth_, 0, start), Want::kNone);
        if (drafts) {
          const DraftCommit commit{&state, session->forward().taps(0)};
          session->drafter()->commit({&commit, 1});
        }
      }
      while (sequence->length < length_) {
        const int64_t n = sequence->length;
        const int64_t good = std::min(right(guesses, width, random), length_ - n - 1);
        const Logits got =
            verify(*session, *sequence, drafts ? &state : nullptr, block(n, width, good), good);
        ASSERT_TRUE(rig_.same(got, rig_.rows(solo, n, n + 1 + good))) << "position " << n;
      }
      expect_same_state(*session, *sequence, *plain);
      if (drafts) {
        EXPECT_EQ(propose(state), want_draft);
      }
    }
  }
}

// Blocks to verify share a step with prompts, also with one whose bounded prefill ends there.
class MixedRollback : public Rollback {};

TEST_P(MixedRollback, WithPromptsOfEveryKind) {
  const auto session = rig_.session({.sequences = 3});
  const int64_t total = rig_.window() + 11;
  const Logits solo = rig_.one_shot(Tokens(truth_.begin(), truth_.begin() + length_));
  Logits bounded_want;
  {
    const auto alone = session->new_sequence();
    bounded_want = run_bounded(*session, *alone, slice(truth_, 0, total), total, Want::kLast);
  }
  const Session::SequencePtr sequences[] = {session->new_sequence(), session->new_sequence(),
                                            session->new_sequence()};
  for (const auto& sequence : sequences) session->reserve(*sequence, length_ + 8);
  const int64_t n = rig_.window() + 3;
  session->run(*sequences[0], slice(truth_, 0, n), Want::kNone);
  sequences[1]->begin_prefill();
  Segment first;
  first.sequence = sequences[1].get();
  first.tokens = slice(truth_, 0, total - 4);
  first.bounded = first.more_follows = true;
  first.want = Want::kNone;
  session->run(first);

  for (int64_t good = 0; good <= 3; ++good) {
    SCOPED_TRACE(good);
    const Tokens tokens = block(sequences[0]->length, 3, good);
    const int64_t begin = sequences[0]->length;
    std::vector<Segment> segments(3);
    segments[0].sequence = sequences[0].get();
    segments[0].tokens = tokens;
    segments[0].want = Want::kAll;
    segments[0].may_roll_back = 3;
    segments[1].sequence = sequences[1].get();
    segments[1].tokens = slice(truth_, total - 4 + good, total - 3 + good);
    segments[1].bounded = true;
    segments[1].more_follows = good < 3;
    segments[1].want = good < 3 ? Want::kNone : Want::kLast;
    segments[2].sequence = sequences[2].get();
    segments[2].tokens = slice(truth_, 2 * good, 2 * good + 2);
    segments[2].want = Want::kLast;
    session->forward().poison();
    session->forward().run(segments);
    const Logits got = all_logits(*session);
    sequences[0]->rollback(begin + 1 + good);
    EXPECT_TRUE(rig_.same(rig_.rows(got, 0, 1 + good), rig_.rows(solo, begin, begin + 1 + good)));
    if (good == 3) {
      EXPECT_TRUE(rig_.same(rig_.rows(got, 4, 5), bounded_want));
    }
    const int64_t last = good == 3 ? 5 : 4;
    EXPECT_TRUE(
        rig_.same(rig_.rows(got, last, last + 1), rig_.rows(solo, 2 * good + 1, 2 * good + 2)));
  }
}

std::string name(const testing::TestParamInfo<std::tuple<const char*, std::string>>& info) {
  std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
  std::ranges::replace(name, '/', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    All, Rollback,
    testing::Combine(testing::Values("tiny", "deep", "shapes/odd_window", "shapes/wide_block",
                                     "shapes/narrow_block", "shapes/ratio_three",
                                     "shapes/ratio_four", "shapes/window_only", "shapes/plain"),
                     testing::ValuesIn(fast_levels())),
    name);
INSTANTIATE_TEST_SUITE_P(Oracle, Rollback,
                         testing::Combine(testing::Values("tiny"), testing::Values("oracle")),
                         name);
// Configs with bounded prefill.
INSTANTIATE_TEST_SUITE_P(All, MixedRollback,
                         testing::Combine(testing::Values("tiny", "deep", "shapes/odd_window",
                                                          "shapes/wide_block", "shapes/plain"),
                                          testing::ValuesIn(levels())),
                         name);

}  // namespace
}  // namespace cedra::equality

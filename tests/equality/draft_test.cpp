// Drafts (spec dspark.md): what a proposal says depends on the committed tokens, the anchor and the
// width alone. Their values are compared with the reference's in golden_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rig.h"

namespace cedra::equality {
namespace {

using model::DraftCommit;
using model::DraftRequest;
using model::DraftState;

struct Proposal {
  Tokens tokens;
  Logits logits;
  std::vector<float> confidence;
};

Proposal read(Session& session, int64_t request) {
  const model::Draft draft = session.drafter()->draft(request);
  const size_t vocab = static_cast<size_t>(session.model().text().vocab_size);
  return {{draft.tokens.begin(), draft.tokens.end()},
          {draft.logits, draft.logits + draft.tokens.size() * vocab},
          {draft.confidence.begin(), draft.confidence.end()}};
}

Proposal propose(Session& session, const DraftState& state, int32_t anchor, int64_t width,
                 model::DraftChooser* chooser = nullptr) {
  const DraftRequest request{&state, anchor, width};
  session.drafter()->propose({&request, 1}, chooser);
  return read(session, 0);
}

void commit(Session& session, DraftState& state, const model::Taps& taps) {
  const DraftCommit one{&state, taps};
  session.drafter()->commit({&one, 1});
}

// Runs tokens in steps of `chunk` rows and commits the taps of each.
void follow(Session& session, cache::Sequence& sequence, DraftState& state,
            std::span<const int32_t> tokens, int64_t chunk) {
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk)) {
    const size_t count = std::min(tokens.size() - at, static_cast<size_t>(chunk));
    session.run(sequence, tokens.subspan(at, count), Want::kNone);
    commit(session, state, session.forward().taps(0));
  }
}

DraftState soiled(const TextConfig& text) {
  DraftState state(text);
  std::ranges::fill(state.bytes(), uint8_t{0xFF});
  return state;
}

using Param = std::tuple<const char*, std::string>;

class Drafts : public testing::TestWithParam<Param> {
 protected:
  Drafts()
      : rig_(std::get<0>(GetParam()), std::get<1>(GetParam())),
        length_(rig_.window() + (rig_.oracle() ? 3 : 21)),
        tokens_(random_tokens(rig_.model(), length_ + 8, 71)) {}

  int64_t window() const { return rig_.window(); }

  testing::AssertionResult same(const Proposal& got, const Proposal& want) const {
    if (got.tokens != want.tokens) {
      return testing::AssertionFailure() << "tokens " << testing::PrintToString(got.tokens)
                                         << ", want " << testing::PrintToString(want.tokens);
    }
    if (got.confidence != want.confidence) {
      return testing::AssertionFailure() << "confidence " << testing::PrintToString(got.confidence)
                                         << ", want " << testing::PrintToString(want.confidence);
    }
    return rig_.same(got.logits, want.logits);
  }

  Rig rig_;
  int64_t length_;
  Tokens tokens_;
};

TEST_P(Drafts, CommitsOfAnySizeGiveTheSameBits) {
  const auto session = rig_.session({.sequences = 1});
  for (const int64_t n : {int64_t{1}, int64_t{4}, window(), length_}) {
    SCOPED_TRACE(n);
    const std::span<const int32_t> prompt = slice(tokens_, 0, n);
    std::vector<Proposal> want;
    {
      const auto sequence = session->new_sequence();
      DraftState state(rig_.text());
      follow(*session, *sequence, state, prompt, n);
      ASSERT_EQ(state.committed, n);
      for (int64_t width = 1; width <= 7; ++width) {
        want.push_back(propose(*session, state, tokens_[0], width));
        ASSERT_EQ(static_cast<int64_t>(want.back().tokens.size()), width);
      }
    }
    std::vector<int64_t> chunks = {1, 7, window() - 1, window() + 1};
    if (rig_.oracle()) chunks = {7};
    for (const int64_t chunk : chunks) {
      SCOPED_TRACE(chunk);
      const auto sequence = session->new_sequence();
      soil(*sequence);
      DraftState state = soiled(rig_.text());
      session->forward().poison();
      session->drafter()->poison();
      follow(*session, *sequence, state, prompt, std::max<int64_t>(chunk, 1));
      for (int64_t width = 7; width >= 1; --width) {
        session->drafter()->poison();
        EXPECT_TRUE(
            same(propose(*session, state, tokens_[0], width), want[static_cast<size_t>(width - 1)]))
            << "width " << width;
      }
    }
  }
}

TEST_P(Drafts, ManyRequestsAtOnceAreAsEachAlone) {
  const auto session = rig_.session({.sequences = 3});
  const int64_t lengths[] = {2, length_, window()};
  const int64_t widths[] = {7, 1, 4};
  std::vector<Proposal> want;
  for (size_t i = 0; i < 3; ++i) {
    const auto sequence = session->new_sequence();
    DraftState state(rig_.text());
    follow(*session, *sequence, state, slice(tokens_, 0, lengths[i]), length_);
    want.push_back(propose(*session, state, tokens_[i], widths[i]));
  }
  session->forward().poison();
  session->drafter()->poison();
  // One step, one commit, one proposal; more rows than the drafter takes at once.
  const Session::SequencePtr sequences[] = {session->new_sequence(), session->new_sequence(),
                                            session->new_sequence()};
  DraftState states[] = {soiled(rig_.text()), soiled(rig_.text()), soiled(rig_.text())};
  Segment segments[3];
  for (size_t i = 0; i < 3; ++i) {
    session->reserve(*sequences[i], lengths[i]);
    segments[i].sequence = sequences[i].get();
    segments[i].tokens = slice(tokens_, 0, lengths[i]);
  }
  session->forward().run(segments);
  std::vector<DraftCommit> commits;
  std::vector<DraftRequest> requests;
  for (size_t i = 0; i < 3; ++i) {
    commits.push_back({&states[i], session->forward().taps(static_cast<int64_t>(i))});
    requests.push_back({&states[i], tokens_[i], widths[i]});
  }
  session->drafter()->commit(commits);
  session->drafter()->propose(requests);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same(read(*session, static_cast<int64_t>(i)), want[i])) << "request " << i;
  }
}

TEST_P(Drafts, ThreadsDoNotMatter) {
  std::vector<Proposal> all;
  for (const int threads : {1, 2}) {
    const auto session = rig_.session({.threads = threads});
    const auto sequence = session->new_sequence();
    DraftState state(rig_.text());
    follow(*session, *sequence, state, slice(tokens_, 0, length_), 19);
    for (const int64_t width : {1, 2, 5}) {
      all.push_back(propose(*session, state, tokens_[3], width));
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(all[i + 3], all[i]));
}

// Verified rows that were rejected: their taps are not committed, and that is all.
TEST_P(Drafts, RowsThatAreNotCommittedLeaveNoTrace) {
  const auto session = rig_.session({.sequences = 2});
  const auto plain = session->new_sequence();
  DraftState want_state(rig_.text());
  follow(*session, *plain, want_state, slice(tokens_, 0, length_), length_);
  const Proposal want = propose(*session, want_state, tokens_[1], 5);

  const auto sequence = session->new_sequence();
  DraftState state(rig_.text());
  follow(*session, *sequence, state, slice(tokens_, 0, length_ - 2), length_);
  propose(*session, state, tokens_[5], 7);
  session->run(*sequence, slice(tokens_, length_ - 2, length_ + 3), Want::kAll);
  model::Taps taps = session->forward().taps(0);
  ASSERT_EQ(taps.count, 5);
  taps.count = 2;
  commit(*session, state, taps);
  EXPECT_EQ(state.committed, length_);
  EXPECT_TRUE(same(propose(*session, state, tokens_[1], 5), want));
}

// Keeping the windows of a position and coming back to them.
TEST_P(Drafts, WindowsCanBeKept) {
  const auto session = rig_.session();
  const auto sequence = session->new_sequence();
  DraftState state(rig_.text());
  follow(*session, *sequence, state, slice(tokens_, 0, length_), length_);
  const Proposal want = propose(*session, state, tokens_[2], 5);
  const std::vector<uint8_t> kept(state.bytes().begin(), state.bytes().end());
  EXPECT_EQ(static_cast<int64_t>(kept.size()), DraftState::slot_bytes(rig_.text()));
  follow(*session, *sequence, state, slice(tokens_, length_, length_ + 5), 1);
  EXPECT_FALSE(same(propose(*session, state, tokens_[2], 5), want));

  DraftState other = soiled(rig_.text());
  std::ranges::copy(kept, other.bytes().begin());
  other.committed = length_;
  EXPECT_TRUE(same(propose(*session, other, tokens_[2], 5), want));
}

class Fixed : public model::DraftChooser {
 public:
  explicit Fixed(Tokens tokens) : tokens_(std::move(tokens)) {}
  int32_t choose(int64_t, int64_t slot, std::span<const float>) override {
    return tokens_[static_cast<size_t>(slot)];
  }

 private:
  Tokens tokens_;
};

// The chosen token changes the slots after it and none before.
TEST_P(Drafts, ChosenTokenDecidesAboutTheNextSlot) {
  const auto session = rig_.session();
  const auto sequence = session->new_sequence();
  DraftState state(rig_.text());
  follow(*session, *sequence, state, slice(tokens_, 0, 9), 9);
  const Proposal greedy = propose(*session, state, tokens_[2], 4);
  Fixed repeat(greedy.tokens);
  EXPECT_TRUE(same(propose(*session, state, tokens_[2], 4, &repeat), greedy));
  Tokens changed = greedy.tokens;
  changed[1] = changed[1] == 17 ? 18 : 17;
  Fixed other(changed);
  const Proposal got = propose(*session, state, tokens_[2], 4, &other);
  EXPECT_EQ(got.tokens, changed);
  EXPECT_TRUE(rig_.same(rig_.rows(got.logits, 0, 2), rig_.rows(greedy.logits, 0, 2)));
  EXPECT_FALSE(rig_.same(rig_.rows(got.logits, 2, 3), rig_.rows(greedy.logits, 2, 3)));
  EXPECT_TRUE(rig_.same(rig_.rows(got.logits, 3, 4), rig_.rows(greedy.logits, 3, 4)));
  EXPECT_EQ(got.confidence[1], greedy.confidence[1]);
  EXPECT_NE(got.confidence[2], greedy.confidence[2]);
  EXPECT_EQ(got.confidence[3], greedy.confidence[3]);
}

// ---- bounded prefill: taps of the rows that it keeps

std::vector<float> values(const bf16* from, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(from[i]);
  return out;
}

TEST_P(Drafts, BoundedPrefillKeepsTheTapsOfTheLastWindow) {
  const TextConfig& text = rig_.text();
  const int64_t dim = text.hidden_size;
  const std::vector<int64_t>& layers = text.dspark_target_layer_ids;
  const int64_t width = static_cast<int64_t>(layers.size()) * dim;
  const int64_t seam = text.replay_seam();
  ASSERT_GE(seam, 0);
  const auto session = rig_.session({.sequences = 2});
  const auto exact = session->new_sequence();
  session->run(*exact, slice(tokens_, 0, length_), Want::kNone);
  const std::vector<float> want =
      values(session->forward().taps(0).rows + (length_ - window()) * width, window() * width);

  std::vector<Proposal> proposals;
  std::vector<int64_t> chunks = {length_, 1, 6, window() - 1, window() + 1};
  if (rig_.oracle()) chunks = {length_, 6};
  for (const int64_t chunk : chunks) {
    SCOPED_TRACE(chunk);
    const auto sequence = session->new_sequence();
    soil(*sequence);
    session->forward().poison();
    run_bounded(*session, *sequence, slice(tokens_, 0, length_), std::max<int64_t>(chunk, 1),
                Want::kLast);
    const model::Taps taps = session->forward().taps(0);
    ASSERT_EQ(taps.position, length_ - window());
    ASSERT_EQ(taps.count, window());
    // Inputs up to the seam are those of exact mode.
    const std::vector<float> got = values(taps.rows, taps.count * width);
    for (int64_t row = 0; row < window(); ++row) {
      for (size_t k = 0; k < layers.size(); ++k) {
        if (layers[k] > seam) continue;
        const auto at = static_cast<std::ptrdiff_t>(row * width + static_cast<int64_t>(k) * dim);
        EXPECT_TRUE(std::equal(got.begin() + at, got.begin() + at + dim, want.begin() + at))
            << "row " << row << ", layer " << layers[k];
      }
    }
    DraftState state = soiled(text);
    commit(*session, state, taps);
    EXPECT_EQ(state.start, length_ - window());
    proposals.push_back(propose(*session, state, tokens_[2], 5));
    follow(*session, *sequence, state, slice(tokens_, length_, length_ + 3), 1);
    proposals.push_back(propose(*session, state, tokens_[2], 5));
  }
  for (size_t i = 2; i < proposals.size(); ++i) {
    EXPECT_TRUE(same(proposals[i], proposals[i % 2])) << i;
  }
}

// A step that ends two bounded prefills, goes on with a third, and decodes.
TEST_P(Drafts, EverySegmentHasItsOwnTaps) {
  const TextConfig& text = rig_.text();
  const auto session = rig_.session({.max_rows = length_ + 4, .sequences = 4});
  const auto alone = [&](int64_t first, int64_t count, bool bounded) {
    const auto sequence = session->new_sequence();
    DraftState state(text);
    if (bounded) {
      run_bounded(*session, *sequence, slice(tokens_, first, first + count), count, Want::kLast);
      commit(*session, state, session->forward().taps(0));
    } else {
      follow(*session, *sequence, state, slice(tokens_, first, first + count), count);
    }
    return propose(*session, state, tokens_[0], 5);
  };
  const Proposal want[] = {
      alone(0, length_, true), alone(1, length_, true), {}, alone(2, 6, false)};

  const Session::SequencePtr sequences[] = {session->new_sequence(), session->new_sequence(),
                                            session->new_sequence(), session->new_sequence()};
  DraftState states[] = {soiled(text), soiled(text), soiled(text), soiled(text)};
  for (const auto& sequence : sequences) session->reserve(*sequence, length_);
  follow(*session, *sequences[3], states[3], slice(tokens_, 2, 7), 5);
  Segment segments[4];
  for (size_t i = 0; i < 3; ++i) {
    sequences[i]->begin_prefill();
    segments[i].sequence = sequences[i].get();
    segments[i].bounded = true;
    segments[i].more_follows = true;
    const int64_t first = static_cast<int64_t>(i);
    segments[i].tokens = slice(tokens_, first, first + length_ - 1);
    session->forward().run({&segments[i], 1});
    EXPECT_EQ(session->forward().taps(0).count, 0);
    segments[i].tokens = slice(tokens_, first + length_ - 1, first + length_);
  }
  segments[0].more_follows = false;
  segments[1].more_follows = false;
  segments[3].sequence = sequences[3].get();
  segments[3].tokens = slice(tokens_, 7, 8);
  session->forward().run(segments);
  EXPECT_EQ(session->forward().taps(2).count, 0);
  std::vector<DraftCommit> commits;
  for (size_t i = 0; i < 4; ++i) {
    commits.push_back({&states[i], session->forward().taps(static_cast<int64_t>(i))});
  }
  session->drafter()->commit(commits);
  for (const size_t i : {0, 1, 3}) {
    EXPECT_TRUE(same(propose(*session, states[i], tokens_[0], 5), want[i])) << "segment " << i;
  }
}

// Fed the oracle's taps, a fast level drafts what the oracle drafts.
TEST_P(Drafts, FastLevelsFollowTheOracle) {
  if (rig_.oracle()) return;
  const Rig exact(std::get<0>(GetParam()), "oracle");
  const auto slow = exact.session();
  const auto fast = rig_.session();
  const auto sequence = slow->new_sequence();
  slow->run(*sequence, slice(tokens_, 0, 12), Want::kNone);
  const model::Taps taps = slow->forward().taps(0);
  DraftState slow_state(rig_.text());
  DraftState fast_state(rig_.text());
  commit(*slow, slow_state, taps);
  commit(*fast, fast_state, taps);
  std::vector<double> differences;
  const size_t vocab = static_cast<size_t>(rig_.text().vocab_size);
  for (size_t anchor = 0; anchor < 4; ++anchor) {
    const Proposal want = propose(*slow, slow_state, tokens_[anchor], 5);
    Fixed same_tokens(want.tokens);
    const Proposal got = propose(*fast, fast_state, tokens_[anchor], 5, &same_tokens);
    for (size_t row = 0; row < 5; ++row) {
      double difference = 0;
      double size = 0;
      for (size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
        difference += std::pow(got.logits[i] - want.logits[i], 2);
        size += std::pow(want.logits[i], 2);
      }
      differences.push_back(std::sqrt(difference / size));
    }
  }
  std::ranges::sort(differences);
  EXPECT_LE(differences[differences.size() / 2], 1e-5);
  EXPECT_LE(differences.back(), 5e-2);  // one rounding may tip inside a stage
}

INSTANTIATE_TEST_SUITE_P(All, Drafts,
                         testing::Combine(testing::Values("tiny", "deep", "shapes/odd_window",
                                                          "shapes/wide_block"),
                                          testing::ValuesIn(levels())),
                         [](const auto& param) {
                           std::string name = std::string(std::get<0>(param.param)) + "_" +
                                              std::get<1>(param.param);
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST(DraftStages, ACheckpointWithoutThemSaysSo) {
  const model::Model& model = model_of("shapes/plain");
  ASSERT_EQ(model.draft(), nullptr);
  Team team({.threads = 1});
  const kernels::Ops& ops = *kernels::find_ops("");
  const auto drafter = model::Drafter::create(model, ops, team, {});
  ASSERT_FALSE(drafter.has_value());
  EXPECT_EQ(drafter.error().code, Code::kUnsupported);
  EXPECT_NE(drafter.error().message.find("no draft stages"), std::string::npos);
  const Rig rig("shapes/plain", "oracle");
  const auto session = rig.session();
  EXPECT_EQ(session->drafter(), nullptr);
  const auto forward =
      model::Forward::create(model, ops, team, {.draft_taps = true}, session->pool());
  ASSERT_FALSE(forward.has_value());
  EXPECT_EQ(forward.error().code, Code::kUnsupported);
}

TEST(DraftStages, LimitsNeedARowPerRequest) {
  Team team({.threads = 1});
  const auto drafter = model::Drafter::create(model_of("tiny"), *kernels::find_ops(""), team,
                                              {.max_requests = 3, .max_rows = 2});
  ASSERT_FALSE(drafter.has_value());
  EXPECT_EQ(drafter.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace cedra::equality

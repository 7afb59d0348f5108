// Ragged batches: sequences of any lengths share steps, in any order, in blocks that others used
// before, and each gets the bits of its solo run.
#include <gtest/gtest.h>

#include <algorithm>

#include "rig.h"

namespace cedra::equality {
namespace {

using Param = std::tuple<const char*, std::string, int>;

// A request: its tokens, how far it is, and what a solo run says.
struct Request {
  Tokens tokens;
  Logits solo;
  Session::SequencePtr sequence;
  int64_t done = 0;
};

class Batch : public testing::TestWithParam<Param> {
 protected:
  Batch() : rig_(std::get<0>(GetParam()), std::get<1>(GetParam())) {}

  // Request `number` of this folder and level; the solo logits are computed once.
  Request request(int number) {
    static std::map<std::tuple<const char*, std::string, int>, Logits> known;
    Request made;
    const int64_t longest = rig_.oracle() ? 28 : 2 * rig_.window() + 30;
    std::mt19937 random(static_cast<uint32_t>(100 + number));
    const int64_t length = 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(longest));
    made.tokens = random_tokens(rig_.model(), length, static_cast<uint32_t>(200 + number));
    Logits& solo = known[{std::get<0>(GetParam()), std::get<1>(GetParam()), number}];
    if (solo.empty()) solo = rig_.one_shot(made.tokens);
    made.solo = solo;
    return made;
  }

  // One step with the next tokens of some requests; checks what it was asked for.
  void step(Session& session, std::vector<Request*> chosen, std::mt19937& random) {
    std::ranges::shuffle(chosen, random);
    std::vector<Segment> segments;
    Logits want;
    for (Request* one : chosen) {
      const int64_t left = static_cast<int64_t>(one->tokens.size()) - one->done;
      constexpr int64_t kSizes[] = {1, 1, 1, 2, 3, 7, 16, 17, 40};
      const int64_t count = std::min(left, kSizes[random() % std::size(kSizes)]);
      Segment segment;
      segment.sequence = one->sequence.get();
      segment.tokens = slice(one->tokens, one->done, one->done + count);
      segment.want = std::array{Want::kNone, Want::kLast, Want::kAll, Want::kAll}[random() % 4];
      session.reserve(*one->sequence, one->done + count);
      const int64_t first = segment.want == Want::kAll    ? one->done
                            : segment.want == Want::kLast ? one->done + count - 1
                                                          : one->done + count;
      const Logits rows = rig_.rows(one->solo, first, one->done + count);
      want.insert(want.end(), rows.begin(), rows.end());
      segments.push_back(segment);
      one->done += count;
    }
    session.forward().poison();
    session.forward().run(segments);
    ASSERT_TRUE(rig_.same(all_logits(session), want));
  }

  Rig rig_;
};

TEST_P(Batch, EverySequenceGetsItsSoloBits) {
  const int count = std::get<2>(GetParam());
  std::mt19937 random(static_cast<uint32_t>(count));
  const auto session = rig_.session({.threads = 2, .block_tokens = 8, .sequences = count});
  // Slots are filled again as soon as they are free, with blocks that are handed round.
  const int total = count + 2;
  std::vector<Request> slots(static_cast<size_t>(count));
  int started = 0;
  int finished = 0;
  for (int steps = 0; finished < total; ++steps) {
    ASSERT_LT(steps, 10000);
    std::vector<Request*> chosen;
    for (Request& slot : slots) {
      const bool over = slot.done == static_cast<int64_t>(slot.tokens.size());
      if (over && started < total) {
        Session::SequencePtr sequence = std::move(slot.sequence);
        slot = request(started++ % 19);
        if (sequence == nullptr) {
          sequence = session->new_sequence();
        } else {
          for (const cache::BlockId block : sequence->blocks) session->pool().release(block);
          sequence->reset();
        }
        soil(*sequence);
        shuffle_free_blocks(session->pool(), random);
        slot.sequence = std::move(sequence);
      }
      const bool runs = slot.done < static_cast<int64_t>(slot.tokens.size());
      if (runs && random() % 4 != 0) chosen.push_back(&slot);
    }
    if (chosen.empty()) continue;
    step(*session, chosen, random);
    if (HasFatalFailure()) return;
    for (const Request* one : chosen) {
      finished += one->done == static_cast<int64_t>(one->tokens.size());
    }
  }
  for (const Request& slot : slots) {
    if (slot.sequence != nullptr) {
      EXPECT_EQ(slot.sequence->length, slot.done);
    }
  }
}

std::string name(const testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) + "_" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Fast, Batch,
                         testing::Combine(testing::ValuesIn(kFolders),
                                          testing::ValuesIn(fast_levels()),
                                          testing::Values(1, 2, 3, 8, 17)),
                         name);
INSTANTIATE_TEST_SUITE_P(Oracle, Batch,
                         testing::Combine(testing::ValuesIn(kFolders), testing::Values("oracle"),
                                          testing::Values(3, 8)),
                         name);

// An empty segment takes part and changes nothing.
TEST(EmptySegments, AreAllowed) {
  const Rig rig("tiny", levels().back());
  const auto session = rig.session({.sequences = 2});
  const Tokens tokens = random_tokens(rig.model(), 5, 1);
  const auto one = session->new_sequence();
  const auto two = session->new_sequence();
  Segment segments[2];
  segments[0].sequence = one.get();
  segments[1].sequence = two.get();
  segments[1].tokens = tokens;
  session->reserve(*two, 5);
  session->forward().run(segments);
  EXPECT_TRUE(rig.same(all_logits(*session), rig.rows(rig.one_shot(tokens), 4, 5)));
  EXPECT_EQ(one->length, 0);
  session->forward().run({segments, 1});
  EXPECT_EQ(session->forward().wanted_rows(), 0);
}

}  // namespace
}  // namespace cedra::equality

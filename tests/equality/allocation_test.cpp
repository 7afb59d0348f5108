// A step allocates nothing: every buffer is taken when the Forward is made. The program's
// operator new counts.
#include <gtest/gtest.h>

#include "rig.h"

int64_t allocations();  // tests/counting_new.cpp

namespace cedra::equality {
namespace {

TEST(Allocation, CounterCounts) {
  const int64_t before = allocations();
  const std::unique_ptr<int[]> some(new int[100]);
  EXPECT_GT(allocations(), before) << some.get();
}

TEST(Allocation, NoneInsideAStep) {
  for (const char* folder : kFolders) {
    for (const std::string& level : levels()) {
      SCOPED_TRACE(std::string(folder) + " " + level);
      const Rig rig(folder, level);
      const auto session = rig.session({.threads = 2, .sequences = 3});
      const Tokens tokens = random_tokens(rig.model(), 300, 61);
      const auto chat = session->new_sequence();
      const auto prompt = session->new_sequence();
      const auto bounded = session->new_sequence();
      bounded->begin_prefill();
      for (cache::Sequence* one : {chat.get(), prompt.get(), bounded.get()}) {
        session->reserve(*one, 300);
      }
      // The first step too: nothing is taken lazily.
      const int64_t steps = rig.oracle() ? 2 : 6;
      model::DraftState states[] = {model::DraftState(rig.text()), model::DraftState(rig.text()),
                                    model::DraftState(rig.text())};
      for (int64_t step = 0; step < steps; ++step) {
        Segment segments[3];
        segments[0].sequence = chat.get();
        segments[0].tokens = slice(tokens, step, step + 1);
        segments[1].sequence = prompt.get();
        segments[1].tokens = slice(tokens, 20 * step, 20 * (step + 1));
        segments[1].want = Want::kAll;
        segments[2].sequence = bounded.get();
        segments[2].tokens = slice(tokens, 20 * step, 20 * (step + 1));
        segments[2].bounded = true;
        segments[2].more_follows = step + 1 < steps;
        const int64_t before = allocations();
        session->forward().run(segments);
        session->forward().logits(0, session->forward().wanted_rows());
        const model::DraftCommit commits[] = {{&states[0], session->forward().taps(0)},
                                              {&states[1], session->forward().taps(1)},
                                              {&states[2], session->forward().taps(2)}};
        session->drafter()->commit(commits);
        const model::DraftRequest requests[] = {
            {&states[0], 7, 5}, {&states[1], 8, 1}, {&states[2], 9, 8}};
        session->drafter()->propose(requests);
        EXPECT_EQ(allocations() - before, 0) << "step " << step;
      }
      // And steps of one row.
      for (int64_t step = steps; step < steps + 3; ++step) {
        Segment segment;
        segment.sequence = chat.get();
        segment.tokens = slice(tokens, step, step + 1);
        const int64_t before = allocations();
        session->forward().run({&segment, 1});
        session->forward().logits(0, 1);
        EXPECT_EQ(allocations() - before, 0) << "decode step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace cedra::equality

// What must hold of every schedule, and who waits how long when rows are short.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cedra::engine {
namespace {

Runnable decode() { return {.decoding = true, .remaining = 0, .take = 0}; }
Runnable prompt(int64_t remaining) {
  return {.decoding = false, .remaining = remaining, .take = 0};
}

TEST(Schedule, KeepsItsPromisesForRandomJobs) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<Runnable> jobs(1 + random() % 40);
    int64_t wanted = 0;
    int64_t decoding = 0;
    for (Runnable& job : jobs) {
      job =
          random() % 2 == 0 ? decode() : prompt(1 + random() % (random() % 8 == 0 ? 600'000 : 70));
      job.take = -1;  // stale
      wanted += job.decoding ? 1 : job.remaining;
      decoding += job.decoding;
    }
    const int64_t budgets[] = {1, 2, 7, 64, 4096};
    const int64_t budget = budgets[random() % 5];
    schedule(jobs, budget, random());
    int64_t taken = 0;
    int64_t decode_rows = 0;
    int64_t prompt_rows = 0;
    for (const Runnable& job : jobs) {
      ASSERT_GE(job.take, 0);
      ASSERT_LE(job.take, job.decoding ? 1 : job.remaining);
      taken += job.take;
      (job.decoding ? decode_rows : prompt_rows) += job.take;
    }
    // No row is left idle while someone could use it.
    ASSERT_EQ(taken, std::min(budget, wanted)) << "budget " << budget;
    if (budget > 1) {
      // Answers first: they get all rows but the prompts' share.
      const int64_t share = decoding == std::ssize(jobs) ? 0 : std::max<int64_t>(1, budget / 8);
      ASSERT_EQ(decode_rows, std::min(decoding, budget - share));
      if (decoding < std::ssize(jobs)) {
        ASSERT_GT(prompt_rows, 0);
      }
    }
  }
}

// Steps until every job had a row at least once.
int64_t steps_until_all_ran(std::vector<Runnable> jobs, int64_t budget, int64_t limit) {
  std::vector<bool> ran(jobs.size());
  for (int64_t turn = 0; turn < limit; ++turn) {
    schedule(jobs, budget, static_cast<uint64_t>(turn));
    for (size_t i = 0; i < jobs.size(); ++i) ran[i] = ran[i] || jobs[i].take > 0;
    if (std::ranges::all_of(ran, [](bool one) { return one; })) return turn + 1;
  }
  return -1;
}

TEST(Schedule, NobodyStarvesWhenRowsAreShort) {
  for (const int64_t budget : {1, 2, 3, 7, 8}) {
    for (int64_t answers = 0; answers <= 9; ++answers) {
      for (int64_t prompts = 0; prompts <= 9; ++prompts) {
        if (answers + prompts == 0) continue;
        std::vector<Runnable> jobs(static_cast<size_t>(answers), decode());
        for (int64_t i = 0; i < prompts; ++i) {
          jobs.insert(jobs.begin() + i, prompt(500'000));
        }
        const int64_t took = steps_until_all_ran(jobs, budget, 1000);
        ASSERT_GT(took, 0) << budget << " rows, " << answers << " answers, " << prompts;
        ASSERT_LE(took, 2 * (answers + prompts));
      }
    }
  }
}

TEST(Schedule, ALongPromptNeitherStallsAnswersNorHoldsUpShortPrompts) {
  constexpr int64_t kBudget = 512;
  // The front has 500K tokens to go; four answers run; short prompts come in behind it.
  std::vector<Runnable> jobs{prompt(500'000), decode(),    decode(),   decode(),
                             decode(),        prompt(100), prompt(200)};
  for (uint64_t turn = 0; turn < 2; ++turn) {
    schedule(jobs, kBudget, turn);
    int64_t rows = 0;
    for (Runnable& job : jobs) {
      // Between two tokens of an answer lies one step, and that has at most kBudget rows.
      if (job.decoding) {
        EXPECT_EQ(job.take, 1);
      }
      rows += job.take;
      if (!job.decoding) job.remaining -= job.take;
    }
    EXPECT_EQ(rows, kBudget);
  }
  EXPECT_EQ(jobs[5].remaining, 0);
  EXPECT_EQ(jobs[6].remaining, 0);
  EXPECT_LT(jobs[0].remaining, 500'000 - kBudget);
}

TEST(Schedule, EvenSharesAndTheRestToTheFront) {
  std::vector<Runnable> jobs{prompt(1000), prompt(10), prompt(1000)};
  schedule(jobs, 100, 0);
  EXPECT_EQ(jobs[1].take, 10);
  EXPECT_EQ(jobs[0].take + jobs[2].take, 90);
  EXPECT_GE(jobs[0].take, jobs[2].take);
  EXPECT_GE(jobs[2].take, 33);
}

TEST(Schedule, NothingToDoIsFine) {
  schedule({}, 8, 3);
  std::vector<Runnable> jobs{prompt(0)};
  schedule(jobs, 8, 0);
  EXPECT_EQ(jobs[0].take, 0);
}

}  // namespace
}  // namespace cedra::engine

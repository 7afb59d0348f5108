// The policy against made-up machines and drafters: it gains where there is something to gain, and
// next to nothing is lost where there is not.
#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

namespace cedra::engine {
namespace {

constexpr int64_t kWidth = 5;

// Plays `steps` steps of `decoding` requests; returns the time per token relative to plain
// decoding.
struct Machine {
  std::function<double(int64_t)> step_seconds;  // of rows
  double draft_seconds = 0;
  double right = 0;      // chance that a draft stands if those before do
  float confidence = 0;  // that the drafter claims
  double noise = 0;

  int64_t drafted_steps = 0;

  double play(DraftPolicy& policy, int64_t steps, int64_t decoding, uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<> uniform(0, 1);
    const std::vector<float> claims(static_cast<size_t>(kWidth), confidence);
    double time = 0;
    int64_t tokens = 0;
    for (int64_t step = 0; step < steps; ++step) {
      StepOutcome outcome{.rows = decoding, .decoding = decoding, .tokens = decoding};
      if (policy.wants_drafts(decoding)) {
        ++drafted_steps;
        outcome.drafted = true;
        outcome.draft_seconds = draft_seconds;
        std::vector<DraftOffer> offers(static_cast<size_t>(decoding),
                                       {.confidence = claims, .most = kWidth});
        policy.choose(offers, decoding, decoding, 1000);
        for (const DraftOffer& offer : offers) {
          int64_t accepted = 0;
          while (accepted < offer.length && uniform(random) < right) ++accepted;
          policy.learn(claims, offer.length, accepted);
          outcome.rows += offer.length;
          outcome.tokens += accepted;
        }
      }
      outcome.step_seconds = step_seconds(outcome.rows) * (1 + noise * (uniform(random) - 0.5));
      policy.learn(outcome);
      time += outcome.draft_seconds + outcome.step_seconds;
      tokens += outcome.tokens;
    }
    const double plain = step_seconds(decoding) / static_cast<double>(decoding);
    return time / static_cast<double>(tokens) / plain;
  }
};

double memory_bound(int64_t rows) { return 0.1 + 0.004 * static_cast<double>(rows); }
double compute_bound(int64_t rows) { return 0.005 + 0.02 * static_cast<double>(rows); }

TEST(DraftPolicy, AnAlwaysWrongDrafterCostsNextToNothing) {
  for (const int64_t decoding : {1, 4, 16}) {
    for (const float confidence : {-2.0F, 0.0F, 4.0F}) {
      Machine machine{.step_seconds = memory_bound,
                      .draft_seconds = 0.03,
                      .right = 0,
                      .confidence = confidence,
                      .noise = 0.2};
      DraftPolicy policy(kWidth, true, true);
      EXPECT_LT(machine.play(policy, 3000, decoding), 1.02) << decoding << " " << confidence;
      // It has tried, and again later.
      EXPECT_GT(machine.drafted_steps, 4);
      EXPECT_LT(machine.drafted_steps, 300);
    }
  }
}

TEST(DraftPolicy, AGoodDrafterIsUsed) {
  for (const int64_t decoding : {1, 4}) {
    Machine machine{.step_seconds = memory_bound,
                    .draft_seconds = 0.01,
                    .right = 0.8,
                    .confidence = 1.4F,
                    .noise = 0.2};
    DraftPolicy policy(kWidth, true, true);
    EXPECT_LT(machine.play(policy, 2000, decoding), 0.6) << decoding;
    EXPECT_GT(machine.drafted_steps, 1900);
    EXPECT_TRUE(policy.on());
  }
}

// Rows that cost as much as steps: only drafts that nearly always stand would pay, so none are
// bought, and drafting ends.
TEST(DraftPolicy, RowsThatCostTooMuchAreNotBought) {
  Machine machine{.step_seconds = compute_bound,
                  .draft_seconds = 0.004,
                  .right = 0.6,
                  .confidence = 0.4F,
                  .noise = 0.1};
  DraftPolicy policy(kWidth, true, true);
  EXPECT_LT(machine.play(policy, 3000, 8), 1.03);
  EXPECT_LT(machine.drafted_steps, 400);
}

TEST(DraftPolicy, ComesBackWhenDraftsBecomeGood) {
  Machine machine{.step_seconds = memory_bound,
                  .draft_seconds = 0.01,
                  .right = 0,
                  .confidence = 1.0F,
                  .noise = 0.1};
  DraftPolicy policy(kWidth, true, true);
  machine.play(policy, 1000, 1);
  EXPECT_FALSE(policy.on());
  machine.right = 0.8;
  machine.play(policy, 1000, 1, 2);
  EXPECT_TRUE(policy.on());
  machine.right = 0;
  machine.play(policy, 200, 1, 3);
  EXPECT_FALSE(policy.on());
}

TEST(DraftPolicy, FixedLengthsTakeEverythingThereIsRoomFor) {
  DraftPolicy policy(kWidth, false, true);
  EXPECT_TRUE(policy.wants_drafts(3));
  const std::vector<float> claims(kWidth, -9.0F);
  std::vector<DraftOffer> offers(3, {.confidence = claims, .most = kWidth});
  offers[1].most = 2;
  policy.choose(offers, 3, 3, 100);
  EXPECT_EQ(offers[0].length, 5);
  EXPECT_EQ(offers[1].length, 2);
  EXPECT_EQ(offers[2].length, 5);
  policy.choose(offers, 3, 3, 7);
  EXPECT_EQ(offers[0].length + offers[1].length + offers[2].length, 7);
  policy.choose(offers, 3, 3, -2);
  EXPECT_EQ(offers[0].length, 0);
}

// With a budget of rows, drafts go to those whose drafts are likelier to stand.
TEST(DraftPolicy, RowsGoWhereTheyAreLikelyToStand) {
  Machine machine{
      .step_seconds = memory_bound, .draft_seconds = 0.01, .right = 0.8, .confidence = 1.4F};
  DraftPolicy policy(kWidth, true, true);
  machine.play(policy, 300, 3);
  const std::vector<float> sure(kWidth, 5.0F);
  const std::vector<float> unsure(kWidth, 0.5F);
  const std::vector<float> hopeless(kWidth, -6.0F);
  std::vector<DraftOffer> offers = {{.confidence = hopeless, .most = kWidth},
                                    {.confidence = sure, .most = kWidth},
                                    {.confidence = unsure, .most = kWidth}};
  policy.choose(offers, 3, 3, 6);
  EXPECT_EQ(offers[0].length, 0);
  EXPECT_EQ(offers[1].length, 5);
  EXPECT_EQ(offers[2].length, 1);
}

// Without foresight the number of drafts is known before the confidences are.
TEST(DraftPolicy, WithoutForesightConfidencesOnlyShareOutWhatThereIs) {
  Machine machine{
      .step_seconds = memory_bound, .draft_seconds = 0.01, .right = 0.7, .confidence = 0.8F};
  DraftPolicy policy(kWidth, true, false);
  machine.play(policy, 300, 2);
  int64_t total = -1;
  for (const float a : {-8.0F, -1.0F, 0.0F, 3.0F, 9.0F}) {
    const std::vector<float> first(kWidth, a);
    const std::vector<float> second(kWidth, 0.3F);
    std::vector<DraftOffer> offers = {{.confidence = first, .most = kWidth},
                                      {.confidence = second, .most = kWidth}};
    policy.choose(offers, 2, 2, 6);
    const int64_t sum = offers[0].length + offers[1].length;
    if (total >= 0) {
      EXPECT_EQ(sum, total) << a;
    }
    total = sum;
  }
  EXPECT_GT(total, 0);
}

TEST(StepCost, InterpolatesAndForgetsSlowly) {
  StepCost cost;
  EXPECT_EQ(cost.at(3), 0);
  EXPECT_GT(cost.age(1), 1000000);
  cost.add(1, 1.0);
  EXPECT_DOUBLE_EQ(cost.at(40), 1.0);  // nothing says that rows cost
  cost.add(5, 2.0);
  EXPECT_DOUBLE_EQ(cost.at(3), 1.5);
  EXPECT_DOUBLE_EQ(cost.at(9), 3.0);
  EXPECT_EQ(cost.age(1), 1);
  EXPECT_EQ(cost.age(5), 0);
  // One step that was held up says little.
  cost.add(5, 100.0);
  EXPECT_LT(cost.at(5), 2.5);
  for (int i = 0; i < 100; ++i) cost.add(5, 4.0);
  EXPECT_NEAR(cost.at(5), 4.0, 0.01);
  for (const int64_t rows : {33, 64, 100, 512, 100000}) {
    cost.add(rows, static_cast<double>(rows));
    EXPECT_NEAR(cost.at(rows), static_cast<double>(rows), 0.05 * static_cast<double>(rows));
  }
}

}  // namespace
}  // namespace cedra::engine

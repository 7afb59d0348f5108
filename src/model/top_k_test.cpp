// RunningTopK against a full sort.
#include "model/top_k.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace cedra::model {
namespace {

// The k best under the total order, by index.
std::vector<Scored> by_sorting(std::vector<Scored> all, int64_t k) {
  std::sort(all.begin(), all.end(), better);
  all.resize(std::min(all.size(), static_cast<size_t>(k)));
  std::sort(all.begin(), all.end(),
            [](const Scored& a, const Scored& b) { return a.index < b.index; });
  return all;
}

std::vector<Scored> by_pushing(const std::vector<Scored>& all, int64_t k) {
  std::vector<Scored> storage(static_cast<size_t>(RunningTopK::capacity(k)));
  RunningTopK top(storage.data(), k);
  for (const Scored& one : all) top.push(one.score, one.index);
  const int64_t found = top.finish();
  return {top.items(), top.items() + found};
}

void expect_same(const std::vector<Scored>& got, const std::vector<Scored>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].index, want[i].index) << "place " << i;
    ASSERT_EQ(got[i].score, want[i].score) << "place " << i;
  }
}

// Scores on a grid of `levels` values around zero: few levels, many ties.
std::vector<Scored> random_scores(int64_t n, int levels, std::mt19937& random) {
  std::vector<Scored> all;
  int32_t index = 0;
  for (int64_t i = 0; i < n; ++i) {
    index += 1 + static_cast<int32_t>(random() % 3);  // ascending, with gaps
    const int level = static_cast<int>(random() % static_cast<unsigned>(levels));
    all.push_back({static_cast<float>(level - levels / 2) * 0.25f, index});
  }
  return all;
}

TEST(RunningTopK, EqualsAFullSort) {
  std::mt19937 random(1);
  for (const int64_t n : {0, 1, 7, 64, 65, 200, 1000, 5000}) {
    for (const int64_t k : {1, 2, 8, 31, 64, 512, 6000}) {
      for (const int levels : {1, 2, 5, 1000}) {
        SCOPED_TRACE(testing::Message() << "n " << n << " k " << k << " levels " << levels);
        const std::vector<Scored> all = random_scores(n, levels, random);
        expect_same(by_pushing(all, k), by_sorting(all, k));
      }
    }
  }
}

TEST(RunningTopK, RisingAndFallingScores) {
  for (const float step : {0.5f, -0.5f}) {
    std::vector<Scored> all;
    for (int32_t i = 0; i < 3000; ++i) all.push_back({static_cast<float>(i) * step, i});
    expect_same(by_pushing(all, 100), by_sorting(all, 100));
  }
}

TEST(RunningTopK, OnlyNegativeScoresAreStillChosen) {
  std::mt19937 random(2);
  std::vector<Scored> all = random_scores(900, 50, random);
  for (Scored& one : all) one.score -= 1000;
  expect_same(by_pushing(all, 40), by_sorting(all, 40));
}

TEST(RunningTopK, InfinityIsABestScore) {
  std::vector<Scored> all;
  for (int32_t i = 0; i < 500; ++i) all.push_back({static_cast<float>(i % 7), i});
  all[499].score = std::numeric_limits<float>::infinity();
  all[250].score = -std::numeric_limits<float>::infinity();
  expect_same(by_pushing(all, 3), by_sorting(all, 3));
  expect_same(by_pushing(all, 500), by_sorting(all, 500));
}

TEST(RunningTopK, OfZeroKeepsNothing) {
  std::mt19937 random(3);
  EXPECT_TRUE(by_pushing(random_scores(1000, 9, random), 0).empty());
}

TEST(RunningTopK, PushRunNumbersConsecutiveRows) {
  std::mt19937 random(4);
  std::vector<float> scores(700);
  std::vector<Scored> all;
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(random() % 11) - 5;
    all.push_back({scores[i], static_cast<int32_t>(1000 + i)});
  }
  std::vector<Scored> storage(static_cast<size_t>(RunningTopK::capacity(33)));
  RunningTopK top(storage.data(), 33);
  top.push_run(scores.data(), 1000, 300);
  top.push_run(scores.data() + 300, 1300, 400);
  const int64_t found = top.finish();
  expect_same({top.items(), top.items() + found}, by_sorting(all, 33));
}

// What selection.cpp does with a team: the best of every part, then the best of those.
TEST(RunningTopK, MergingPartsEqualsOnePass) {
  std::mt19937 random(5);
  for (const int parts : {1, 2, 3, 8}) {
    for (const int levels : {2, 9, 500}) {
      const std::vector<Scored> all = random_scores(2000, levels, random);
      std::vector<Scored> merged;
      for (int part = 0; part < parts; ++part) {
        const auto begin = all.begin() + static_cast<int64_t>(all.size()) * part / parts;
        const auto end = all.begin() + static_cast<int64_t>(all.size()) * (part + 1) / parts;
        const std::vector<Scored> best = by_pushing({begin, end}, 48);
        merged.insert(merged.end(), best.begin(), best.end());
      }
      expect_same(by_pushing(merged, 48), by_sorting(all, 48));
    }
  }
}

}  // namespace
}  // namespace cedra::model

// Exact tests against a plain reimplementation of docs/sampling.md, and statistics of the draw.
#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "decode/philox.h"

namespace cedra::decode {
namespace {

using Logits = std::vector<float>;

SamplerParams greedy() {
  SamplerParams params;
  params.temperature = 0;
  return params;
}

int32_t pick(const Logits& logits, const SamplerParams& params,
             const std::vector<int32_t>& prompt = {}, const std::vector<int32_t>& output = {},
             const std::vector<int32_t>& forbidden = {}) {
  Sampler sampler(static_cast<int64_t>(logits.size()), forbidden);
  SequenceSampling sequence(params, prompt, static_cast<int64_t>(logits.size()));
  for (const int32_t id : output) sequence.accept(id);
  const Result<int32_t> id = sampler.sample(logits, sequence);
  EXPECT_TRUE(id.has_value()) << id.error().message;
  return id.value_or(-1);
}

// Ids kept by top-k, min-p and top-p, by a full sort in the order of the document.
std::set<int32_t> kept_by_definition(const Logits& logits, const SamplerParams& params) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float left = logits[static_cast<size_t>(a)], right = logits[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  });
  const double best = logits[static_cast<size_t>(order[0])];
  const auto weight = [&](int32_t id) {
    return std::exp((logits[static_cast<size_t>(id)] - best) / params.temperature);
  };
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  std::erase_if(order, [&](int32_t id) { return weight(id) < params.min_p; });
  double total = 0;
  for (const int32_t id : order) total += weight(id);
  std::set<int32_t> kept;
  double sum = 0;
  for (const int32_t id : order) {
    kept.insert(id);
    sum += weight(id);
    if (params.top_p < 1 && sum >= params.top_p * total) break;
  }
  return kept;
}

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DocumentedUniforms) {
  // The value of docs/sampling.md: high words of block {0,0,0,0} under key 0.
  EXPECT_DOUBLE_EQ(uniform_at(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  EXPECT_NE(uniform_at(0, 0), uniform_at(0, 1));
  EXPECT_NE(uniform_at(0, 0), uniform_at(1, 0));
  EXPECT_NE(uniform_at(1, 0), uniform_at(1ull << 32, 0));
  EXPECT_NE(uniform_at(0, 0, 0), uniform_at(0, 0, 1));
}

TEST(Sampler, GreedyTakesTheLowerIdOfATie) {
  EXPECT_EQ(pick({1, 3, 3, 2}, greedy()), 1);
  EXPECT_EQ(pick({-5, -5}, greedy()), 0);
  SamplerParams one;
  one.top_k = 1;
  EXPECT_EQ(pick({1, 3, 3, 2}, one), 1);
}

TEST(Sampler, ForbiddenIdsNeverWinWhateverTheBias) {
  SamplerParams params = greedy();
  params.logit_bias = {{1, 1000.0f}};
  EXPECT_EQ(pick({1, 3, 2}, params), 1);
  EXPECT_EQ(pick({1, 3, 2}, params, {}, {}, {1, 1, 77, -1}), 2);
}

TEST(Sampler, MinTokensMasksTheEndUntilReached) {
  SamplerParams params = greedy();
  params.end_ids = {2, 900, -1};
  params.min_tokens = 2;
  EXPECT_EQ(pick({1, 3, 9}, params), 1);
  EXPECT_EQ(pick({1, 3, 9}, params, {}, {0}), 1);
  EXPECT_EQ(pick({1, 3, 9}, params, {}, {0, 0}), 2);
}

TEST(Sampler, LogitBiasAdds) {
  SamplerParams params = greedy();
  params.logit_bias = {{0, 2.5f}, {9, 100.0f}, {-3, 100.0f}};
  EXPECT_EQ(pick({1, 3, 2}, params), 0);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegative) {
  SamplerParams params = greedy();
  params.repetition_penalty = 2.0;
  EXPECT_EQ(pick({4, 3, 1}, params, {0}), 1);        // 4 / 2 < 3
  EXPECT_EQ(pick({4, 3, 1}, params, {}, {0}), 1);    // output counts too
  EXPECT_EQ(pick({-4, -5, -9}, params, {0}), 1);     // -8 < -5
  EXPECT_EQ(pick({4, 3, 1}, params, {0, 0, 0}), 1);  // once, however often it occurs
  EXPECT_EQ(pick({8, 3, 1}, params, {0, -1, 99}), 0);
}

TEST(Sampler, FrequencyAndPresenceLookAtTheOutputOnly) {
  SamplerParams params = greedy();
  params.frequency_penalty = 0.6;
  EXPECT_EQ(pick({4, 3, 1}, params, {0, 0, 0}), 0);
  EXPECT_EQ(pick({4, 3, 1}, params, {}, {0}), 0);
  EXPECT_EQ(pick({4, 3, 1}, params, {}, {0, 0}), 1);
  params.frequency_penalty = 0;
  params.presence_penalty = 1.5;
  EXPECT_EQ(pick({4, 3, 1}, params, {0}), 0);
  EXPECT_EQ(pick({4, 3, 1}, params, {}, {0}), 1);
  EXPECT_EQ(pick({5, 3, 1}, params, {}, {0, 0}), 0);  // not per occurrence
}

TEST(Sampler, BadRowsAreErrorsNotTokens) {
  Sampler sampler(3, {});
  const SequenceSampling sequence(greedy(), {}, 3);
  EXPECT_FALSE(sampler.sample(Logits{1, std::nanf(""), 2}, sequence).has_value());
  EXPECT_FALSE(
      sampler.sample(Logits{1, std::numeric_limits<float>::infinity(), 2}, sequence).has_value());
  EXPECT_FALSE(sampler.sample(Logits{1, 2}, sequence).has_value());
  const std::vector<int32_t> all{0, 1, 2};
  EXPECT_FALSE(Sampler(3, all).sample(Logits{1, 2, 3}, sequence).has_value());
}

TEST(Sampler, KeepsExactlyTheDefinedSet) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const size_t vocab = 2 + random() % 60;
    Logits logits(vocab);
    const bool ties = random() % 3 == 0;
    for (float& logit : logits) {
      logit = std::normal_distribution<float>(0, 3)(random);
      if (ties) logit = std::round(logit);
    }
    SamplerParams params;
    params.temperature = std::array{0.3, 1.0, 2.0}[random() % 3];
    params.top_p = std::array{0.01, 0.5, 0.9, 0.95, 1.0}[random() % 5];
    params.top_k = std::array{0, 0, 2, 5, 1000}[random() % 5];
    params.min_p = std::array{0.0, 0.0, 0.05, 0.5}[random() % 4];
    const std::set<int32_t> kept = kept_by_definition(logits, params);
    Sampler sampler(static_cast<int64_t>(vocab), {});
    for (uint64_t seed = 0; seed < 40; ++seed) {
      params.seed = seed;
      const SequenceSampling sequence(params, {}, static_cast<int64_t>(vocab));
      // The draw: ascending ids of the kept set against one uniform number.
      double total = 0;
      const double best = *std::max_element(logits.begin(), logits.end());
      const auto weight = [&](int32_t id) {
        return std::exp((logits[static_cast<size_t>(id)] - best) / params.temperature);
      };
      for (const int32_t id : kept) total += weight(id);
      double left = uniform_at(seed, 0) * total;
      int32_t expected = -1;
      for (const int32_t id : kept) {
        expected = id;
        if ((left -= weight(id)) < 0) break;
      }
      ASSERT_EQ(sampler.sample(logits, sequence).value(), expected)
          << "round " << round << " seed " << seed << " T " << params.temperature << " top_p "
          << params.top_p << " top_k " << params.top_k << " min_p " << params.min_p;
    }
  }
}

TEST(Sampler, DrawsWithTheRightFrequencies) {
  const Logits logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const std::array<double, 4> share{0.5, 0.3, 0.15, 0.05};
  Sampler sampler(4, {});
  SamplerParams params;
  params.top_p = 1.0;
  constexpr int kDraws = 40000;
  for (const bool over_seeds : {true, false}) {
    std::array<int, 4> count{};
    SequenceSampling sequence(params, {}, 4);
    for (int i = 0; i < kDraws; ++i) {
      if (over_seeds) {
        params.seed = static_cast<uint64_t>(i);
        sequence = SequenceSampling(params, {}, 4);
      }
      ++count[static_cast<size_t>(sampler.sample(logits, sequence).value())];
      sequence.accept(0);
    }
    double chi2 = 0;
    for (size_t i = 0; i < 4; ++i) {
      const double expected = share[i] * kDraws;
      chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    }
    EXPECT_LT(chi2, 16.3);  // 3 degrees of freedom, p = 0.001
  }
}

TEST(Sampler, SameSeedSameTokensWhateverElseTheWorkspaceDid) {
  std::mt19937 random(3);
  Logits logits(500), other(500);
  for (float& x : logits) x = std::normal_distribution<float>(0, 2)(random);
  for (float& x : other) x = std::normal_distribution<float>(0, 2)(random);
  SamplerParams params;
  params.seed = 42;
  params.frequency_penalty = 0.1;
  const auto run = [&](bool disturb) {
    Sampler sampler(500, {});
    SequenceSampling sequence(params, {}, 500);
    SamplerParams loud;
    loud.top_k = 7;
    SequenceSampling neighbour(loud, {}, 500);
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) {
      if (disturb) {
        float ignored = 0;
        std::array<TokenLogprob, 5> top;
        sampler.logprobs(other, 1, &ignored, top);
        neighbour.accept(sampler.sample(other, neighbour).value());
      }
      ids.push_back(sampler.sample(logits, sequence).value());
      sequence.accept(ids.back());
    }
    return ids;
  };
  const std::vector<int32_t> alone = run(false);
  EXPECT_EQ(alone, run(true));
  EXPECT_GT(std::set<int32_t>(alone.begin(), alone.end()).size(), 10u);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  Sampler sampler(4, std::vector<int32_t>{3});
  const Logits logits{0, 1, 1, 50};
  std::array<TokenLogprob, 8> top;
  float chosen = 0;
  ASSERT_EQ(sampler.logprobs(logits, 0, &chosen, top), 3);
  const double total = 1 + 2 * std::exp(1.0);
  EXPECT_NEAR(chosen, -std::log(total), 1e-6);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_EQ(top[2].token, 0);
  EXPECT_NEAR(top[0].logprob, 1 - std::log(total), 1e-6);
  sampler.logprobs(logits, 3, &chosen, {});
  EXPECT_TRUE(std::isinf(chosen) && chosen < 0);
}

}  // namespace
}  // namespace cedra::decode

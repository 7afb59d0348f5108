// Losslessness by exact enumeration: over all drafts and all decisions of a small vocabulary, the
// tokens that come out have the target's own distribution.
#include "decode/speculative.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

namespace cedra::decode {
namespace {

constexpr int64_t kVocab = 3;
constexpr int64_t kTokens = 4;  // whose joint distribution is compared

using History = std::vector<int32_t>;
using Law = std::map<History, double>;

// Logits after a history, made up and always the same.
class Oracle {
 public:
  Oracle(uint32_t seed, double zeros) : seed_(seed), zeros_(zeros) {}
  std::vector<float> logits(const History& history) const {
    uint32_t key = seed_;
    for (const int32_t id : history) key = key * 7 + static_cast<uint32_t>(id) + 1;
    std::mt19937 random(key);
    std::vector<float> out;
    for (int64_t v = 0; v < kVocab; ++v) {
      out.push_back(std::normal_distribution<float>(0, 2)(random));
    }
    const bool hole = std::uniform_real_distribution<>(0, 1)(random) < zeros_;
    if (hole) out[random() % kVocab] = -std::numeric_limits<float>::infinity();
    return out;
  }

 private:
  uint32_t seed_;
  double zeros_;
};

// Follows one path of decisions, a step further each time; what it did not choose is left to later
// runs.
class EveryPath final : public Dice {
 public:
  // Runs `fn` once per path of decisions; it is told the probability of the path afterwards.
  static void visit(const std::function<void(EveryPath&)>& fn) {
    EveryPath dice;
    do {
      dice.at_ = 0;
      dice.probability_ = 1;
      fn(dice);
    } while (dice.next());
  }
  double probability() const { return probability_; }

  bool accept(int64_t, double probability) override {
    const double yes = std::min(probability, 1.0);
    return choose({yes, 1 - yes}) == 0;
  }
  int32_t draw(int64_t, const Distribution& from) override {
    std::vector<double> weights(from.weights.begin(), from.weights.end());
    for (double& weight : weights) weight /= from.total;
    return static_cast<int32_t>(choose(weights));
  }

 private:
  size_t choose(const std::vector<double>& weights) {
    if (at_ == path_.size()) path_.push_back({0, weights.size()});
    const size_t chosen = path_[at_++].first;
    probability_ *= weights[chosen];
    return chosen;
  }
  bool next() {
    path_.resize(at_);
    while (!path_.empty() && ++path_.back().first == path_.back().second) path_.pop_back();
    return !path_.empty();
  }
  std::vector<std::pair<size_t, size_t>> path_;  // choice, of how many
  size_t at_ = 0;
  double probability_ = 1;
};

struct Case {
  Rejection rejection;
  bool certain;  // arg-max drafts
};

class Enumeration : public ::testing::Test {
 protected:
  static SamplerParams params(uint32_t seed) {
    SamplerParams out;
    out.temperature = 0.7 + 0.1 * (seed % 5);
    out.top_p = seed % 3 == 0 ? 0.9 : 1.0;
    // So that a row depends on the drafts before it through the rules as well.
    out.repetition_penalty = seed % 2 == 0 ? 1.0 : 1.3;
    out.presence_penalty = seed % 4 == 3 ? 0.5 : 0.0;
    if (seed % 5 == 1) {
      out.end_ids = {1};
      out.min_tokens = 2;
    }
    return out;
  }
  static SequenceSampling after(const SequenceSampling& start, const History& history) {
    SequenceSampling out = start;
    for (const int32_t id : history) out.accept(id);
    return out;
  }
  std::vector<double> probabilities(const Oracle& model, const SequenceSampling& start,
                                    const History& history) {
    const Distribution d = *sampler_.distribution(model.logits(history), after(start, history));
    std::vector<double> out;
    for (int32_t v = 0; v < kVocab; ++v) out.push_back(d.probability(v));
    return out;
  }
  // What follows `history` up to kTokens, each path added to `law` with its probability.
  void complete(const Oracle& model, const SequenceSampling& start, const History& history,
                double probability, Law& law) {
    if (probability == 0) return;
    if (static_cast<int64_t>(history.size()) >= kTokens) {
      law[{history.begin(), history.begin() + kTokens}] += probability;
      return;
    }
    const std::vector<double> p = probabilities(model, start, history);
    for (int32_t v = 0; v < kVocab; ++v) {
      History longer = history;
      longer.push_back(v);
      complete(model, start, longer, probability * p[static_cast<size_t>(v)], law);
    }
  }

  // How many of the drafts are verified.
  using Length = std::function<int64_t(const History& drafts)>;

  struct Outcome {
    double error = 0;     // against the target's law
    double accepted = 0;  // mean
  };
  Outcome run(uint32_t seed, Rejection rejection, bool certain, const Length& length) {
    const Oracle model(seed, 0.3);
    const Oracle drafter(seed % 2 == 0 ? seed : seed + 1000, 0.3);
    const SequenceSampling start(params(seed), std::vector<int32_t>{2}, kVocab);
    constexpr int64_t kDrafts = kTokens - 1;
    Law got;
    Outcome out;
    // All blocks of drafts with their probabilities.
    std::function<void(History, double)> each = [&](History drafts, double probability) {
      if (probability == 0) return;
      if (static_cast<int64_t>(drafts.size()) < kDrafts) {
        const std::vector<float> logits = drafter.logits(drafts);
        const std::vector<double> q = probabilities(drafter, start, drafts);
        const auto best = std::ranges::max_element(logits) - logits.begin();
        for (int32_t v = 0; v < kVocab; ++v) {
          History longer = drafts;
          longer.push_back(v);
          each(longer,
               certain ? (v == best ? probability : 0) : probability * q[static_cast<size_t>(v)]);
        }
        return;
      }
      drafts.resize(static_cast<size_t>(length(drafts)));
      std::vector<float> target;
      std::vector<float> drafted;
      for (size_t i = 0; i <= drafts.size(); ++i) {
        const History before(drafts.begin(), drafts.begin() + static_cast<ptrdiff_t>(i));
        const std::vector<float> row = model.logits(before);
        target.insert(target.end(), row.begin(), row.end());
        if (i == drafts.size() || certain) continue;
        const std::vector<float> q = drafter.logits(before);
        drafted.insert(drafted.end(), q.begin(), q.end());
      }
      const Verification what{rejection, drafts, target, drafted};
      EveryPath::visit([&](EveryPath& dice) {
        const Result<Verdict> verdict = verifier_.verify(what, start, dice);
        ASSERT_TRUE(verdict.has_value()) << verdict.error().message;
        History emitted(drafts.begin(), drafts.begin() + verdict->accepted);
        emitted.push_back(verdict->next);
        const double path = probability * dice.probability();
        out.accepted += path * static_cast<double>(verdict->accepted);
        complete(model, start, emitted, path, got);
      });
    };
    each({}, 1);
    Law want;
    complete(model, start, {}, 1, want);
    for (const auto& [history, probability] : want) {
      out.error = std::max(out.error, std::abs(got[history] - probability));
    }
    for (const auto& [history, probability] : got) {
      out.error = std::max(out.error, std::abs(want[history] - probability));
    }
    return out;
  }

  Verifier verifier_{kVocab, {}};
  Sampler sampler_{kVocab, {}};
};

class Lossless : public Enumeration, public ::testing::WithParamInterface<Case> {};

TEST_P(Lossless, FixedLengths) {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    for (int64_t length = 0; length < kTokens; ++length) {
      const Outcome out = run(seed, GetParam().rejection, GetParam().certain,
                              [&](const History&) { return length; });
      EXPECT_LT(out.error, 1e-12) << "seed " << seed << ", length " << length;
    }
  }
}

// Whether draft k is verified may depend on the drafts before it.
TEST_P(Lossless, LengthsThatDoNotLookAhead) {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    const Outcome out =
        run(seed, GetParam().rejection, GetParam().certain, [&](const History& drafts) {
          uint32_t key = seed;
          for (size_t k = 0; k < drafts.size(); ++k) {
            if (key % 3 == 0) return static_cast<int64_t>(k);
            key = key * 5 + static_cast<uint32_t>(drafts[k]);
          }
          return static_cast<int64_t>(drafts.size());
        });
    EXPECT_LT(out.error, 1e-12) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Lossless,
    ::testing::Values(Case{Rejection::kStandard, false}, Case{Rejection::kStandard, true},
                      Case{Rejection::kBlock, false}, Case{Rejection::kBlock, true}),
    [](const auto& param) {
      return std::string(param.param.rejection == Rejection::kBlock ? "block" : "standard") +
             (param.param.certain ? "_certain" : "_drawn");
    });

// The enumeration would notice: a length that looks at the draft it leaves out is not exact.
TEST_F(Enumeration, ALengthThatLooksAheadIsCaught) {
  double worst = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    const Outcome out = run(seed, Rejection::kStandard, false, [](const History& drafts) {
      for (size_t k = 0; k < drafts.size(); ++k) {
        if (drafts[k] == 1) return static_cast<int64_t>(k);
      }
      return static_cast<int64_t>(drafts.size());
    });
    worst = std::max(worst, out.error);
  }
  EXPECT_GT(worst, 1e-3);
}

TEST_F(Enumeration, BlocksAcceptAtLeastAsMuch) {
  double block = 0;
  double standard = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    const auto whole = [](const History& drafts) { return static_cast<int64_t>(drafts.size()); };
    const double one = run(seed, Rejection::kStandard, false, whole).accepted;
    const double all = run(seed, Rejection::kBlock, false, whole).accepted;
    EXPECT_GE(all, one - 1e-12) << "seed " << seed;
    standard += one;
    block += all;
  }
  EXPECT_GT(block, standard + 0.1);
}

// Numbers for different purposes, slots and steps are independent draws.
TEST(SeededDice, AcceptsAsOftenAsAsked) {
  for (const double probability : {0.0, 0.3, 1.0}) {
    for (const int64_t slot : {0, 1, 4}) {
      int64_t yes = 0;
      for (int64_t step = 0; step < 4000; ++step) {
        yes += SeededDice(9, step).accept(slot, probability);
      }
      EXPECT_NEAR(static_cast<double>(yes) / 4000, probability, probability == 0.3 ? 0.03 : 0)
          << "slot " << slot;
    }
  }
}

TEST(SeededDice, TheTokenAfterTheDraftsIsDrawnAsWithoutThem) {
  const std::vector<float> logits = {0.5F, -1, 2, 0.1F, 1.5F};
  Sampler sampler(5, {});
  SamplerParams params;
  params.seed = 77;
  params.top_p = 1;
  Verifier verifier(5, {});
  for (int64_t position = 0; position < 50; ++position) {
    SequenceSampling sequence(params, {}, 5);
    for (int64_t i = 0; i < position; ++i) sequence.accept(0);
    SeededDice dice(params.seed, position);
    const Verification nothing{Rejection::kBlock, {}, logits, {}};
    EXPECT_EQ(verifier.verify(nothing, sequence, dice)->next, *sampler.sample(logits, sequence));
  }
}

TEST(Verifier, BadLogitsAreAnError) {
  const std::vector<float> target(6, std::nanf(""));
  Verifier verifier(3, {});
  const SequenceSampling sequence({}, {}, 3);
  SeededDice dice(1, 0);
  const std::vector<int32_t> drafts = {1};
  for (const Rejection rejection : {Rejection::kStandard, Rejection::kBlock}) {
    const auto verdict = verifier.verify({rejection, drafts, target, {}}, sequence, dice);
    ASSERT_FALSE(verdict.has_value());
    EXPECT_EQ(verdict.error().code, Code::kInternal);
  }
}

}  // namespace
}  // namespace cedra::decode

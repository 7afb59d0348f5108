#include "engine/draft_policy.h"

#include <algorithm>
#include <cmath>

namespace cedra::engine {
namespace {

constexpr double kStepWeight = 0.15;  // of a new time in its bucket's mean
// A step that was held up by something else counts no more than this many times the mean.
constexpr double kOutlier = 2.0;
constexpr double kForget = 0.98;    // per outcome of a slot
constexpr int64_t kStale = 256;     // steps after which plain decoding is measured again
constexpr int64_t kProbeSteps = 4;  // drafted steps until a judgement
constexpr double kMemory = 0.97;    // of gains, per drafted step
// Share of the time that probes may lose.
constexpr double kProbeShare = 0.01;
constexpr double kLeastWaitSteps = 64;

double sigmoid(float x) { return 1 / (1 + std::exp(-static_cast<double>(x))); }

}  // namespace

// Single rows up to 32, then eight buckets per doubling.
size_t StepCost::bucket(int64_t rows) {
  if (rows <= 32) return static_cast<size_t>(std::max<int64_t>(rows, 0));
  const double octaves = std::log2(static_cast<double>(rows) / 32);
  return std::min(kBuckets - 1, static_cast<size_t>(33 + 8 * octaves));
}

void StepCost::add(int64_t rows, double seconds) {
  Bucket& b = buckets_[bucket(rows)];
  ++count_;
  if (b.added == 0) {
    b.rows = static_cast<double>(rows);
    b.seconds = seconds;
  } else {
    b.rows += kStepWeight * (static_cast<double>(rows) - b.rows);
    b.seconds += kStepWeight * (std::min(seconds, kOutlier * b.seconds) - b.seconds);
  }
  b.added = count_;
}

double StepCost::at(int64_t rows) const {
  const double want = static_cast<double>(rows);
  const Bucket* below = nullptr;
  const Bucket* before = nullptr;  // the one below that
  for (const Bucket& b : buckets_) {
    if (b.added == 0) continue;
    if (b.rows <= want) {
      before = below;
      below = &b;
      continue;
    }
    if (below == nullptr) return b.seconds;
    const double share = (want - below->rows) / (b.rows - below->rows);
    return below->seconds + share * std::max(0.0, b.seconds - below->seconds);
  }
  if (below == nullptr) return 0;
  if (before == nullptr) return below->seconds;
  const double slope = (below->seconds - before->seconds) / (below->rows - before->rows);
  return below->seconds + std::max(0.0, slope) * (want - below->rows);
}

int64_t StepCost::age(int64_t rows) const {
  const Bucket& b = buckets_[bucket(rows)];
  return b.added == 0 ? INT64_MAX : count_ - b.added;
}

DraftPolicy::DraftPolicy(int64_t width, bool adaptive, bool foresight)
    : adaptive_(adaptive), foresight_(foresight), slots_(static_cast<size_t>(width)) {}

bool DraftPolicy::wants_drafts(int64_t decoding) {
  if (!adaptive_) return true;
  if (state_ == State::kOff) {
    if (wait_ > 0) return false;
    state_ = State::kProbing;
    drafted_steps_ = 0;
    gain_ = spent_ = 0;
  }
  // Gains need something to be compared with.
  return cost_.age(decoding) <= kStale;
}

// The share of promises that were kept, over what was seen lately.
double DraftPolicy::chance(size_t slot, float confidence) const {
  const Slot& s = slots_[slot];
  constexpr double kPrior = 2;
  return std::min(1.0, sigmoid(confidence) * (s.stood + kPrior) / (s.promised + kPrior));
}

double DraftPolicy::base_rate(size_t slot) const {
  const Slot& s = slots_[slot];
  return (s.stood + 1.5) / (s.reached + 2);
}

void DraftPolicy::choose(std::span<DraftOffer> offers, int64_t rows, int64_t decoding,
                         int64_t room) {
  for (DraftOffer& offer : offers) offer.length = 0;
  // Survival of the next draft of every offer, by its confidences or by experience alone.
  const auto grant = [&](int64_t most, bool by_confidence, auto&& each) {
    survival_.assign(offers.size(), 1);
    const auto next = [&](size_t i) {
      const DraftOffer& offer = offers[i];
      const size_t slot = static_cast<size_t>(offer.length);
      if (offer.length >= offer.most) return -1.0;
      return survival_[i] *
             (by_confidence ? chance(slot, offer.confidence[slot]) : base_rate(slot));
    };
    for (int64_t k = 0; k < most; ++k) {
      size_t best = 0;
      double chances = -1;
      for (size_t i = 0; i < offers.size(); ++i) {
        const double now = next(i);
        if (now > chances) {
          chances = now;
          best = i;
        }
      }
      if (chances < 0) break;
      survival_[best] = chances;
      ++offers[best].length;
      each(k + 1, chances);
    }
  };
  int64_t budget = std::max<int64_t>(room, 0);
  if (adaptive_ && state_ != State::kProbing) {
    const double token = cost_.at(decoding) / static_cast<double>(std::max<int64_t>(decoding, 1));
    const double plain = cost_.at(rows);
    double expected = 0;
    double best = 0;
    int64_t best_count = 0;
    grant(budget, foresight_, [&](int64_t count, double survival) {
      expected += survival;
      const double gain = expected * token - (cost_.at(rows + count) - plain);
      if (gain > best) {
        best = gain;
        best_count = count;
      }
    });
    budget = best_count;
    for (DraftOffer& offer : offers) offer.length = 0;
  }
  grant(budget, adaptive_, [](int64_t, double) {});
}

void DraftPolicy::learn(std::span<const float> confidence, int64_t verified, int64_t accepted) {
  for (int64_t k = 0; k < std::min(verified, accepted + 1); ++k) {
    Slot& slot = slots_[static_cast<size_t>(k)];
    slot.reached = kForget * slot.reached + 1;
    slot.stood = kForget * slot.stood + (k < accepted ? 1 : 0);
    slot.promised = kForget * slot.promised + sigmoid(confidence[static_cast<size_t>(k)]);
  }
}

void DraftPolicy::learn(const StepOutcome& outcome) {
  if (!adaptive_) return;
  // Prompts make the time of a step depend on more than its rows.
  const bool clean = outcome.prompt_rows == 0 && outcome.decoding > 0;
  if (clean) cost_.add(outcome.rows, outcome.step_seconds);
  if (!outcome.drafted) {
    if (state_ == State::kOff) wait_ -= outcome.step_seconds;
    return;
  }
  if (!clean) return;
  const double plain = cost_.at(outcome.decoding);
  const double more = static_cast<double>(outcome.tokens - outcome.decoding) /
                      static_cast<double>(outcome.decoding);
  const double gain = more * plain - (outcome.draft_seconds + outcome.step_seconds - plain);
  const double keep = state_ == State::kOn ? kMemory : 1;
  gain_ = keep * gain_ + gain;
  spent_ = keep * spent_ + plain;
  if (++drafted_steps_ < kProbeSteps) return;
  if (gain_ > 0) {
    state_ = State::kOn;
    return;
  }
  state_ = State::kOff;
  wait_ = std::max(-gain_ / kProbeShare, kLeastWaitSteps * plain);
}

}  // namespace cedra::engine

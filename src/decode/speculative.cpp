#include "decode/speculative.h"

#include <algorithm>

#include "decode/philox.h"

namespace cedra::decode {
namespace {

// Streams of the generator at the position where a step begins. Stream 0 of the position where it
// ends draws the token there, as without drafts.
constexpr uint32_t accept_stream(int64_t slot) { return 1 + 2 * static_cast<uint32_t>(slot); }
constexpr uint32_t draft_stream(int64_t slot) { return 2 + 2 * static_cast<uint32_t>(slot); }

std::span<const float> row(std::span<const float> rows, int64_t i, int64_t width) {
  return rows.subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
}

double draft_probability(const Distribution& draft, int32_t id, int32_t drafted) {
  if (draft.weights.empty()) return id == drafted ? 1 : 0;
  return draft.probability(id);
}

}  // namespace

bool SeededDice::accept(int64_t slot, double probability) {
  return uniform_at(seed_, position_, accept_stream(slot)) < probability;
}

int32_t SeededDice::draw(int64_t accepted, const Distribution& from) {
  return from.at(uniform_at(seed_, position_ + static_cast<uint64_t>(accepted)));
}

int32_t SeededDice::draft(int64_t slot, const Distribution& from) const {
  return from.at(uniform_at(seed_, position_, draft_stream(slot)));
}

Verifier::Verifier(int64_t vocab_size, std::span<const int32_t> forbidden)
    : vocab_size_(vocab_size),
      target_(vocab_size, forbidden),
      draft_(vocab_size, forbidden),
      residual_(static_cast<size_t>(vocab_size)) {}

Result<int32_t> Verifier::draft(std::span<const float> logits, const SequenceSampling& fork,
                                const SeededDice& dice, int64_t slot) {
  CEDRA_ASSIGN(const Distribution from, draft_.distribution(logits, fork));
  return dice.draft(slot, from);
}

Result<Verifier::Pair> Verifier::pair(const Verification& what, int64_t i,
                                      const SequenceSampling& fork) {
  Pair out;
  CEDRA_ASSIGN(out.target, target_.distribution(row(what.target, i, vocab_size_), fork));
  if (!what.drafted.empty() && i < static_cast<int64_t>(what.drafts.size())) {
    CEDRA_ASSIGN(out.draft, draft_.distribution(row(what.drafted, i, vocab_size_), fork));
  }
  return out;
}

Distribution Verifier::residual(const Pair& pair, double keep, int32_t id) {
  double total = 0;
  for (int32_t v = 0; v < static_cast<int32_t>(vocab_size_); ++v) {
    double& left = residual_[static_cast<size_t>(v)];
    left = std::max(0.0, keep * pair.target.probability(v) - draft_probability(pair.draft, v, id));
    total += left;
  }
  // Only rounding can refuse a draft where nothing is left.
  if (total <= 0) return pair.target;
  return {.weights = residual_, .total = total, .likeliest = pair.target.likeliest};
}

Result<Verdict> Verifier::verify(const Verification& what, const SequenceSampling& sequence,
                                 Dice& dice) {
  fork_ = sequence;
  Result<Verdict> out =
      what.rejection == Rejection::kBlock ? block(what, sequence, dice) : standard(what, dice);
  fork_->release_grammar();
  return out;
}

Result<Verdict> Verifier::standard(const Verification& what, Dice& dice) {
  SequenceSampling& fork = *fork_;
  const int64_t length = static_cast<int64_t>(what.drafts.size());
  for (int64_t i = 0; i < length; ++i) {
    const int32_t id = what.drafts[static_cast<size_t>(i)];
    CEDRA_ASSIGN(const Pair at, pair(what, i, fork));
    if (!dice.accept(i, at.target.probability(id) / draft_probability(at.draft, id, id))) {
      return Verdict{i, dice.draw(i, residual(at, 1, id))};
    }
    fork.accept(id);
  }
  CEDRA_ASSIGN(const Pair last, pair(what, length, fork));
  return Verdict{length, dice.draw(length, last.target)};
}

Result<Verdict> Verifier::block(const Verification& what, const SequenceSampling& sequence,
                                Dice& dice) {
  SequenceSampling& fork = *fork_;
  const int64_t length = static_cast<int64_t>(what.drafts.size());
  int64_t accepted = 0;
  double keep = 1;           // p[i]
  double keep_accepted = 1;  // p[accepted]
  CEDRA_ASSIGN(Pair at, pair(what, 0, fork));
  for (int64_t i = 1; i <= length; ++i) {
    const int32_t id = what.drafts[static_cast<size_t>(i - 1)];
    keep = std::min(1.0, keep * at.target.probability(id) / draft_probability(at.draft, id, id));
    if (keep <= 0) break;  // this draft cannot stand, nor what follows it
    fork.accept(id);
    CEDRA_ASSIGN(at, pair(what, i, fork));
    double probability = keep;
    if (i < length) {
      const int32_t next = what.drafts[static_cast<size_t>(i)];
      double left = 0;
      for (int32_t v = 0; v < static_cast<int32_t>(vocab_size_); ++v) {
        left +=
            std::max(0.0, keep * at.target.probability(v) - draft_probability(at.draft, v, next));
      }
      const double all = left + 1 - keep;
      probability = all > 0 ? left / all : 1;
    }
    if (dice.accept(i - 1, probability)) {
      accepted = i;
      keep_accepted = keep;
    }
  }
  // The distributions of the slot after the last success once more.
  fork = sequence;
  for (const int32_t id : what.drafts.first(static_cast<size_t>(accepted))) fork.accept(id);
  CEDRA_ASSIGN(at, pair(what, accepted, fork));
  if (accepted == length) return Verdict{accepted, dice.draw(accepted, at.target)};
  return Verdict{
      accepted,
      dice.draw(accepted, residual(at, keep_accepted, what.drafts[static_cast<size_t>(accepted)]))};
}

}  // namespace cedra::decode

// Which drafts stand, and the token after them (docs/spec/dspark.md 6 and 7). Both rules leave what
// is generated distributed exactly as without drafts, if how many drafts are verified never depends
// on a draft that it leaves out.
//
// This is for drafts that were drawn, or for block verification. Arg-max drafts under the standard
// rule need none of it: drawing the token as ever and comparing accepts with the same probability
// and changes not even the token of a seed; see docs/sampling.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"

namespace cedra::decode {

enum class Rejection : uint8_t {
  kStandard,  // one by one, until the first that is refused
  kBlock,     // all together: the last success wins, so more are accepted
};

// The random decisions of a verification.
class Dice {
 public:
  // True with this probability; never for 0. Once per slot, 0 is the first draft.
  virtual bool accept(int64_t slot, double probability) = 0;
  // A token from these weights, after `accepted` drafts.
  virtual int32_t draw(int64_t accepted, const Distribution& from) = 0;

 protected:
  ~Dice() = default;
};

// From the request's seed: independent numbers for every purpose, position of the step and slot.
class SeededDice final : public Dice {
 public:
  // `position`: generated tokens before the step.
  SeededDice(uint64_t seed, int64_t position)
      : seed_(seed), position_(static_cast<uint64_t>(position)) {}
  bool accept(int64_t slot, double probability) override;
  int32_t draw(int64_t accepted, const Distribution& from) override;
  // The draft of a slot.
  int32_t draft(int64_t slot, const Distribution& from) const;

 private:
  uint64_t seed_;
  uint64_t position_;
};

// Drafts of one request and what speaks about them.
struct Verification {
  Rejection rejection = Rejection::kStandard;
  std::span<const int32_t> drafts;  // [L]
  std::span<const float> target;    // [L + 1, V] logits after the anchor and after each draft
  // [L, V] logits that the drafts were drawn from, with the request's own rules over them. Empty:
  // the drafts are certain (arg-max).
  std::span<const float> drafted;
};

struct Verdict {
  int64_t accepted = 0;  // drafts, from the front
  int32_t next = 0;      // the token after them
};

// A workspace for any number of requests, like Sampler.
class Verifier {
 public:
  Verifier(int64_t vocab_size, std::span<const int32_t> forbidden);

  // `sequence`: the request's state before the drafts; not changed. Errors: as Sampler::sample().
  Result<Verdict> verify(const Verification& what, const SequenceSampling& sequence, Dice& dice);

  // The likeliest draft at these draft logits, and one that is drawn for `slot`; `fork` has seen
  // the drafts before it.
  Result<int32_t> likeliest(std::span<const float> logits, const SequenceSampling& fork) {
    return draft_.likeliest(logits, fork);
  }
  Result<int32_t> draft(std::span<const float> logits, const SequenceSampling& fork,
                        const SeededDice& dice, int64_t slot);

  // Memory of the workspace per vocabulary entry.
  static constexpr int64_t kBytesPerToken = 2 * Sampler::kBytesPerToken + 8;

 private:
  struct Pair {
    Distribution target;
    Distribution draft;  // empty: certain
  };
  // Both with fork_ at the sequence.
  Result<Verdict> standard(const Verification& what, Dice& dice);
  Result<Verdict> block(const Verification& what, const SequenceSampling& sequence, Dice& dice);
  // Of slot i; the draft's is empty for i = L.
  Result<Pair> pair(const Verification& what, int64_t i, const SequenceSampling& fork);
  // What is left of keep * target over the distribution of draft `id`.
  Distribution residual(const Pair& pair, double keep, int32_t id);

  int64_t vocab_size_;
  Sampler target_;
  Sampler draft_;
  std::vector<double> residual_;  // [V]
  // The sequence behind some of the drafts. It stays, so that the next one is copied into memory
  // that is there.
  std::optional<SequenceSampling> fork_;
};

}  // namespace cedra::decode

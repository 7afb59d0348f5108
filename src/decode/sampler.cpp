// The sampling steps in the order of docs/sampling.md. Sums run in double over ascending ids.
#include "decode/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "decode/philox.h"

namespace cedra::decode {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
// exp(-60) is 9e-27: such a token cannot be drawn with 53 random bits.
constexpr double kNegligibleExponent = -60.0;

// Descending by logit, ties to the lower id: the order in which top-k and top-p count.
template <class Candidate>
bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// All bits of the logits whose bits in the byte are 1.
constexpr auto kKeep = [] {
  std::array<std::array<uint32_t, 8>, 256> table{};
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t i = 0; i < 8; ++i) table[byte][i] = (byte >> i & 1) != 0 ? ~uint32_t{0} : 0;
  }
  return table;
}();

constexpr size_t kBlock = 64;  // logits of one word of a mask

// Masks the logits whose bits in `allowed` are 0; without branches, since neighbours in the
// vocabulary have nothing in common.
void mask_block(uint64_t allowed, std::span<float> logits) {
  if (allowed == ~uint64_t{0}) return;
  if (logits.size() < kBlock) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if ((allowed >> i & 1) == 0) logits[i] = kMasked;
    }
    return;
  }
  constexpr auto kMaskedBits = std::bit_cast<uint32_t>(kMasked);
  float* at = logits.data();
  for (size_t shift = 0; shift < kBlock; shift += 8, at += 8) {
    const std::array<uint32_t, 8>& keep = kKeep[allowed >> shift & 0xFF];
    for (size_t i = 0; i < 8; ++i) {
      const auto bits = std::bit_cast<uint32_t>(at[i]);
      at[i] = std::bit_cast<float>((bits & keep[i]) | (kMaskedBits & ~keep[i]));
    }
  }
}

}  // namespace

SequenceSampling::SequenceSampling(SamplerParams params, std::span<const int32_t> prompt,
                                   int64_t vocab_size)
    : params_(std::move(params)) {
  if (params_.grammar != nullptr) grammar_.emplace(params_.grammar);
  const bool penalties = params_.repetition_penalty != 1.0 || params_.frequency_penalty != 0.0 ||
                         params_.presence_penalty != 0.0;
  if (!penalties) return;
  counts_.assign(static_cast<size_t>(vocab_size), 0);
  for (const int32_t id : prompt) {
    if (id >= 0 && id < vocab_size) counts_[static_cast<size_t>(id)] = kInPrompt;
  }
}

void SequenceSampling::accept(int32_t id) {
  ++position_;
  if (grammar_) grammar_->accept(id);
  if (id >= 0 && static_cast<size_t>(id) < counts_.size()) ++counts_[static_cast<size_t>(id)];
}

Sampler::Sampler(int64_t vocab_size, std::span<const int32_t> forbidden)
    : vocab_size_(vocab_size),
      work_(static_cast<size_t>(vocab_size)),
      weights_(static_cast<size_t>(vocab_size)) {
  candidates_.reserve(static_cast<size_t>(vocab_size));
  for (const int32_t id : forbidden) {
    if (id >= 0 && id < vocab_size) forbidden_.push_back(id);
  }
  std::sort(forbidden_.begin(), forbidden_.end());
  forbidden_.erase(std::unique(forbidden_.begin(), forbidden_.end()), forbidden_.end());
}

// What the grammar allows, into allowed_.
Result<> Sampler::apply_grammar(const SequenceSampling& sequence) {
  const GrammarState& state = *sequence.grammar();
  // Behind a draft token that the grammar refuses: such a row's token is never used.
  const bool failed = state.failed() && !state.too_ambiguous();
  allowed_.assign((static_cast<size_t>(vocab_size_) + 63) / 64, failed ? ~uint64_t{0} : 0);
  if (failed) return {};
  const size_t words = state.grammar().mask_words();
  if (allowed_.size() < words) allowed_.resize(words);
  if (state.too_ambiguous() || !state.mask(std::span(allowed_).first(words))) {
    return err(Code::kUnsupported,
               "the text so far can be read in too many ways by the grammar that the request asks "
               "for; make the grammar less ambiguous");
  }
  if (state.complete()) {
    for (const int32_t id : sequence.params().end_ids) {
      if (id >= 0 && id < vocab_size_) {
        allowed_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
      }
    }
  }
  return {};
}

Result<int32_t> Sampler::adjust(std::span<const float> logits, const SequenceSampling& sequence) {
  const SamplerParams& params = sequence.params();
  const auto vocab = static_cast<size_t>(vocab_size_);
  if (logits.size() != vocab) {
    return err(Code::kInternal, "sampler: row of {} logits, expected {}", logits.size(), vocab);
  }
  std::copy(logits.begin(), logits.end(), work_.begin());

  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && id < vocab_size_) work_[static_cast<size_t>(id)] += bias;
  }
  if (sequence.has_penalties()) {
    const auto repetition = static_cast<float>(params.repetition_penalty);
    const auto frequency = static_cast<float>(params.frequency_penalty);
    const auto presence = static_cast<float>(params.presence_penalty);
    const std::span<const uint32_t> counts = sequence.counts();
    for (size_t id = 0; id < vocab; ++id) {
      if (counts[id] == 0) continue;
      float& logit = work_[id];
      logit = logit > 0 ? logit / repetition : logit * repetition;
      const uint32_t in_output = counts[id] & ~SequenceSampling::kInPrompt;
      if (in_output > 0) logit -= frequency * static_cast<float>(in_output) + presence;
    }
  }
  // Masks come last, so that no bias can lift a forbidden id.
  const GrammarState* grammar = sequence.grammar();
  const bool only_the_end = grammar != nullptr && grammar->finished();
  if (sequence.position() < params.min_tokens && !only_the_end) {
    for (const int32_t id : params.end_ids) {
      if (id >= 0 && id < vocab_size_) work_[static_cast<size_t>(id)] = kMasked;
    }
  }
  for (const int32_t id : forbidden_) work_[static_cast<size_t>(id)] = kMasked;
  if (grammar != nullptr) CEDRA_TRY(apply_grammar(sequence));

  int32_t best = -1;
  float best_logit = kMasked;
  for (size_t begin = 0; begin < vocab; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, vocab);
    if (grammar != nullptr) {
      mask_block(allowed_[begin / kBlock], std::span(work_).subspan(begin, end - begin));
    }
    for (size_t id = begin; id < end; ++id) {
      const float logit = work_[id];
      if (!(logit < std::numeric_limits<float>::infinity())) {
        return err(Code::kInternal, "sampler: logit of token {} is {}", id, logit);
      }
      if (logit > best_logit) {
        best_logit = logit;
        best = static_cast<int32_t>(id);
      }
    }
  }
  if (best < 0) return err(Code::kInternal, "sampler: every token is masked");
  return best;
}

// Temperature and cuts over work_.
Distribution Sampler::weigh(const SamplerParams& params, int32_t best) {
  const auto vocab = static_cast<size_t>(vocab_size_);
  const float best_logit = work_[static_cast<size_t>(best)];
  double total = 0;
  for (size_t id = 0; id < vocab; ++id) {
    const double exponent =
        (static_cast<double>(work_[id]) - static_cast<double>(best_logit)) / params.temperature;
    const double weight = exponent < kNegligibleExponent ? 0.0 : std::exp(exponent);
    weights_[id] = weight;
    total += weight;
  }

  // Tokens that may survive the cuts, in ascending id. With top-p alone, all tokens below
  // (1 - top_p) * total / V together weigh less than what top-p drops, so none of them is needed
  // and only the rest has to be sorted.
  double least = std::max(params.min_p, std::numeric_limits<double>::min());
  if (params.top_k <= 0 && params.min_p <= 0) {
    least = std::max(least, (1.0 - params.top_p) * total / static_cast<double>(vocab_size_));
  }
  const bool cuts = params.top_p < 1.0 || params.top_k > 0;
  double kept_total = total;
  Candidate last{kMasked, std::numeric_limits<int32_t>::max()};
  if (cuts) {
    candidates_.clear();
    for (size_t id = 0; id < vocab; ++id) {
      if (weights_[id] >= least) candidates_.push_back({work_[id], static_cast<int32_t>(id)});
    }
    const bool top_k = params.top_k > 0 && params.top_k < static_cast<int64_t>(candidates_.size());
    if (top_k) {
      const auto middle = candidates_.begin() + params.top_k;
      std::nth_element(candidates_.begin(), middle, candidates_.end(), before<Candidate>);
      candidates_.erase(middle, candidates_.end());
    }
    std::sort(candidates_.begin(), candidates_.end(), before<Candidate>);
    // With a top-k or min-p cut, top-p is a share of what they left; otherwise of everything.
    double reference = total;
    if (params.top_k > 0 || params.min_p > 0) {
      reference = 0;
      for (const Candidate& c : candidates_) reference += weights_[static_cast<size_t>(c.id)];
    }
    const double goal = params.top_p * reference;
    kept_total = 0;
    for (const Candidate& c : candidates_) {
      kept_total += weights_[static_cast<size_t>(c.id)];
      last = c;
      if (params.top_p < 1.0 && kept_total >= goal) break;
    }
  } else if (params.min_p > 0) {
    kept_total = 0;
    for (size_t id = 0; id < vocab; ++id) {
      if (weights_[id] < least) weights_[id] = 0;
      kept_total += weights_[id];
    }
  }

  if (cuts) {
    for (size_t id = 0; id < vocab; ++id) {
      if (before(last, Candidate{work_[id], static_cast<int32_t>(id)})) weights_[id] = 0;
    }
  }
  return {.weights = weights_, .total = kept_total, .likeliest = best};
}

int32_t Distribution::at(double uniform) const {
  const double target = uniform * total;
  double cumulative = 0;
  int32_t chosen = likeliest;
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] == 0) continue;
    cumulative += weights[id];
    chosen = static_cast<int32_t>(id);
    if (cumulative > target) break;
  }
  return chosen;
}

Result<Distribution> Sampler::distribution(std::span<const float> logits,
                                           const SequenceSampling& sequence) {
  CEDRA_ASSIGN(const int32_t best, adjust(logits, sequence));
  const SamplerParams& params = sequence.params();
  if (params.temperature != 0.0 && params.top_k != 1) return weigh(params, best);
  std::ranges::fill(weights_, 0.0);
  weights_[static_cast<size_t>(best)] = 1;
  return Distribution{.weights = weights_, .total = 1, .likeliest = best};
}

Result<int32_t> Sampler::sample(std::span<const float> logits, const SequenceSampling& sequence) {
  CEDRA_ASSIGN(const int32_t best, adjust(logits, sequence));
  const SamplerParams& params = sequence.params();
  if (params.temperature == 0.0 || params.top_k == 1) return best;
  return weigh(params, best)
      .at(uniform_at(params.seed, static_cast<uint64_t>(sequence.position())));
}

int64_t Sampler::logprobs(std::span<const float> logits, int32_t chosen, float* chosen_logprob,
                          std::span<TokenLogprob> top) {
  std::copy(logits.begin(), logits.end(), work_.begin());
  for (const int32_t id : forbidden_) work_[static_cast<size_t>(id)] = kMasked;
  const float best = *std::max_element(work_.begin(), work_.end());
  double total = 0;
  for (const float logit : work_) {
    total += std::exp(static_cast<double>(logit) - static_cast<double>(best));
  }
  const double log_total = static_cast<double>(best) + std::log(total);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_total);
  };
  if (chosen_logprob != nullptr) {
    const bool known = chosen >= 0 && chosen < vocab_size_;
    *chosen_logprob = known ? logprob(work_[static_cast<size_t>(chosen)]) : kMasked;
  }
  if (top.empty()) return 0;
  candidates_.clear();
  for (size_t id = 0; id < work_.size(); ++id) {
    if (work_[id] != kMasked) candidates_.push_back({work_[id], static_cast<int32_t>(id)});
  }
  const size_t count = std::min(top.size(), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                    candidates_.end(), before<Candidate>);
  for (size_t i = 0; i < count; ++i) top[i] = {candidates_[i].id, logprob(candidates_[i].logit)};
  return static_cast<int64_t>(count);
}

}  // namespace cedra::decode

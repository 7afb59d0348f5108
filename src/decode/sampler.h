// From one row of logits to the next token: masks, bias, penalties, temperature, top-k, min-p,
// top-p, the random draw, and log probabilities. The order of the steps and the generator are
// written down in docs/sampling.md, so that a result can be reproduced elsewhere.
//
// A row's result depends on that row, the request's rules and its own tokens, and on nothing else.
// Sampler is a workspace: one per thread, sized at start, no allocation per call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decode/grammar.h"

namespace cedra::decode {

// One request's wishes. Ranges are checked by whoever accepts the request.
struct SamplerParams {
  double temperature = 1.0;         // 0 = greedy, ties to the lower id
  double top_p = 0.95;              // (0, 1]
  int64_t top_k = 0;                // 0 = off
  double min_p = 0.0;               // [0, 1]; keeps p >= min_p * p_max
  double repetition_penalty = 1.0;  // > 0, over prompt and output
  double frequency_penalty = 0.0;   // per occurrence in the output
  double presence_penalty = 0.0;    // once, if in the output
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits
  std::vector<int32_t> end_ids;  // EOS (unless ignored) and stop ids: masked before min_tokens
  int64_t min_tokens = 0;
  // What the answer must be. Its end lets end_ids pass; only where nothing but the end is left, it
  // does so before min_tokens, too.
  std::shared_ptr<const Grammar> grammar;
};

// The sampling state of one sequence: its rules, what it has seen, and how far it is.
// Memory: 4 bytes per vocabulary entry, only where a penalty is on.
class SequenceSampling {
 public:
  // Ids outside [0, vocab_size) in the prompt are ignored.
  SequenceSampling(SamplerParams params, std::span<const int32_t> prompt, int64_t vocab_size);

  // Records a generated token; the next draw uses the next position.
  void accept(int32_t id);

  // Of a copy that is kept for its memory: lets go of the grammar, and is of no other use then.
  void release_grammar() {
    grammar_.reset();
    params_.grammar.reset();
  }

  const SamplerParams& params() const { return params_; }
  int64_t position() const { return position_; }
  // Where the answer is in its grammar; nullptr without one. Copies of the sequence have their own.
  const GrammarState* grammar() const { return grammar_ ? &*grammar_ : nullptr; }
  bool has_penalties() const { return !counts_.empty(); }
  // Whether anything but the model's logits decides which token is likeliest.
  bool has_rules() const {
    return has_penalties() || !params_.logit_bias.empty() || grammar_.has_value() ||
           position_ < params_.min_tokens;
  }
  // Bit 31: in the prompt; low bits: occurrences in the output. Empty without penalties.
  std::span<const uint32_t> counts() const { return counts_; }

  static constexpr uint32_t kInPrompt = 1u << 31;
  // Memory per vocabulary entry, where a penalty is on.
  static constexpr int64_t kBytesPerToken = sizeof(uint32_t);

 private:
  SamplerParams params_;
  int64_t position_ = 0;
  std::optional<GrammarState> grammar_;
  std::vector<uint32_t> counts_;  // [V] or empty
};

// What a token is drawn from, valid until the workspace's next call: weights [V], zero for what is
// masked or cut, and their sum.
struct Distribution {
  std::span<const double> weights;
  double total = 0;
  int32_t likeliest = 0;

  double probability(int32_t id) const { return weights[static_cast<size_t>(id)] / total; }
  // The token at `uniform`, in [0, 1), of the cumulative distribution in ascending id.
  int32_t at(double uniform) const;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

class Sampler {
 public:
  // `forbidden`: ids that are never produced, whatever a request says (image placeholders and
  // unassigned rows); ids outside the vocabulary are ignored.
  Sampler(int64_t vocab_size, std::span<const int32_t> forbidden);

  // The next token for `logits` [V] (not changed). Errors: kInternal if a logit is NaN or +inf, or
  // if masks leave no token; kUnsupported where a grammar has become too ambiguous to follow.
  Result<int32_t> sample(std::span<const float> logits, const SequenceSampling& sequence);

  // The token that greedy sampling takes, whatever the temperature.
  Result<int32_t> likeliest(std::span<const float> logits, const SequenceSampling& sequence) {
    return adjust(logits, sequence);
  }

  // What sample() draws from. Temperature 0 puts all weight on the likeliest token.
  Result<Distribution> distribution(std::span<const float> logits,
                                    const SequenceSampling& sequence);

  // Log probabilities under the model's own distribution: temperature 1, before bias, penalties and
  // truncation, forbidden ids masked. Fills `top` with the best ids, best first, ties to the lower
  // id; returns how many (min(top.size(), allowed ids)). *chosen_logprob is that of `chosen`
  // (-infinity if forbidden).
  int64_t logprobs(std::span<const float> logits, int32_t chosen, float* chosen_logprob,
                   std::span<TokenLogprob> top);

  int64_t vocab_size() const { return vocab_size_; }
  // Memory of the workspace per vocabulary entry: logit, weight, candidate.
  static constexpr int64_t kBytesPerToken = 4 + 8 + 8;

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  // Bias, penalties and masks into work_; the likeliest token.
  Result<int32_t> adjust(std::span<const float> logits, const SequenceSampling& sequence);
  Distribution weigh(const SamplerParams& params, int32_t best);
  Result<> apply_grammar(const SequenceSampling& sequence);

  int64_t vocab_size_;
  std::vector<int32_t> forbidden_;
  std::vector<float> work_;            // [V] adjusted logits
  std::vector<double> weights_;        // [V] exp((logit - max) / temperature)
  std::vector<Candidate> candidates_;  // [V]
  std::vector<uint64_t> allowed_;      // [V / 64] by the grammar
};

}  // namespace cedra::decode

// Range checks of requests; messages name the parameter as HTTP clients spell it.
#include "engine/request_checks.h"

#include <cmath>

namespace cedra::engine {
namespace {

Result<> in_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return err(Code::kInvalid, "{} must be between {} and {}, got {}", name, low, high, value);
}

Result<> check_token(const char* name, int32_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return err(Code::kInvalid, "{}: token id {} is outside the vocabulary (0 to {})", name, id,
             vocab_size - 1);
}

}  // namespace

Result<> check_request(const Request& request, const Info& info) {
  const SamplingParams& p = request.sampling;
  if (request.prompt.empty()) return err(Code::kInvalid, "the prompt is empty");
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt >= info.context_length) {
    return err(
        Code::kTooLarge,
        "the prompt has {} tokens, but the context length is {} tokens, of which at least one "
        "is needed for the answer; shorten the prompt",
        prompt, info.context_length);
  }
  if (p.max_tokens < 1) {
    return err(Code::kInvalid, "max_tokens must be at least 1, got {}", p.max_tokens);
  }
  if (p.max_tokens > info.context_length - prompt) {
    return err(Code::kTooLarge,
               "max_tokens is {}, but after {} prompt tokens only {} of the context of {} are left",
               p.max_tokens, prompt, info.context_length - prompt, info.context_length);
  }
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens) {
    return err(Code::kInvalid, "min_tokens must be between 0 and max_tokens ({}), got {}",
               p.max_tokens, p.min_tokens);
  }
  CEDRA_TRY(in_range("temperature", p.temperature, 0, 100));
  if (!(p.top_p > 0 && p.top_p <= 1)) {
    return err(Code::kInvalid, "top_p must be above 0 and at most 1, got {}", p.top_p);
  }
  if (p.top_k < 0)
    return err(Code::kInvalid, "top_k must be at least 0 (0 = off), got {}", p.top_k);
  CEDRA_TRY(in_range("min_p", p.min_p, 0, 1));
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= 100)) {
    return err(Code::kInvalid, "repetition_penalty must be above 0 and at most 100, got {}",
               p.repetition_penalty);
  }
  CEDRA_TRY(in_range("frequency_penalty", p.frequency_penalty, -2, 2));
  CEDRA_TRY(in_range("presence_penalty", p.presence_penalty, -2, 2));
  if (p.ignore_eos && p.grammar != nullptr) {
    return err(Code::kInvalid,
               "ignore_eos excludes structured outputs: what is complete has to end");
  }
  for (const auto& [id, bias] : p.logit_bias) {
    CEDRA_TRY(check_token("logit_bias", id, info.vocab_size));
    if (!std::isfinite(bias)) {
      return err(Code::kInvalid, "logit_bias of token {} must be a finite number", id);
    }
  }
  for (const int32_t id : p.stop_token_ids) {
    CEDRA_TRY(check_token("stop_token_ids", id, info.vocab_size));
  }
  for (const int32_t id : request.prompt) CEDRA_TRY(check_token("prompt", id, info.vocab_size));
  return {};
}

decode::SamplerParams sampler_params(const SamplingParams& params, std::span<const int32_t> end_ids,
                                     uint64_t seed) {
  decode::SamplerParams out;
  out.temperature = params.temperature;
  out.top_p = params.top_p;
  out.top_k = params.top_k;
  out.min_p = params.min_p;
  out.repetition_penalty = params.repetition_penalty;
  out.frequency_penalty = params.frequency_penalty;
  out.presence_penalty = params.presence_penalty;
  out.seed = params.seed.value_or(seed);
  out.logit_bias = params.logit_bias;
  out.end_ids = params.stop_token_ids;
  if (!params.ignore_eos) out.end_ids.insert(out.end_ids.end(), end_ids.begin(), end_ids.end());
  out.min_tokens = params.min_tokens;
  out.grammar = params.grammar;
  return out;
}

}  // namespace cedra::engine

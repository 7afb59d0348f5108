// From the rows of a step to tokens and log probabilities.
#include <algorithm>

#include "engine/clock.h"
#include "engine/local_engine.h"

namespace cedra::engine {

void LocalEngine::after_step(std::span<Job* const> ran, std::span<const int64_t> rows) {
  const int64_t tile = plan_.forward.max_logit_rows;
  const float* logits = nullptr;
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
  int64_t row = 0;  // among the wanted rows
  const auto logits_of = [&](int64_t wanted) {
    if (wanted >= tile_end) {
      tile_begin = wanted;
      tile_end = std::min(wanted + tile, forward_->wanted_rows());
      logits = compute_logits(tile_begin, tile_end - tile_begin);
    }
    return logits + (wanted - tile_begin) * info_.vocab_size;
  };
  for (size_t i = 0; i < ran.size(); ++i) {
    Job& job = *ran[i];
    const model::Segment& segment = segments_[i];
    const int64_t end = job.sequence->length;
    const bool was_prompt = end - rows[i] < job.prompt_size;
    if (was_prompt) {
      totals_.prompt_tokens +=
          std::max<int64_t>(0, end - std::max(end - rows[i], job.replay_until));
      // While a window is replayed, what was found counts as done.
      job.sink->on_prefill(std::max(end, job.replay_until), job.prompt_size);
    }
    if (segment.want == model::Want::kAll) {
      const int top = job.request.sampling.prompt_logprobs;
      for (int64_t r = 0; r < rows[i]; ++r, ++row) {
        // Row of position p predicts the token at p + 1.
        const int64_t next = end - rows[i] + r + 1;
        if (job.prompt_tokens.empty()) {  // nothing predicts the first token
          job.prompt_tokens.emplace_back().id = shown_id(job.tokens->front());
        }
        if (next < job.prompt_size) {
          job.prompt_tokens.push_back(
              make_token(shown_id((*job.tokens)[static_cast<size_t>(next)]), logits_of(row), top));
        } else {
          job.sink->on_prompt_logprobs(job.prompt_tokens);
          job.prompt_tokens = {};
          take_token(job, logits_of(row));
        }
      }
    } else if (segment.want == model::Want::kLast) {
      take_token(job, logits_of(row));
      ++row;
    }
  }
}

// A position of an image span is the placeholder to everyone else.
int32_t LocalEngine::shown_id(int32_t token) const {
  return is_image_row(token) ? info_.vision->token_id : token;
}

const float* LocalEngine::compute_logits(int64_t first, int64_t count) {
  const Clock::time_point begin = Clock::now();
  const float* logits = forward_->logits(first, count);
  totals_.forward_seconds += seconds_since(begin);
  return logits;
}

Token LocalEngine::make_token(int32_t id, const float* logits, int top) {
  Token token;
  token.id = id;
  if (top < 0) return token;
  top_.resize(static_cast<size_t>(top));
  const std::span<const float> row(logits, static_cast<size_t>(info_.vocab_size));
  const int64_t found = sampler_.logprobs(row, id, &token.logprob, top_);
  for (int64_t i = 0; i < found; ++i) token.top.push_back({top_[i].token, top_[i].logprob});
  return token;
}

// Samples the next token and tells the sink; finishes the job where it ends.
void LocalEngine::take_token(Job& job, const float* logits) {
  const SamplingParams& sampling = job.request.sampling;
  const std::span<const float> row(logits, static_cast<size_t>(info_.vocab_size));
  const Clock::time_point begin = Clock::now();
  const Result<int32_t> sampled = sampler_.sample(row, *job.sampling);
  totals_.sampling_seconds += seconds_since(begin);
  if (!sampled.has_value()) {
    finish(job, FinishReason::kError, std::nullopt, sampled.error());
    return;
  }
  const int32_t id = *sampled;
  const bool is_end = (!sampling.ignore_eos && std::ranges::count(end_ids_, id) > 0) ||
                      std::ranges::count(sampling.stop_token_ids, id) > 0;
  ++totals_.generated_tokens;
  ++job.generated;
  if (is_end) {
    finish(job, FinishReason::kStop, id);
    return;
  }
  job.sampling->accept(id);
  job.tokens->push_back(id);
  if (!job.sink->on_token(make_token(id, logits, sampling.top_logprobs))) {
    finish(job, FinishReason::kStop);
    return;
  }
  if (job.generated >= sampling.max_tokens) {
    finish(job, FinishReason::kLength);
  }
}

}  // namespace cedra::engine

// From the rows of a step to tokens and log probabilities.
#include <algorithm>
#include <cassert>

#include "engine/clock.h"
#include "engine/local_engine.h"

namespace cedra::engine {

void LocalEngine::after_step() {
  logits_begin_ = logits_end_ = 0;
  int64_t row = 0;  // among the wanted rows
  for (size_t i = 0; i < ran_.size(); ++i) {
    Job& job = *ran_[i];
    const model::Segment& segment = segments_[i];
    const int64_t rows = ran_rows_[i];
    const int64_t end = job.sequence->length;
    const int64_t wanted = segment.want == model::Want::kAll    ? rows
                           : segment.want == model::Want::kLast ? 1
                                                                : 0;
    outcome_.rows += rows;
    if (end - rows < job.prompt_size) {
      outcome_.prompt_rows += rows;
      totals_.prompt_tokens += std::max<int64_t>(0, end - std::max(end - rows, job.replay_until));
      // While a window is replayed, what was found counts as done.
      job.sink->on_prefill(std::max(end, job.replay_until), job.prompt_size);
      if (segment.want == model::Want::kAll) take_prompt_rows(job, rows, row);
      if (wanted > 0 && end >= job.prompt_size) take_tokens(job, row + wanted - 1);
    } else {
      const int64_t before = job.generated;
      take_tokens(job, row);
      ++outcome_.decoding;
      outcome_.tokens += job.generated - before;
    }
    row += wanted;
  }
  commit_taps();
}

// A position of an image span is the placeholder to everyone else.
int32_t LocalEngine::shown_id(int32_t token) const {
  return is_image_row(token) ? info_.vision->token_id : token;
}

// Logits of wanted rows [row, row + count), [count, V]; valid until other rows are asked for.
std::span<const float> LocalEngine::logits_of(int64_t row, int64_t count) {
  if (row < logits_begin_ || row + count > logits_end_) {
    const Clock::time_point begin = Clock::now();
    logits_begin_ = row;
    logits_end_ = std::min(row + plan_.forward.max_logit_rows, forward_->wanted_rows());
    assert(row + count <= logits_end_);
    const int64_t rows = logits_end_ - logits_begin_;
    logits_ = {forward_->logits(row, rows), static_cast<size_t>(rows * info_.vocab_size)};
    totals_.forward_seconds += seconds_since(begin);
  }
  return logits_.subspan(static_cast<size_t>((row - logits_begin_) * info_.vocab_size),
                         static_cast<size_t>(count * info_.vocab_size));
}

// Log probabilities of a prompt: the row of position p predicts the token at p + 1.
void LocalEngine::take_prompt_rows(Job& job, int64_t rows, int64_t first_row) {
  const int top = job.request.sampling.prompt_logprobs;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t next = job.sequence->length - rows + r + 1;
    if (job.prompt_tokens.empty()) {  // nothing predicts the first token
      job.prompt_tokens.emplace_back().id = shown_id(job.tokens->front());
    }
    if (next >= job.prompt_size) break;
    job.prompt_tokens.push_back(make_token(shown_id((*job.tokens)[static_cast<size_t>(next)]),
                                           logits_of(first_row + r).data(), top));
  }
  if (job.sequence->length < job.prompt_size) return;
  job.sink->on_prompt_logprobs(job.prompt_tokens);
  job.prompt_tokens = {};
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

bool LocalEngine::ends(const Job& job, int32_t id) const {
  const SamplingParams& sampling = job.request.sampling;
  return (!sampling.ignore_eos && std::ranges::count(end_ids_, id) > 0) ||
         std::ranges::count(sampling.stop_token_ids, id) > 0;
}

// The next tokens of an answer, from the row of its newest token and those of the drafts after it.
// Rows of drafts that do not stand are taken back. Finishes the job where it ends.
void LocalEngine::take_tokens(Job& job, int64_t first_row) {
  const int64_t verified = static_cast<int64_t>(job.drafts.size());
  new_tokens_.clear();
  logits_of(first_row, verified + 1);  // counts as the forward pass, not as sampling
  const Clock::time_point begin = Clock::now();
  const bool drawing =
      verified == 0 || job.sampling->params().temperature == 0 || speculation_->config().compares();
  const Result<> chosen =
      drawing ? choose_by_drawing(job, first_row) : choose_by_verdict(job, first_row);
  totals_.sampling_seconds += seconds_since(begin);

  const int64_t count = static_cast<int64_t>(new_tokens_.size());
  if (verified > 0) {
    // Rows that a new token came from were run on the right tokens.
    const int64_t right = std::max<int64_t>(count, 1);
    const int64_t base = job.sequence->length - 1 - verified;
    job.sequence->rollback(base + right);
    job.tokens->resize(job.tokens->size() - static_cast<size_t>(verified));
    const int64_t accepted = right - 1;
    job.draft_usage.verified += verified;
    job.draft_usage.accepted += accepted;
    ++job.draft_usage.blocks;
    totals_.drafts.verified += verified;
    totals_.drafts.accepted += accepted;
    ++totals_.drafts.blocks;
    for (int64_t k = 0; k < accepted; ++k) ++totals_.draft_accepted_at[static_cast<size_t>(k)];
    speculation_->policy().learn(speculation_->confidence(job.slot), verified, accepted);
  }
  deliver(job);
  if (!chosen.has_value() && job.sink != nullptr) {
    finish(job, FinishReason::kError, std::nullopt, chosen.error());
  }
}

// Draws every token as without drafts, and goes on as long as it is the draft: whatever the drafts
// are, tokens and random numbers are those of plain decoding. For arg-max drafts this accepts as
// often as the standard rule.
Result<> LocalEngine::choose_by_drawing(Job& job, int64_t first_row) {
  const SamplingParams& sampling = job.request.sampling;
  for (size_t i = 0; i <= job.drafts.size(); ++i) {
    const std::span<const float> row = logits_of(first_row + static_cast<int64_t>(i));
    CEDRA_ASSIGN(const int32_t id, sampler_.sample(row, *job.sampling));
    new_tokens_.push_back(make_token(id, row.data(), sampling.top_logprobs));
    if (ends(job, id)) return {};
    job.sampling->accept(id);
    const int64_t generated = job.generated + static_cast<int64_t>(new_tokens_.size());
    if (generated >= sampling.max_tokens) return {};
    if (i < job.drafts.size() && id != job.drafts[i]) return {};
  }
  return {};
}

// By the rules for drafts that were drawn, or by blocks.
Result<> LocalEngine::choose_by_verdict(Job& job, int64_t first_row) {
  const SamplingParams& sampling = job.request.sampling;
  const int64_t verified = static_cast<int64_t>(job.drafts.size());
  const std::span<const float> rows = logits_of(first_row, verified + 1);
  const decode::Verification what{
      .rejection = speculation_->config().rejection_sample_method == RejectionMethod::kBlock
                       ? decode::Rejection::kBlock
                       : decode::Rejection::kStandard,
      .drafts = job.drafts,
      .target = rows,
      .drafted = speculation_->drafted_logits(job.slot)};
  decode::SeededDice dice(job.sampling->params().seed, job.sampling->position());
  CEDRA_ASSIGN(const decode::Verdict verdict,
               speculation_->verifier().verify(what, *job.sampling, dice));
  for (int64_t i = 0; i <= verdict.accepted; ++i) {
    const int32_t id = i < verdict.accepted ? job.drafts[static_cast<size_t>(i)] : verdict.next;
    new_tokens_.push_back(
        make_token(id, rows.data() + i * info_.vocab_size, sampling.top_logprobs));
    if (ends(job, id)) break;
    job.sampling->accept(id);
  }
  return {};
}

// Tells the sink about the new tokens; finishes the job where it ends.
void LocalEngine::deliver(Job& job) {
  const SamplingParams& sampling = job.request.sampling;
  for (const Token& token : new_tokens_) {
    ++totals_.generated_tokens;
    ++job.generated;
    if (ends(job, token.id)) {
      finish(job, FinishReason::kStop, token.id);
      return;
    }
    job.tokens->push_back(token.id);
    if (!job.sink->on_token(token)) {
      finish(job, FinishReason::kStop);
      return;
    }
    if (job.generated >= sampling.max_tokens) {
      finish(job, FinishReason::kLength);
      return;
    }
  }
}

// The draft stages' windows follow what is committed now.
void LocalEngine::commit_taps() {
  if (speculation_ == nullptr) return;
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < ran_.size(); ++i) {
    Job& job = *ran_[i];
    if (job.sink == nullptr) continue;
    model::Taps taps = forward_->taps(static_cast<int64_t>(i));
    // Rows that were taken back are the last ones.
    taps.count -= std::max<int64_t>(0, taps.position + taps.count - job.sequence->length);
    const int64_t width = speculation_->tap_width();
    for (const model::WindowCapture& capture : job.captures) {
      const int64_t count = capture.position - taps.position;
      speculation_->commit(job.slot, {taps.position, count, taps.rows});
      speculation_->snapshot(job.slot, draft_windows(capture.out));
      taps = {taps.position + count, taps.count - count, taps.rows + count * width};
    }
    speculation_->commit(job.slot, taps);
  }
  totals_.draft_seconds += seconds_since(begin);
}

}  // namespace cedra::engine

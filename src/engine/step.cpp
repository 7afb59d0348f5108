// One step: who runs, with which rows, and what of it the prefix cache keeps.
#include <algorithm>
#include <cassert>

#include "engine/clock.h"
#include "engine/local_engine.h"

namespace cedra::engine {

void LocalEngine::step() {
  const Clock::time_point step_begin = Clock::now();
  outcome_ = {};
  draft();
  runnable_.clear();
  ready_.clear();
  for (const auto& job : running_) {
    const bool decoding = job->decoding();
    const int64_t rows = decoding ? 1 + static_cast<int64_t>(job->drafts.size()) : rows_ready(*job);
    if (rows == 0) continue;
    ready_.push_back(job.get());
    runnable_.push_back({.decoding = decoding, .remaining = rows});
  }
  if (ready_.empty()) return;
  schedule(runnable_, options_.max_num_batched_tokens, turn_++);

  segments_.clear();
  ran_.clear();
  ran_rows_.clear();
  row_kinds_.clear();
  row_embeddings_.clear();
  for (size_t i = 0; i < ready_.size(); ++i) {
    const int64_t rows = runnable_[i].take;
    if (rows == 0) continue;
    prepare(*ready_[i], rows);
    ran_.push_back(ready_[i]);
    ran_rows_.push_back(rows);
  }
  // A record that a later capture of this step took over belongs to that one.
  for (size_t i = 0; i < ran_.size(); ++i) {
    Job& job = *ran_[i];
    std::erase_if(job.captures, [&](const model::WindowCapture& capture) {
      const auto block = static_cast<size_t>(capture.position / plan_.layout.block_tokens - 1);
      return !prefix_->alive(job.chain[block], job.generations[block]) ||
             prefix_->window(job.chain[block]) != capture.out;
    });
    segments_[i].captures = job.captures;
  }
  const Clock::time_point begin = Clock::now();
  forward_->run(segments_);
  totals_.forward_seconds += seconds_since(begin);
  ++totals_.steps;
  for (Job* job : ran_) leave_images(*job, job->sequence->length);
  after_step();
  if (speculation_ != nullptr) {
    outcome_.step_seconds = seconds_since(step_begin) - outcome_.draft_seconds;
    if (outcome_.drafted) totals_.verify_seconds += outcome_.step_seconds;
    speculation_->policy().learn(outcome_);
  }
  std::erase_if(running_, [](const auto& job) { return job->sink == nullptr; });
}

// How many drafts the next step could make use of.
int64_t LocalEngine::useful_drafts(const Job& job) const {
  // The last token needs no row after it.
  int64_t most = job.request.sampling.max_tokens - job.generated - 1;
  // Windows are stored at block borders, where no row may have to be taken back.
  if (plan_.window_records > 0 && job.uses_cache) {
    const int64_t size = plan_.layout.block_tokens;
    most = std::min(most, size - 1 - job.sequence->length % size);
  }
  return most;
}

// Drafts for the answers that are being written, as far as they pay.
void LocalEngine::draft() {
  if (speculation_ == nullptr) return;
  draft_jobs_.clear();
  int64_t decoding = 0;
  int64_t prompt_rows = 0;
  for (const auto& job : running_) {
    job->drafts.clear();
    if (!job->decoding()) {
      prompt_rows += job->prompt_size - job->sequence->length;
      continue;
    }
    ++decoding;
    draft_jobs_.push_back({.slot = job->slot,
                           .tokens = *job->tokens,
                           .sampling = job->sampling.get(),
                           .most = useful_drafts(*job),
                           .drafts = &job->drafts});
  }
  if (decoding == 0) return;
  const int64_t budget = options_.max_num_batched_tokens;
  const int64_t share = decode_share(budget, true, prompt_rows > 0, turn_);
  const int64_t rows = std::min(budget, decoding + prompt_rows);
  const Clock::time_point begin = Clock::now();
  const int64_t drafted = speculation_->propose(draft_jobs_, rows, decoding, share - decoding);
  outcome_.drafted = drafted > 0;
  outcome_.draft_seconds = seconds_since(begin);
  totals_.draft_seconds += outcome_.draft_seconds;
  totals_.drafts.drafted += drafted;
  ++totals_.decode_steps;
  totals_.undrafted_steps += drafted == 0;
  for (const auto& job : running_) {
    if (job->decoding() && speculation_->drafted(job->slot)) {
      job->draft_usage.drafted += speculation_->width();
    }
  }
}

// Blocks for the next rows, and the segment.
void LocalEngine::prepare(Job& job, int64_t rows) {
  cache::Sequence& sequence = *job.sequence;
  const int64_t begin = sequence.length;
  const int64_t end = begin + rows;
  const bool prompt = !job.decoding();
  // Fewer drafts than proposed where the budget is short. They stay in the tokens for this step.
  job.drafts.resize(prompt ? 0 : static_cast<size_t>(rows - 1));
  job.tokens->insert(job.tokens->end(), job.drafts.begin(), job.drafts.end());
  const int64_t drafts = static_cast<int64_t>(job.drafts.size());
  while (static_cast<int64_t>(sequence.blocks.size()) < plan_.layout.blocks_for(end)) {
    if (pool_->free_count() == 0) prefix_->make_room(1);
    const cache::BlockId block = pool_->take();
    assert(block >= 0);  // reserved at admission
    sequence.blocks.push_back(block);
  }
  job.captures.clear();
  if (job.uses_cache) publish_blocks(job, end - drafts, true);

  model::Segment segment;
  segment.sequence = &sequence;
  segment.tokens =
      std::span(*job.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
  const bool prompt_done = end >= job.prompt_size;
  segment.want = prompt_done ? model::Want::kLast : model::Want::kNone;
  if (drafts > 0 || (job.request.sampling.prompt_logprobs >= 0 && prompt)) {
    segment.want = model::Want::kAll;
  }
  segment.bounded = job.bounded && prompt;
  segment.may_roll_back = drafts;
  segment.more_follows = !prompt_done;
  segment.replay_until = job.replay_until;
  place_images(job, segment);
  segments_.push_back(segment);
}

uint8_t* LocalEngine::draft_windows(uint8_t* record) const {
  return record + prefix_->window_bytes() - Speculation::snapshot_bytes(model_->text());
}

const uint8_t* LocalEngine::draft_windows(const uint8_t* record) const {
  return record + prefix_->window_bytes() - Speculation::snapshot_bytes(model_->text());
}

// Hands the blocks that these rows will fill to the prefix cache. It happens before the rows are
// computed, so that windows can be captured on the way; nobody can look them up before the step
// ends.
void LocalEngine::publish_blocks(Job& job, int64_t end, bool windows) {
  const int64_t size = plan_.layout.block_tokens;
  const int64_t full = end / size;
  // The chain can break: its tail may be another request's block that was evicted since.
  while (!job.chain.empty() && !prefix_->alive(job.chain.back(), job.generations.back())) {
    job.chain.pop_back();
    job.generations.pop_back();
  }
  for (int64_t i = static_cast<int64_t>(job.chain.size()); i < full; ++i) {
    const cache::NodeId parent = job.chain.empty() ? cache::kNoNode : job.chain.back();
    const auto tokens = std::span<const int32_t>(*job.tokens)
                            .subspan(static_cast<size_t>(i * size), static_cast<size_t>(size));
    const cache::NodeId node = prefix_->publish(job.chain_seed, parent, tokens,
                                                job.sequence->blocks[static_cast<size_t>(i)]);
    job.chain.push_back(node);
    job.generations.push_back(prefix_->generation(node));

    const int64_t border = (i + 1) * size;
    if (!windows || plan_.window_records == 0 || border < job.sequence->length) continue;
    // Windows are kept at the prompt's last border and at the newest border of the answer, and,
    // while there are free records, now and then inside the prompt: one long prompt must not push
    // out what other conversations will continue from.
    const int64_t last_of_prompt = (job.prompt_size - 1) / size * size;
    const bool answer = border > job.prompt_size - 1;
    const bool newest = border == last_of_prompt || answer;
    if (!newest && (i + 1) % options_.window_interval != 0) continue;
    if (prefix_->window(node) != nullptr) continue;
    if (answer && i >= 1 && border - size > last_of_prompt) {
      prefix_->drop_window(job.chain[static_cast<size_t>(i - 1)]);
    }
    uint8_t* out = prefix_->store_window(node, newest);
    if (out == nullptr) continue;
    if (border > job.sequence->length) {
      job.captures.push_back({border, out});
    } else {
      // Drafts that stood ended the last step at this border.
      job.sequence->copy_windows(out);
      if (speculation_ != nullptr) speculation_->snapshot(job.slot, draft_windows(out));
    }
  }
  prefix_->touch(std::span(job.chain).last(job.chain.empty() ? 0 : 1));
}

}  // namespace cedra::engine

// One step: who runs, with which rows, and what of it the prefix cache keeps.
#include <algorithm>
#include <cassert>

#include "engine/clock.h"
#include "engine/local_engine.h"

namespace cedra::engine {

void LocalEngine::step() {
  runnable_.clear();
  ready_.clear();
  for (const auto& job : running_) {
    const bool decoding = job->decoding();
    const int64_t rows = rows_ready(*job);
    if (!decoding && rows == 0) continue;
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
  after_step(ran_, ran_rows_);
  std::erase_if(running_, [](const auto& job) { return job->sink == nullptr; });
}

// Blocks for the next rows, and the segment.
void LocalEngine::prepare(Job& job, int64_t rows) {
  cache::Sequence& sequence = *job.sequence;
  const int64_t begin = sequence.length;
  const int64_t end = begin + rows;
  while (static_cast<int64_t>(sequence.blocks.size()) < plan_.layout.blocks_for(end)) {
    if (pool_->free_count() == 0) prefix_->make_room(1);
    const cache::BlockId block = pool_->take();
    assert(block >= 0);  // reserved at admission
    sequence.blocks.push_back(block);
  }
  job.captures.clear();
  if (job.uses_cache) publish_blocks(job, end);

  model::Segment segment;
  segment.sequence = &sequence;
  segment.tokens =
      std::span(*job.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
  const bool prompt_done = end >= job.prompt_size;
  segment.want = prompt_done ? model::Want::kLast : model::Want::kNone;
  if (job.request.sampling.prompt_logprobs >= 0 && begin < job.prompt_size) {
    segment.want = model::Want::kAll;
  }
  segment.bounded = job.bounded && begin < job.prompt_size;
  segment.more_follows = !prompt_done;
  segment.replay_until = job.replay_until;
  place_images(job, segment);
  segments_.push_back(segment);
}

// Hands the blocks that these rows will fill to the prefix cache. It happens before the rows are
// computed, so that windows can be captured on the way; nobody can look them up before the step
// ends.
void LocalEngine::publish_blocks(Job& job, int64_t end) {
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
    if (plan_.window_records == 0 || border <= job.sequence->length) continue;
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
    if (uint8_t* out = prefix_->store_window(node, newest)) job.captures.push_back({border, out});
  }
  prefix_->touch(std::span(job.chain).last(job.chain.empty() ? 0 : 1));
}

}  // namespace cedra::engine

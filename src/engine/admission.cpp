// Requests come and go: from the inbox into the queue, from there into a slot, and out again.
#include <algorithm>

#include "engine/clock.h"
#include "engine/local_engine.h"
#include "engine/request_checks.h"

namespace cedra::engine {

void LocalEngine::take_inbox() {
  for (auto& job : arrived_) {
    // Lower priority value first; within one, the order of arrival.
    const auto place = std::upper_bound(
        queue_.begin(), queue_.end(), job,
        [](const auto& a, const auto& b) { return a->request.priority < b->request.priority; });
    queue_.insert(place, std::move(job));
  }
  arrived_.clear();

  bool all = false;
  {
    const std::lock_guard lock(mutex_);
    all = cancel_all_;
  }
  if (cancelled_.empty() && !all) return;
  const auto asked = [&](const auto& job) {
    return all || std::ranges::count(cancelled_, job->id) > 0;
  };
  for (auto& job : queue_) {
    if (asked(job)) {
      finish(*job, FinishReason::kCancelled);
      job.reset();
    }
  }
  std::erase(queue_, nullptr);
  for (auto& job : running_) {
    if (asked(job)) {
      finish(*job, FinishReason::kCancelled);
      job.reset();
    }
  }
  std::erase(running_, nullptr);
  cancelled_.clear();
}

// Requests whose time is over.
void LocalEngine::expire() {
  const auto now = Clock::now();
  const auto over = [&](const auto& job) {
    return job->request.deadline.has_value() && now > *job->request.deadline;
  };
  for (auto& job : running_) {
    if (!over(job)) continue;
    finish(*job, FinishReason::kCancelled);
    job.reset();
  }
  std::erase(running_, nullptr);
  for (auto& job : queue_) {
    if (!over(job)) continue;
    finish(*job, FinishReason::kCancelled);
    job.reset();
  }
  std::erase(queue_, nullptr);
}

// In order: the front waits until it fits, so nothing is overtaken for ever.
void LocalEngine::admit() {
  while (!queue_.empty() && start(*queue_.front())) {
    auto job = std::move(queue_.front());
    queue_.pop_front();
    const auto place = std::upper_bound(
        running_.begin(), running_.end(), job,
        [](const auto& a, const auto& b) { return a->request.priority < b->request.priority; });
    const int64_t tokens = job->prompt_size;
    running_.insert(place, std::move(job));
    const std::lock_guard lock(mutex_);
    --waiting_;
    ++in_slots_;
    waiting_tokens_ -= tokens;
  }
}

bool LocalEngine::start(Job& job) {
  // A running request can always have the blocks that it may come to need, so nothing ever has to
  // be taken back from it.
  if (blocks_reserved_ + job.blocks_reserved > plan_.blocks) return false;
  const auto slot = std::ranges::find(slots_, false, &Slot::busy);
  if (slot == slots_.end()) return false;
  slot->busy = true;
  blocks_reserved_ += job.blocks_reserved;
  job.slot = slot - slots_.begin();
  job.sequence = slot->sequence.get();
  job.sequence->reset();
  job.tokens = &slot->tokens;
  job.tokens->assign(job.request.prompt.begin(), job.request.prompt.end());
  job.sampling = std::make_unique<decode::SequenceSampling>(
      sampler_params(job.request.sampling, end_ids_, job.seed), job.request.prompt,
      info_.vocab_size);
  job.request.prompt = {};
  take_images(job);
  // Log probabilities of the prompt need every row through every layer.
  const bool all_rows = job.request.sampling.prompt_logprobs >= 0;
  job.bounded = plan_.bounded && !all_rows;
  job.uses_cache = options_.enable_prefix_caching && !all_rows;
  const size_t blocks = static_cast<size_t>(job.blocks_reserved);
  job.chain.reserve(blocks);
  job.generations.reserve(blocks);
  job.captures.reserve(blocks);
  job.drafts.reserve(static_cast<size_t>(kMaxSpeculativeTokens));
  if (speculation_ != nullptr) speculation_->reset(job.slot);
  if (job.uses_cache) adopt_prefix(job);
  leave_images(job, job.sequence->length);
  job.sequence->begin_prefill();
  return true;
}

// Starts the sequence behind the longest cached prefix that its mode can continue.
void LocalEngine::adopt_prefix(Job& job) {
  const int64_t size = plan_.layout.block_tokens;
  prefix_->match(job.chain_seed, *job.tokens, job.chain);
  // At least one row has to be computed.
  const int64_t most = (job.prompt_size - 1) / size;
  if (static_cast<int64_t>(job.chain.size()) > most) job.chain.resize(static_cast<size_t>(most));

  totals_.prefix_queries += job.prompt_size;

  cache::Sequence& sequence = *job.sequence;
  if (!plan_.bounded) {
    // Exactly: only where the windows were stored.
    job.chain.resize(static_cast<size_t>(prefix_->deepest_window(job.chain) + 1));
  } else if (static_cast<int64_t>(job.chain.size()) * size <= plan_.layout.window) {
    job.chain.clear();  // not longer than what the replay recomputes
  }
  if (job.chain.empty()) return;
  const int64_t hit = static_cast<int64_t>(job.chain.size()) * size;
  for (const cache::NodeId node : job.chain) {
    pool_->retain(prefix_->block(node));
    sequence.blocks.push_back(prefix_->block(node));
    job.generations.push_back(prefix_->generation(node));
  }
  prefix_->touch(job.chain);
  job.cached_tokens = hit;
  totals_.prompt_tokens += hit;
  totals_.cached_prompt_tokens += hit;
  if (plan_.bounded) {
    const int64_t begin = hit - plan_.layout.window;
    sequence.length = begin;
    sequence.encoder_window_start = begin;
    sequence.decoder_window_start = begin;
    job.replay_until = hit;
  } else {
    const uint8_t* windows = prefix_->use_window(job.chain.back());
    sequence.restore_windows(windows);
    sequence.length = hit;
    if (speculation_ != nullptr) speculation_->restore(job.slot, draft_windows(windows), hit);
  }
  if (const model::EngramHasher* hasher = model_->hasher()) {
    const int64_t begin = std::max<int64_t>(0, sequence.length - hasher->look_back());
    for (int64_t p = begin; p < sequence.length; ++p) {
      const int32_t token = (*job.tokens)[static_cast<size_t>(p)];
      sequence.engram_history.push_back(hasher->compress(token, is_image_row(token)));
    }
  }
}

// Tells the sink and gives everything back. A job without a sink is over.
void LocalEngine::finish(Job& job, FinishReason reason, std::optional<int32_t> stop_token,
                         std::optional<Error> error) {
  Finish result;
  result.reason = reason;
  result.stop_token = stop_token;
  result.usage = {job.prompt_size, job.cached_tokens, job.generated, job.draft_usage};
  result.error = std::move(error);
  ++(reason == FinishReason::kCancelled ? totals_.cancelled : totals_.finished);
  const bool was_running = job.sequence != nullptr;
  leave_images(job, job.prompt_size);
  release(job);
  // Whoever on_finish() wakes sees this request counted and its place free.
  publish_stats();
  {
    const std::lock_guard lock(mutex_);
    if (was_running) {
      --in_slots_;
    } else {
      --waiting_;
      waiting_tokens_ -= job.prompt_size;
    }
  }
  job.sink->on_finish(result);
  job.sink.reset();
  const std::lock_guard lock(mutex_);
  --open_;
  changed_.notify_all();
}

void LocalEngine::release(Job& job) {
  if (job.sequence == nullptr) return;
  // Blocks that drafts of the last step filled.
  if (speculation_ != nullptr && job.uses_cache && job.decoding()) {
    publish_blocks(job, std::min(job.sequence->length, static_cast<int64_t>(job.tokens->size())),
                   false);
  }
  for (const cache::BlockId block : job.sequence->blocks) pool_->release(block);
  job.sequence->reset();
  job.sequence = nullptr;
  blocks_reserved_ -= job.blocks_reserved;
  slots_[static_cast<size_t>(job.slot)].busy = false;
}

}  // namespace cedra::engine

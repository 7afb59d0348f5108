#include "engine/local_engine.h"

#include <algorithm>
#include <cassert>
#include <random>

#include "engine/request_checks.h"

namespace cedra::engine {

using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Result<std::unique_ptr<LocalEngine>> LocalEngine::create(std::unique_ptr<model::Model> model,
                                                         const kernels::Ops& ops,
                                                         const Options& options, EnginePlan plan,
                                                         std::vector<int32_t> end_ids,
                                                         std::vector<int32_t> forbidden) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine(std::move(model), options, std::move(plan),
                                                      std::move(end_ids), std::move(forbidden)));
  engine->info_.isa = std::string(ops.name);
  engine->team_ = std::make_unique<Team>(TeamOptions{.threads = engine->plan_.threads});
  engine->info_.threads = engine->team_->size();
  CEDRA_ASSIGN(cache::BlockPool pool,
               cache::BlockPool::create(engine->plan_.layout, engine->plan_.blocks));
  engine->pool_ = std::make_unique<cache::BlockPool>(std::move(pool));
  engine->prefix_ =
      std::make_unique<cache::PrefixCache>(*engine->pool_, engine->plan_.window_records);
  CEDRA_ASSIGN(engine->forward_, model::Forward::create(*engine->model_, ops, *engine->team_,
                                                        engine->plan_.forward, *engine->pool_));
  for (Slot& slot : engine->slots_) {
    slot.sequence =
        std::make_unique<cache::Sequence>(engine->pool_->layout(), engine->plan_.sequence);
    slot.tokens.reserve(static_cast<size_t>(engine->plan_.context_length) + 1);
  }
  engine->thread_ = std::thread([raw = engine.get()] { raw->loop(); });
  return engine;
}

LocalEngine::LocalEngine(std::unique_ptr<model::Model> model, const Options& options,
                         EnginePlan plan, std::vector<int32_t> end_ids,
                         std::vector<int32_t> forbidden)
    : options_(options),
      plan_(std::move(plan)),
      model_(std::move(model)),
      sampler_(model_->text().vocab_size, forbidden),
      fingerprint_(model_->checkpoint().folder().string()),
      end_ids_(std::move(end_ids)),
      slots_(static_cast<size_t>(options.max_num_seqs)) {
  info_.context_length = plan_.context_length;
  info_.vocab_size = model_->text().vocab_size;
  info_.eos_token_id = static_cast<int32_t>(model_->config().eos_token_id);
  info_.max_num_seqs = options.max_num_seqs;
  info_.max_queue = options.max_queue;
  const size_t seqs = slots_.size();
  running_.reserve(seqs);
  runnable_.reserve(seqs);
  segments_.reserve(seqs);
  ran_.reserve(seqs);
  ran_rows_.reserve(seqs);
  const size_t open = seqs + static_cast<size_t>(options.max_queue);
  inbox_.reserve(open);
  arrived_.reserve(open);
  cancel_inbox_.reserve(open);
  cancelled_.reserve(open);
  totals_.cache_blocks_total = plan_.blocks;
}

LocalEngine::~LocalEngine() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = cancel_all_ = quit_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// ---- other threads

Result<RequestId> LocalEngine::submit(Request request, std::shared_ptr<Sink> sink) {
  CEDRA_TRY(check_request(request, info_));
  auto job = std::make_unique<Job>();
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens;
  job->blocks_reserved = plan_.layout.blocks_for(tokens);
  if (job->blocks_reserved > plan_.blocks) {
    return err(Code::kTooLarge, "prompt and answer need {} cache blocks, the cache has {}",
               job->blocks_reserved, plan_.blocks);
  }
  job->seed = request.sampling.seed.has_value() ? *request.sampling.seed : std::random_device{}();
  job->chain_seed = cache::PrefixCache::chain_seed(fingerprint_, request.cache_salt);
  job->prompt_size = static_cast<int64_t>(request.prompt.size());
  job->request = std::move(request);
  job->sink = std::move(sink);

  const std::lock_guard lock(mutex_);
  if (draining_) return err(Code::kUnavailable, "the server is shutting down");
  const int64_t free_slots = info_.max_num_seqs - in_slots_;
  if (waiting_ >= info_.max_queue + free_slots) {
    return err(Code::kExhausted, "all {} slots are in use and {} requests wait already; try later",
               info_.max_num_seqs, waiting_);
  }
  if (waiting_ > 0 && waiting_tokens_ + job->prompt_size > plan_.queue_tokens) {
    return err(Code::kExhausted, "{} prompt tokens wait already, {} is the most; try later",
               waiting_tokens_, plan_.queue_tokens);
  }
  job->id = next_id_++;
  const RequestId id = job->id;
  ++open_;
  ++waiting_;
  waiting_tokens_ += job->prompt_size;
  inbox_.push_back(std::move(job));
  changed_.notify_all();
  return id;
}

void LocalEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancel_inbox_.push_back(id);
  changed_.notify_all();
}

Stats LocalEngine::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = published_;
  stats.waiting = waiting_;
  return stats;
}

void LocalEngine::drain(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto idle = [&] { return open_ == 0; };
  if (changed_.wait_for(lock, grace, idle)) return;
  cancel_all_ = true;
  changed_.notify_all();
  changed_.wait(lock, idle);
}

// ---- the engine's thread

void LocalEngine::loop() {
  while (wait_for_work()) {
    const Clock::time_point begin = Clock::now();
    take_inbox();
    expire();
    admit();
    if (!running_.empty()) {
      step();
      totals_.step_seconds += seconds_since(begin);
    }
    publish_stats();
  }
}

bool LocalEngine::wait_for_work() {
  std::unique_lock lock(mutex_);
  const auto ready = [&] {
    return quit_ || (cancel_all_ && open_ > 0) || !inbox_.empty() || !cancel_inbox_.empty() ||
           !running_.empty() || !queue_.empty();
  };
  changed_.wait(lock, ready);
  arrived_.swap(inbox_);
  cancelled_.swap(cancel_inbox_);
  return !(quit_ && arrived_.empty() && running_.empty() && queue_.empty());
}

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
  // Log probabilities of the prompt need every row through every layer.
  const bool all_rows = job.request.sampling.prompt_logprobs >= 0;
  job.bounded = plan_.bounded && !all_rows;
  job.uses_cache = options_.enable_prefix_caching && !all_rows;
  const size_t blocks = static_cast<size_t>(job.blocks_reserved);
  job.chain.reserve(blocks);
  job.generations.reserve(blocks);
  job.captures.reserve(blocks);
  if (job.uses_cache) adopt_prefix(job);
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
    sequence.restore_windows(prefix_->use_window(job.chain.back()));
    sequence.length = hit;
  }
  if (const model::EngramHasher* hasher = model_->hasher()) {
    const int64_t begin = std::max<int64_t>(0, sequence.length - hasher->look_back());
    for (int64_t p = begin; p < sequence.length; ++p) {
      sequence.engram_history.push_back(
          hasher->compress((*job.tokens)[static_cast<size_t>(p)], false));
    }
  }
}

void LocalEngine::step() {
  runnable_.clear();
  for (const auto& job : running_) {
    runnable_.push_back(
        {.decoding = job->decoding(), .remaining = job->prompt_size - job->sequence->length});
  }
  schedule(runnable_, options_.max_num_batched_tokens, turn_++);

  segments_.clear();
  ran_.clear();
  ran_rows_.clear();
  for (size_t i = 0; i < running_.size(); ++i) {
    const int64_t rows = runnable_[i].take;
    if (rows == 0) continue;
    prepare(*running_[i], rows);
    ran_.push_back(running_[i].get());
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
          job.prompt_tokens.emplace_back().id = job.tokens->front();
        }
        if (next < job.prompt_size) {
          job.prompt_tokens.push_back(
              make_token((*job.tokens)[static_cast<size_t>(next)], logits_of(row), top));
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

// Tells the sink and gives everything back. A job without a sink is over.
void LocalEngine::finish(Job& job, FinishReason reason, std::optional<int32_t> stop_token,
                         std::optional<Error> error) {
  Finish result;
  result.reason = reason;
  result.stop_token = stop_token;
  result.usage = {job.prompt_size, job.cached_tokens, job.generated};
  result.error = std::move(error);
  ++(reason == FinishReason::kCancelled ? totals_.cancelled : totals_.finished);
  const bool was_running = job.sequence != nullptr;
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
  for (const cache::BlockId block : job.sequence->blocks) pool_->release(block);
  job.sequence->reset();
  job.sequence = nullptr;
  blocks_reserved_ -= job.blocks_reserved;
  slots_[static_cast<size_t>(job.slot)].busy = false;
}

void LocalEngine::publish_stats() {
  totals_.running = std::ranges::count(slots_, true, &Slot::busy);
  totals_.cache_blocks_used = pool_->used_count();
  totals_.cache_blocks_cached = prefix_->cached_blocks();
  const std::lock_guard lock(mutex_);
  published_ = totals_;
}

}  // namespace cedra::engine

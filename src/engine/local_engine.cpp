// Construction, the doors for other threads, and the loop. Requests come and go in admission.cpp,
// step.cpp runs the model, tokens.cpp turns logits into tokens.
#include "engine/local_engine.h"

#include <algorithm>
#include <random>
#include <system_error>

#include "engine/clock.h"
#include "engine/request_checks.h"
#include "parallel/populate.h"

namespace cedra::engine {

Result<std::unique_ptr<LocalEngine>> LocalEngine::create(std::unique_ptr<model::Model> model,
                                                         const kernels::Ops& ops,
                                                         const Options& options, EnginePlan plan,
                                                         std::vector<int32_t> end_ids,
                                                         std::vector<int32_t> forbidden) {
  std::unique_ptr<LocalEngine> engine(
      new LocalEngine(std::move(model), options, std::move(plan), std::move(end_ids), forbidden));
  engine->info_.isa = std::string(ops.name);
  try {
    engine->team_ = std::make_unique<Team>(TeamOptions{.threads = engine->plan_.threads});
  } catch (const std::system_error& refused) {
    return err(
        Code::kExhausted,
        "the system refuses {} threads ({}): lower --threads or raise the limit of processes",
        engine->plan_.threads, refused.code().message());
  }
  engine->info_.threads = engine->team_->size();
  CEDRA_ASSIGN(cache::BlockPool pool,
               cache::BlockPool::create(engine->plan_.layout, engine->plan_.blocks));
  engine->pool_ = std::make_unique<cache::BlockPool>(std::move(pool));
  CEDRA_TRY(populate(*engine->team_, engine->pool_->memory()));
  const SpeculativeConfig& speculative = engine->plan_.speculative;
  engine->prefix_ = std::make_unique<cache::PrefixCache>(
      *engine->pool_, engine->plan_.window_records,
      speculative.on() ? Speculation::snapshot_bytes(engine->model_->text()) : 0);
  CEDRA_ASSIGN(engine->forward_, model::Forward::create(*engine->model_, ops, *engine->team_,
                                                        engine->plan_.forward, *engine->pool_));
  if (engine->plan_.image_pages > 0) {
    CEDRA_ASSIGN(engine->images_, ImageStore::create(*engine->model_, ops, *engine->team_,
                                                     engine->plan_.image_pages));
  }
  if (speculative.on()) {
    CEDRA_ASSIGN(engine->speculation_,
                 Speculation::create(*engine->model_, ops, *engine->team_, speculative,
                                     options.max_num_seqs, engine->plan_.draft_rows, forbidden));
  }
  for (Slot& slot : engine->slots_) {
    slot.sequence =
        std::make_unique<cache::Sequence>(engine->pool_->layout(), engine->plan_.sequence);
    slot.tokens.reserve(static_cast<size_t>(engine->plan_.context_length) + 1 +
                        kMaxSpeculativeTokens);
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
  info_.grammar_bytes = plan_.grammar_bytes;
  const Config& config = model_->config();
  if (plan_.image_pages > 0) {
    info_.vision = {.rules = {.patch_size = config.vision->patch_size,
                              .downsample_ratio = config.vision->downsample_ratio,
                              .max_image_tokens = config.vision->max_image_tokens,
                              .min_pixels = config.vision->min_pixels},
                    .token_id = static_cast<int32_t>(config.image_token_id)};
    // A step's views into them have to stay where they are.
    row_kinds_.reserve(static_cast<size_t>(plan_.forward.max_rows));
    row_embeddings_.reserve(static_cast<size_t>(plan_.forward.max_rows));
  }
  const size_t seqs = slots_.size();
  running_.reserve(seqs);
  ready_.reserve(seqs);
  runnable_.reserve(seqs);
  segments_.reserve(seqs);
  ran_.reserve(seqs);
  ran_rows_.reserve(seqs);
  const size_t open = seqs + static_cast<size_t>(options.max_queue);
  inbox_.reserve(open);
  arrived_.reserve(open);
  cancel_inbox_.reserve(open);
  cancelled_.reserve(open);
  draft_jobs_.reserve(seqs);
  new_tokens_.reserve(static_cast<size_t>(1 + kMaxSpeculativeTokens));
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
  CEDRA_TRY(check_images(request, info_));
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
  const std::vector<ImageSpan>& images = job->request.images;
  const int64_t pixels = PixelCount().added(images);
  if (pixels > plan_.image_queue_bytes) {
    return err(Code::kTooLarge,
               "the images of the request have {} bytes of pixels, {} is the most; send fewer",
               pixels, plan_.image_queue_bytes);
  }
  if (pixels_.bytes() + pixels_.added(images) > plan_.image_queue_bytes) {
    return err(Code::kExhausted,
               "images of {} bytes of pixels wait already, {} is the most; try later",
               pixels_.bytes(), plan_.image_queue_bytes);
  }
  for (const ImageSpan& span : images) pixels_.add(span.image);
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
      if (images_ != nullptr) encode_images();
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

void LocalEngine::publish_stats() {
  totals_.running = std::ranges::count(slots_, true, &Slot::busy);
  totals_.cache_blocks_used = pool_->used_count();
  totals_.cache_blocks_cached = prefix_->cached_blocks();
  if (images_ != nullptr) {
    totals_.images_encoded = images_->encoded();
    totals_.images_reused = images_->reused();
  }
  const std::lock_guard lock(mutex_);
  published_ = totals_;
}

}  // namespace cedra::engine

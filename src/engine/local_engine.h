// The engine of this process: continuous batching over the forward pass. Internal to engine/.
//
// One thread owns everything below: slots, caches, the team. Other threads only leave requests and
// cancellations in the inbox and read the published statistics.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_cache.h"
#include "cache/sequence.h"
#include "decode/sampler.h"
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "engine/image_spans.h"
#include "engine/image_store.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "model/forward.h"
#include "model/model.h"
#include "parallel/team.h"

namespace cedra::engine {

class LocalEngine final : public Engine {
 public:
  // `end_ids`: any of them ends an answer. `forbidden`: ids that are never produced. Takes all
  // memory of the plan.
  static Result<std::unique_ptr<LocalEngine>> create(std::unique_ptr<model::Model> model,
                                                     const kernels::Ops& ops,
                                                     const Options& options, EnginePlan plan,
                                                     std::vector<int32_t> end_ids,
                                                     std::vector<int32_t> forbidden);
  ~LocalEngine() override;

  const Info& info() const override { return info_; }
  Result<RequestId> submit(Request request, std::shared_ptr<Sink> sink) override;
  void cancel(RequestId id) override;
  Stats stats() const override;
  void drain(std::chrono::milliseconds grace) override;

 private:
  // One request, queued or running. Between two steps either a prompt with rows to go
  // (sequence->length < prompt size) or decoding with exactly one token not yet committed.
  struct Job {
    RequestId id = 0;
    Request request;  // the prompt moves to the slot's memory at the start
    int64_t prompt_size = 0;
    std::shared_ptr<Sink> sink;
    uint64_t seed = 0;
    int64_t blocks_reserved = 0;

    cache::Sequence* sequence = nullptr;
    int64_t slot = -1;
    std::vector<int32_t>* tokens = nullptr;  // prompt, then generated; the slot's memory
    std::unique_ptr<decode::SequenceSampling> sampling;
    int64_t replay_until = 0;
    int64_t cached_tokens = 0;
    int64_t generated = 0;
    bool bounded = false;
    bool uses_cache = false;
    uint64_t chain_seed = 0;
    std::vector<cache::NodeId> chain;   // published blocks from the front
    std::vector<uint32_t> generations;  // of the chain's nodes
    std::vector<model::WindowCapture> captures;
    std::vector<Token> prompt_tokens;  // prompt log probabilities so far
    std::vector<SpanUse> images;
    size_t next_image = 0;        // the first that is not done with
    std::vector<int32_t> drafts;  // to verify in this step, after the newest token
    DraftUsage draft_usage;

    bool decoding() const { return sequence->length >= prompt_size; }
  };
  struct Slot {
    std::unique_ptr<cache::Sequence> sequence;
    std::vector<int32_t> tokens;
    bool busy = false;
  };

  LocalEngine(std::unique_ptr<model::Model> model, const Options& options, EnginePlan plan,
              std::vector<int32_t> end_ids, std::vector<int32_t> forbidden);

  void loop();
  bool wait_for_work();  // false: time to leave
  void take_inbox();
  void admit();
  bool start(Job& job);  // into a slot; false: no room yet
  void adopt_prefix(Job& job);
  void step();
  void draft();
  int64_t useful_drafts(const Job& job) const;
  void prepare(Job& job, int64_t rows);
  void take_images(Job& job);
  void leave_images(Job& job, int64_t position);
  void drop_pixels(std::shared_ptr<const image::Prepared>& image);
  int64_t rows_ready(const Job& job) const;
  void encode_images();
  void place_images(const Job& job, model::Segment& segment);
  int32_t shown_id(int32_t token) const;
  void publish_blocks(Job& job, int64_t end, bool windows);
  // The part of a stored window record that is the draft stages'.
  uint8_t* draft_windows(uint8_t* record) const;
  const uint8_t* draft_windows(const uint8_t* record) const;
  void after_step();
  void take_prompt_rows(Job& job, int64_t rows, int64_t first_row);
  void take_tokens(Job& job, int64_t first_row);
  Result<> choose_by_drawing(Job& job, int64_t first_row);
  Result<> choose_by_verdict(Job& job, int64_t first_row);
  bool ends(const Job& job, int32_t id) const;
  void deliver(Job& job);
  void commit_taps();
  Token make_token(int32_t id, const float* logits, int top);
  std::span<const float> logits_of(int64_t row, int64_t count = 1);
  void finish(Job& job, FinishReason reason, std::optional<int32_t> stop_token = std::nullopt,
              std::optional<Error> error = std::nullopt);
  void release(Job& job);
  void expire();
  void publish_stats();

  Options options_;
  EnginePlan plan_;
  Info info_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<cache::BlockPool> pool_;
  std::unique_ptr<cache::PrefixCache> prefix_;
  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<ImageStore> images_;        // null: no images
  std::unique_ptr<Speculation> speculation_;  // null: without drafts
  decode::Sampler sampler_;
  std::string fingerprint_;
  std::vector<int32_t> end_ids_;

  // Engine thread only.
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Job>> running_;  // by priority and arrival
  std::deque<std::unique_ptr<Job>> queue_;     // likewise
  std::vector<std::unique_ptr<Job>> arrived_;  // taken from the inbox
  std::vector<RequestId> cancelled_;
  std::vector<Job*> ready_;  // the running ones that do not wait for an image
  std::vector<Runnable> runnable_;
  std::vector<model::Segment> segments_;
  std::vector<Job*> ran_;
  std::vector<int64_t> ran_rows_;
  std::vector<decode::TokenLogprob> top_;
  std::vector<model::RowKind> row_kinds_;  // of the step's segments with images
  std::vector<const bf16*> row_embeddings_;
  std::vector<DraftJob> draft_jobs_;
  std::vector<Token> new_tokens_;  // of the request in hand
  std::span<const float> logits_;  // rows [logits_begin_, logits_end_) of the step
  int64_t logits_begin_ = 0;
  int64_t logits_end_ = 0;
  StepOutcome outcome_;
  int64_t blocks_reserved_ = 0;
  uint64_t turn_ = 0;
  Stats totals_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Job>> inbox_;
  std::vector<RequestId> cancel_inbox_;
  RequestId next_id_ = 1;
  int64_t open_ = 0;            // accepted and not finished
  int64_t waiting_ = 0;         // accepted and not in a slot
  int64_t in_slots_ = 0;        // admitted and not finished
  int64_t waiting_tokens_ = 0;  // of their prompts
  PixelCount pixels_;
  bool draining_ = false;
  bool cancel_all_ = false;
  bool quit_ = false;
  Stats published_;
  std::thread thread_;
};

}  // namespace cedra::engine

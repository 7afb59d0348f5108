// All that the server and the terminal see of inference: submit a request of token ids, get tokens
// through a sink, cancel. Text, HTTP and prompts live above; tensors and caches below.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "image/prepared.h"

namespace cedra::decode {
class Grammar;
}

namespace cedra::engine {

using RequestId = uint64_t;

// How the next token is chosen. Defaults are the model card's.
struct SamplingParams {
  double temperature = 1.0;         // 0 = greedy (ties to the lower id)
  double top_p = 0.95;              // (0, 1]
  int64_t top_k = 0;                // 0 = off
  double min_p = 0.0;               // [0, 1]
  double repetition_penalty = 1.0;  // > 0, over prompt and output
  double frequency_penalty = 0.0;   // [-2, 2], over output
  double presence_penalty = 0.0;    // [-2, 2], over output
  std::optional<uint64_t> seed;     // absent: drawn at submission
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> stop_token_ids;  // besides EOS
  int64_t max_tokens = 16;              // tokens to generate, >= 1
  int64_t min_tokens = 0;               // EOS and stop ids are masked before
  bool ignore_eos = false;
  // What the answer must be (decode/grammar.h); excludes ignore_eos.
  std::shared_ptr<const decode::Grammar> grammar;
  int top_logprobs = -1;     // -1 = none; 0 = chosen token only; n = best n as well
  int prompt_logprobs = -1;  // likewise for prompt positions (keeps all rows)
};

struct Logprob {
  int32_t token = 0;
  float logprob = 0;
};

struct Token {
  int32_t id = 0;
  float logprob = 0;         // of the model's distribution before penalties; if asked for
  std::vector<Logprob> top;  // best first; if asked for
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

// Of speculative decoding.
struct DraftUsage {
  int64_t drafted = 0;   // tokens that the draft stages proposed
  int64_t verified = 0;  // of them, how many a step ran
  int64_t accepted = 0;  // of those, how many became the answer
  int64_t blocks = 0;    // steps with drafts to verify: each yields its accepted drafts and a token
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // prompt tokens served from the prefix cache
  int64_t completion_tokens = 0;  // includes the stop token, if one ended it
  DraftUsage drafts = {};
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::optional<int32_t> stop_token;  // EOS or the stop id that ended it; not delivered as a token
  Usage usage;
  std::optional<Error> error;  // kError
};

// Receives one request's results, on the engine's thread: must not block. Destroyed after
// on_finish.
class Sink {
 public:
  virtual ~Sink() = default;
  // Prompt rows done so far, once per prefill chunk.
  virtual void on_prefill(int64_t /*done*/, int64_t /*total*/) {}
  // One token per prompt position. Nothing predicts the first: its log probability means nothing.
  virtual void on_prompt_logprobs(std::span<const Token> /*tokens*/) {}
  // A new token. False: the text is complete (a stop string, say); the request finishes as kStop
  // before another token is computed.
  virtual bool on_token(const Token& token) = 0;
  // Last call, exactly once for each request that submit() accepted.
  virtual void on_finish(const Finish& finish) = 0;
};

// An image in a prompt: its span of placeholder ids begins at `position`. Requests and spans may
// share one picture.
struct ImageSpan {
  int64_t position = 0;
  std::shared_ptr<const image::Prepared> image;
};

struct Request {
  std::vector<int32_t> prompt;    // not empty
  std::vector<ImageSpan> images;  // by position, not overlapping, each inside the prompt
  SamplingParams sampling;
  int priority = 0;        // lower runs first
  std::string cache_salt;  // prefix-cache hits only within one salt
  // Past it the request ends as kCancelled, wherever it is.
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// What a model with a vision tower wants of images.
struct VisionInfo {
  image::PatchRules rules;
  int32_t token_id = 0;  // fills the span of an image in the prompt
};

// What a loaded engine can do; constant after start.
struct Info {
  std::optional<VisionInfo> vision;  // absent: takes no images
  int64_t context_length = 0;        // prompt + output, at most
  int64_t vocab_size = 0;
  int32_t eos_token_id = 1;
  std::string isa;  // kernel level in use
  int threads = 0;
  int64_t max_num_seqs = 1;
  int64_t max_queue = 0;
  int64_t grammar_bytes = int64_t{256} << 20;  // what whoever compiles grammars may take for them
};

struct Stats {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t prompt_tokens = 0;  // totals since start; computed or served from the prefix cache
  int64_t generated_tokens = 0;
  int64_t prefix_queries = 0;        // prompt tokens that were looked up in the prefix cache
  int64_t cached_prompt_tokens = 0;  // and those that were found
  int64_t images_encoded = 0;        // by the vision tower
  int64_t images_reused = 0;         // found encoded
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t steps = 0;
  // Time of all steps with everything around them (waiting for work is not), and of that, the
  // forward pass and the choice of tokens. The rest is overhead: scheduling, bookkeeping, sinks.
  double step_seconds = 0;
  double forward_seconds = 0;
  double sampling_seconds = 0;
  // Speculative decoding; zero without it.
  DraftUsage drafts;
  static constexpr size_t kDraftPositions = 16;
  std::array<int64_t, kDraftPositions> draft_accepted_at{};  // accepted drafts by their place
  double verify_seconds = 0;        // of the steps with drafts, beside drafting
  double draft_seconds = 0;         // in the draft stages, taps included
  int64_t decode_steps = 0;         // steps that could have had drafts
  int64_t undrafted_steps = 0;      // of them, those in which drafting was switched off
  int64_t cache_blocks_used = 0;    // by running requests
  int64_t cache_blocks_cached = 0;  // held for later requests, some of them also used
  int64_t cache_blocks_total = 0;
};

// Thread-safe. Implementations: the real one (create_engine) and tests' scripted ones.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const Info& info() const = 0;
  // Checks and queues. Errors: kInvalid (names the parameter), kTooLarge (prompt over the context),
  // kUnsupported (images for a model without a tower), kExhausted (queue full, by requests, by
  // their prompts' tokens or by the bytes of their images), kUnavailable (draining).
  virtual Result<RequestId> submit(Request request, std::shared_ptr<Sink> sink) = 0;
  // The request stops within one chunk; its sink gets kCancelled. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  virtual Stats stats() const = 0;
  // No new requests; returns when the running ones are done, or cancels them after the grace time.
  virtual void drain(std::chrono::milliseconds grace) = 0;
};

}  // namespace cedra::engine

#include "engine/engine_plan.h"

#include <algorithm>
#include <numeric>

#include "cache/prefix_cache.h"
#include "decode/grammar_compile.h"
#include "decode/sampler.h"
#include "engine/image_store.h"
#include "engine/speculation.h"
#include "kernels/ops.h"
#include "parallel/topology.h"

namespace cedra::engine {
namespace {

// Rows of logits computed together: enough for the head's matrix form to be efficient.
constexpr int64_t kLogitRows = 32;
// Share of what the machine has left beside the weights that the engine takes by default.
constexpr double kBudgetShare = 0.8;
// Weights are file pages: a machine that cannot hold them all still runs, from disk. The engine
// then plans with at least this share of memory.
constexpr double kLeastShare = 0.1;
// Prompts that wait: so many full contexts, or so many tokens if contexts are short.
constexpr int64_t kQueuedContexts = 4;
constexpr int64_t kLeastQueueTokens = 1 << 18;
// What a member's stack comes to hold; the AMX kernels unpack weights there.
constexpr int64_t kStackBytes = 64 << 10;
constexpr int64_t kAmxStackBytes = 1 << 20;
// By default: room for so many of the largest image, encoded, and for no more than this share of
// the budget; the same share bounds pixels that wait.
constexpr int64_t kImagesKept = 32;
constexpr int64_t kImageShare = 16;
// By default grammars take what a full cache of them does, and no more than this share.
constexpr int64_t kGrammarShare = 16;
// Per block: its node, buckets and free lists of the prefix tree and the pool.
constexpr int64_t kNodeBytes = 96;
// Per block that a running request may fill: its place in the request's chain.
constexpr int64_t kChainBytes =
    sizeof(cache::NodeId) + sizeof(uint32_t) + sizeof(model::WindowCapture);

int64_t default_budget(int64_t available, int64_t mapped) {
  const double left = static_cast<double>(available - std::min(available, mapped));
  return static_cast<int64_t>(kBudgetShare *
                              std::max(left, kLeastShare * static_cast<double>(available)));
}

Result<> check_options(const Config& config, const Options& options) {
  const TextConfig& text = config.text;
  if (options.max_model_len < 0 || options.max_model_len > text.max_position_embeddings) {
    return err(Code::kInvalid, "max-model-len must be between 1 and the model's {}, got {}",
               text.max_position_embeddings, options.max_model_len);
  }
  const auto at_least_one = [](const char* name, int64_t value) -> Result<> {
    if (value >= 1) return {};
    return err(Code::kInvalid, "{} must be at least 1, got {}", name, value);
  };
  CEDRA_TRY(at_least_one("max-num-seqs", options.max_num_seqs));
  CEDRA_TRY(at_least_one("max-num-batched-tokens", options.max_num_batched_tokens));
  CEDRA_TRY(at_least_one("window-interval", options.window_interval));
  if (options.max_queue < 0) {
    return err(Code::kInvalid, "max-queue must not be negative, got {}", options.max_queue);
  }
  if (options.window_records < 0) {
    return err(Code::kInvalid, "window-records must not be negative, got {}",
               options.window_records);
  }
  if (options.prefill_mode == PrefillMode::kBounded && text.replay_seam() < 0) {
    return err(
        Code::kInvalid,
        "bounded prefill is not defined for this model (its last KV source is not the middle "
        "layer, or an Engram layer follows it): use --prefill-mode exact");
  }
  return {};
}

// The tower's workspace, encoded images, and the pixels of those that are not encoded yet.
void plan_images(const Config& config, const Options& options, EnginePlan& plan) {
  plan::MemoryPlan& memory = plan.memory;
  const ImageSizes sizes(config);
  const int64_t rows = plan.forward.max_rows;
  const int64_t cache = options.image_cache_bytes > 0
                            ? options.image_cache_bytes
                            : std::min(kImagesKept * sizes.pages_per_image * sizes.page_bytes,
                                       memory.budget / kImageShare);
  plan.image_pages = std::max(cache / sizes.page_bytes, sizes.pages_per_image);
  const int64_t context =
      (plan.context_length / config.vision->max_image_tokens + 1) * sizes.pixel_bytes;
  plan.image_queue_bytes = options.image_queue_bytes > 0
                               ? options.image_queue_bytes
                               : std::min(2 * context, memory.budget / kImageShare);
  plan.image_queue_bytes = std::max(plan.image_queue_bytes, sizes.pixel_bytes);
  memory.parts.push_back({"vision tower", sizes.tower_bytes(config, plan.threads), false, ""});
  memory.parts.push_back(
      {"encoded images",
       plan.image_pages * (sizes.page_bytes + sizes.page_overhead()) + rows * ImageSizes::kRowBytes,
       false, fmt::format("{} rows", plan.image_pages * ImageSizes::kPageRows)});
  memory.parts.push_back({"pixels of images", plan.image_queue_bytes, false,
                          "of requests whose images are not encoded yet"});
}

}  // namespace

Result<EnginePlan> make_plan(const Config& config, const Options& options, int64_t mapped_bytes,
                             int64_t resident) {
  CEDRA_TRY(check_options(config, options));
  const TextConfig& text = config.text;
  EnginePlan plan;
  plan.bounded = options.prefill_mode == PrefillMode::kBounded;
  plan.context_length =
      options.max_model_len > 0 ? options.max_model_len : text.max_position_embeddings;
  plan.threads = options.threads > 0 ? options.threads : read_topology().usable_threads();
  CEDRA_ASSIGN(plan.layout, cache::make_layout(text, options.block_size));
  if (text.num_nextn_predict_layers > 0) plan.speculative = options.speculative;
  SpeculativeConfig& drafts = plan.speculative;
  if (drafts.num_speculative_tokens == kTrainedBlock) {
    drafts.num_speculative_tokens = std::min(text.dspark_block_size, kMaxSpeculativeTokens);
  }
  const int64_t width = drafts.num_speculative_tokens;

  plan.sequence = {.max_tokens = plan.context_length,
                   .stream_width = text.hc_mult * text.hidden_size,
                   .copies = text.hc_mult,
                   .lookback = std::max<int64_t>(text.engram_max_ngram_size - 1, 0),
                   .keep_seam = plan.bounded,
                   .seam_tap_width = drafts.on() ? model::early_tap_width(text) : 0,
                   .max_rollback = width};
  if (drafts.on()) {
    // As many blocks as a step could verify drafts of, one at least.
    plan.draft_rows =
        std::max(width, std::min(options.max_num_seqs * width, options.max_num_batched_tokens));
  }
  plan.forward.max_rows = std::max(options.max_num_batched_tokens, text.sliding_window);
  plan.forward.max_segments = options.max_num_seqs;
  plan.forward.max_context = plan.context_length;
  plan.forward.draft_taps = drafts.on();
  plan.forward.max_logit_rows = std::min(kLogitRows, plan.forward.max_rows);
  plan.window_records = options.enable_prefix_caching && !plan.bounded ? options.window_records : 0;

  const int64_t window_bytes =
      plan.layout.layers * plan.layout.window * plan.layout.window_record_bytes() +
      (drafts.on() ? Speculation::snapshot_bytes(text) : 0);
  const int64_t per_context = plan.layout.blocks_for(plan.context_length);
  const int64_t slots =
      options.max_num_seqs *
      (cache::Sequence::slot_bytes(plan.layout, plan.sequence) + per_context * kChainBytes);
  plan.queue_tokens = std::max(kQueuedContexts * plan.context_length, kLeastQueueTokens);
  // The sampler's workspace, and the counts of every request that uses penalties.
  const int64_t sampling =
      text.vocab_size * (decode::Sampler::kBytesPerToken +
                         options.max_num_seqs * decode::SequenceSampling::kBytesPerToken);
  const int64_t block_bytes =
      plan.layout.block_bytes + kNodeBytes + plan.layout.block_tokens * int64_t{sizeof(int32_t)};
  const kernels::Ops* ops = kernels::find_ops(options.isa);
  const bool uses_amx = ops != nullptr && ops->name == "amx";
  plan::MemoryPlan& memory = plan.memory;
  memory.available = plan::available_memory();
  memory.budget = options.memory_budget > 0 ? options.memory_budget
                                            : default_budget(memory.available, mapped_bytes);
  memory.parts = {
      {"weights", mapped_bytes, true, ""},
      {"program and tokenizer", resident, false, ""},
      {"workspaces", model::Forward::workspace_bytes(text, plan.forward, plan.threads), false,
       fmt::format("{} rows, {} threads", plan.forward.max_rows, plan.threads)},
      {"windows and request state", slots, false, fmt::format("{} requests", options.max_num_seqs)},
      {"tokens of requests",
       (options.max_num_seqs * plan.context_length + plan.queue_tokens) * int64_t{sizeof(int32_t)},
       false, fmt::format("{} of them waiting", plan.queue_tokens)},
      {"sampling", sampling, false, ""},
      {"stacks", plan.threads * (uses_amx ? kAmxStackBytes : kStackBytes), false, ""},
  };
  plan.grammar_bytes = options.grammar_bytes.value_or(
      std::min(decode::GrammarCache::kBytes, memory.budget / kGrammarShare));
  if (plan.grammar_bytes > 0) {
    memory.parts.push_back({"grammars", plan.grammar_bytes, false, "of structured outputs"});
  }
  if (config.vision.has_value()) plan_images(config, options, plan);
  if (drafts.on()) {
    memory.parts.push_back(
        {"drafts",
         Speculation::bytes(text, drafts, options.max_num_seqs, plan.draft_rows, plan.threads),
         false, fmt::format("blocks of {}", width)});
  }
  if (plan.window_records > 0) {
    memory.parts.push_back(
        {"stored windows", plan.window_records * window_bytes, false,
         fmt::format("{} of {}", plan.window_records, plan::format_bytes(window_bytes))});
  }

  const int64_t room = (memory.budget - memory.taken()) / block_bytes;
  if (room < per_context) {
    const int64_t missing = memory.taken() + per_context * block_bytes - memory.budget;
    return err(Code::kExhausted,
               "the plan needs {} more than the budget of {}: lower --max-model-len (now {}), "
               "--max-num-seqs (now {}) or --max-num-batched-tokens (now {}), or raise "
               "--memory-budget\n{}",
               plan::format_bytes(missing), plan::format_bytes(memory.budget), plan.context_length,
               options.max_num_seqs, options.max_num_batched_tokens, memory.to_text());
  }
  // Every request a full context and as much again for prefixes, if there is room.
  plan.blocks = std::min(room, 2 * options.max_num_seqs * per_context);
  memory.parts.push_back({"compressed cache", plan.blocks * block_bytes, false,
                          fmt::format("{} blocks of {} tokens, {:.1f} bytes per token", plan.blocks,
                                      plan.layout.block_tokens,
                                      static_cast<double>(plan.layout.block_bytes) /
                                          static_cast<double>(plan.layout.block_tokens))});
  memory.context_tokens = plan.blocks * plan.layout.block_tokens;
  return plan;
}

Result<plan::MemoryPlan> plan_memory(const Config& config, const Options& options,
                                     int64_t mapped_bytes) {
  CEDRA_ASSIGN(EnginePlan plan, make_plan(config, options, mapped_bytes));
  return std::move(plan.memory);
}

}  // namespace cedra::engine

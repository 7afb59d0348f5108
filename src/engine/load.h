// From a checkpoint folder to a running engine: open, plan, check against the memory there is, and
// only then allocate and start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/generation_config.h"
#include "engine/engine.h"
#include "engine/speculative_config.h"
#include "plan/memory_plan.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace cedra::engine {

enum class PrefillMode {
  // As the vendor deploys: layers from the seam on run on the last window of a prompt only, and a
  // prefix hit is continued by recomputing one window. Answers depend slightly on where the hit
  // was.
  kBounded,
  // All layers on all rows; prefix hits restore stored windows. Bits never depend on the cache.
  kExact,
};

struct Options {
  std::string isa;                       // kernel level, "" = fastest
  int threads = 0;                       // 0 = one per usable core
  int64_t max_model_len = 0;             // 0 = the config's context length
  int64_t max_num_seqs = 8;              // requests that run at once
  int64_t max_num_batched_tokens = 512;  // rows of a step
  int64_t max_queue = 256;               // requests that wait
  int64_t block_size = 64;               // tokens of a cache block
  PrefillMode prefill_mode = PrefillMode::kBounded;
  bool enable_prefix_caching = true;
  int64_t window_records = 16;   // stored windows for exact prefix hits
  int64_t window_interval = 16;  // blocks between two of them inside a prompt, as long as some
                                 // are unused
  int64_t memory_budget = 0;     // bytes beside the mapped weights; 0 = from the machine
  bool follow_symlinks = false;
  bool language_model_only = false;
  int64_t image_cache_bytes = 0;  // encoded images kept for later; 0 = a share of the budget
  int64_t image_queue_bytes = 0;  // pixels of accepted requests; 0 = a share of the budget
  // Grammars of structured outputs, in use or kept for later; absent = a share of the budget.
  std::optional<int64_t> grammar_bytes;
  bool populate = true;  // read the weights before the first request
  SpeculativeConfig
      speculative;  // needs draft stages in the checkpoint; without them it is ignored
};

// Stage names and how far they are, for a progress display. From the loading thread.
using Progress = std::function<void(std::string_view stage, int64_t done, int64_t total)>;

struct Loaded {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  text::SpecialTokens special;
  GenerationConfig generation;
  plan::MemoryPlan plan;
  std::string folder_name;      // default served name
  int64_t bytes_per_token = 0;  // weight bytes that one decoded token reads
  std::vector<std::string> warnings;
};

// Errors name the folder or the option: kNotFound, kCorrupt, kInvalid, kExhausted (the plan does
// not fit: says how much is missing and what to lower).
Result<Loaded> load(const std::filesystem::path& folder, const Options& options,
                    const Progress& progress = {});

// What load() would take, from config.json alone (`mapped_bytes` of weights as given), without the
// program and the tokenizer.
Result<plan::MemoryPlan> plan_memory(const Config& config, const Options& options,
                                     int64_t mapped_bytes);

}  // namespace cedra::engine

// Sizes of everything the engine takes, derived from config and options. Internal to engine/.
#pragma once

#include "cache/layout.h"
#include "cache/sequence.h"
#include "engine/load.h"
#include "model/forward.h"

namespace cedra::engine {

struct EnginePlan {
  plan::MemoryPlan memory;
  cache::CacheLayout layout;
  cache::SequenceLimits sequence;
  model::ForwardLimits forward;
  int64_t blocks = 0;
  int64_t window_records = 0;
  int64_t context_length = 0;
  SpeculativeConfig speculative;  // off where the checkpoint has no draft stages
  int64_t draft_rows = 0;         // of a proposal
  int64_t queue_tokens = 0;       // of prompts that wait, all together
  int64_t image_pages = 0;        // of the image store; 0: no images
  int64_t image_queue_bytes = 0;  // pixels of accepted requests, all together
  int64_t grammar_bytes = 0;      // of structured outputs
  bool bounded = false;
  int threads = 1;
};

// `resident`: bytes that the process has taken already (program, tokenizer). kInvalid for options
// that contradict the config, kExhausted if the budget cannot hold one full context.
Result<EnginePlan> make_plan(const Config& config, const Options& options, int64_t mapped_bytes,
                             int64_t resident = 0);

}  // namespace cedra::engine

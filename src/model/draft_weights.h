// The draft stages of a checkpoint (`mtp.*`, spec dspark.md 2) bound to their places. Embedding and
// head are the backbone's.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/weights.h"

namespace cedra::model {

struct DraftWeights {
  kernels::Matrix main_proj;              // FP8 [D, taps * D]
  const bf16* main_norm = nullptr;        // [D]
  std::vector<LayerWeights> stages;       // no compressor, indexer, Engram or image bias
  const bf16* norm = nullptr;             // [D], before the head
  const uint8_t* markov_embed = nullptr;  // BF16 [V, r], mapped
  kernels::Matrix markov_head;            // BF16 [V, r]
  kernels::Matrix confidence;             // BF16 [1, D + r]

  std::vector<std::unique_ptr<uint8_t[]>> vectors;  // the copies
};

// The checkpoint has draft stages (num_nextn_predict_layers > 0). Errors as bind_weights().
Result<DraftWeights> bind_draft_weights(const Checkpoint& checkpoint);

}  // namespace cedra::model

// The vision tower and the aligner of a checkpoint (`vision.*`, `aligner.*`, spec vision.md 2)
// bound to their places. The delimiters of a span are the backbone's (Weights::image_start, ...).
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/ops.h"

namespace cedra::model {

// Matrices are BF16; Dv tower width, I intermediate size, D text hidden size, R downsample ratio.
struct BiasedMatrix {
  kernels::Matrix weight;      // [N, K]
  const bf16* bias = nullptr;  // [N]
};

struct VisionBlockWeights {
  const bf16* norm1 = nullptr;  // [Dv]
  BiasedMatrix wqkv;            // [3 * Dv, Dv]: q, k, v, each by heads
  BiasedMatrix wo;              // [Dv, Dv]
  const bf16* norm2 = nullptr;  // [Dv]
  kernels::Matrix w1;           // [2 * I, Dv]: gate, up
  kernels::Matrix w2;           // [Dv, I]
};

struct VisionWeights {
  BiasedMatrix patch_embed;  // [Dv, 3 * P * P]
  std::vector<VisionBlockWeights> blocks;
  const bf16* norm = nullptr;  // [Dv]
  BiasedMatrix aligner_w1;     // [D, Dv * R * R], columns by channel
  BiasedMatrix aligner_w2;     // [D, D]

  std::vector<std::unique_ptr<uint8_t[]>> vectors;  // the copies
};

// The checkpoint has a vision tower. Errors as bind_weights().
Result<VisionWeights> bind_vision_weights(const Checkpoint& checkpoint);

}  // namespace cedra::model

// The tensors of a checkpoint bound to their places in the forward pass. Matrices and tables point
// into the mapped shards, at any alignment; vectors (norms, biases, sinks) are copied once, because
// a shard may put them at an odd address. Names of members follow the tensor names (spec
// model.md 2.1).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/ops.h"

namespace cedra::model {

// Hyper-connection weights of one sublayer: fn F32 [A, C*D], base [A], scale [3]; A = (2+C)*C.
struct HyperWeights {
  kernels::Matrix fn;
  const float* base = nullptr;
  const float* scale = nullptr;
};

struct CompressorWeights {
  kernels::Matrix wkv;                 // BF16 [Dh, D]
  kernels::Matrix wgate;               // BF16 [Dh, D], ratio > 1 only
  const bf16* norm = nullptr;          // [Dh]
  kernels::Matrix index_wk;            // BF16 [d_i, Dh]
  const bf16* index_k_norm = nullptr;  // [d_i]
};

struct IndexerWeights {
  kernels::Matrix wq_b;          // FP8 [H_i * d_i, q_lora]
  kernels::Matrix weights_proj;  // BF16 [H_i, D]
};

struct AttentionWeights {
  kernels::Matrix wq_a;                         // FP8 [q_lora, D]
  kernels::Matrix wq_b;                         // FP8 [H * Dh, q_lora]
  kernels::Matrix wkv;                          // FP8 [Dh, D]
  kernels::Matrix wo_a;                         // FP8 [G * o_lora, H * Dh / G]
  kernels::Matrix wo_b;                         // FP8 [D, G * o_lora]
  const bf16* q_norm = nullptr;                 // [q_lora]
  const bf16* kv_norm = nullptr;                // [Dh]
  const float* sink = nullptr;                  // [H]
  std::optional<CompressorWeights> compressor;  // KV sources
  std::optional<IndexerWeights> indexer;        // index sources
};

struct ExpertWeights {
  kernels::Matrix w1;  // gate [I, D]
  kernels::Matrix w3;  // up [I, D]
  kernels::Matrix w2;  // down [D, I]
};

struct MoeWeights {
  kernels::Matrix gate;            // BF16 [E, D]
  const float* bias = nullptr;     // [E]
  const float* bias_vl = nullptr;  // [E], image rows; absent without a vision tower
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;  // FP8
};

struct EngramWeights {
  const uint8_t* table = nullptr;         // E4M3 [rows, d_e]
  const uint8_t* table_scales = nullptr;  // E8M0 [rows, d_e / 32]
  kernels::Matrix wkv;                    // FP8 [(C+1) * D, columns * d_e]
  const bf16* q_weight = nullptr;         // [C, D]
  const bf16* k_weight = nullptr;         // [C, D]
};

struct LayerWeights {
  const bf16* attn_norm = nullptr;  // [D]
  const bf16* ffn_norm = nullptr;   // [D]
  HyperWeights hc_attn;
  HyperWeights hc_ffn;
  AttentionWeights attn;
  MoeWeights ffn;
  std::optional<EngramWeights> engram;
};

struct Weights {
  const uint8_t* embed = nullptr;  // BF16 [V, D], mapped
  const bf16* norm = nullptr;      // [D]
  kernels::Matrix head;            // BF16 [V, D]
  std::vector<LayerWeights> layers;
  // Delimiters of an image span, [D] each; absent without a vision tower.
  const bf16* image_start = nullptr;
  const bf16* image_end = nullptr;
  const bf16* image_newline = nullptr;

  std::vector<std::unique_ptr<uint8_t[]>> vectors;  // the copies
};

// Binds every backbone tensor. The checkpoint has already matched names, types and shapes against
// its registry, so an error here is a defect of ours, not of the folder.
Result<Weights> bind_weights(const Checkpoint& checkpoint);

}  // namespace cedra::model

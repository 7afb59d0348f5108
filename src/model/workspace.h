// Every buffer of a forward pass, taken once from one mapping and sized by the limits.
// Internal to model/. Dims: T rows of a step, C copies, D hidden, H heads, Dh head dim, E experts,
// K active experts, I expert width, V vocabulary, P = T * (K + 1) expert rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/pages.h"
#include "checkpoint/config.h"
#include "kernels/ops.h"
#include "model/top_k.h"

namespace cedra::model {

// What the buffers have to hold.
struct WorkspaceLimits {
  int64_t rows = 0;        // T
  int64_t logit_rows = 0;  // rows of FP32 logits
  int64_t entries = 0;     // longest attention list
  int64_t tap_rows = 0;    // rows of draft taps
  int64_t early_taps = 0;  // how many tap layers lie before the seam
};

// Scratch of one team member.
struct MemberScratch {
  bf16* keys = nullptr;          // [entries, Dh] gathered attention entries
  uint8_t* present = nullptr;    // [entries]
  float* attend = nullptr;       // kernels::attend_scratch_floats(Dh)
  float* scores = nullptr;       // [score_tile] index scores
  Scored* top_rows = nullptr;    // RunningTopK of index_topk
  Scored* top_blocks = nullptr;  // RunningTopK of candidate_topk_blocks
  float* angles = nullptr;       // [2, rope pairs]
  float* sum = nullptr;          // [D]
  int64_t found_rows = 0;        // results of a shared selection
  int64_t found_blocks = 0;
};

struct Workspace {
  Workspace(const TextConfig& config, const WorkspaceLimits& limits, int threads);

  static int64_t bytes(const TextConfig& config, const WorkspaceLimits& limits, int threads);
  // Reserved only, until somebody populates it (base/pages.h).
  std::span<uint8_t> memory() { return memory_.bytes(); }
  void poison();

  // Streams of the two stages: all rows up to the seam, the kept rows from it on.
  bf16* stream[2] = {};  // [T, C, D]
  float* pre[2] = {};    // [T, C], pre-mix of the sublayer before

  // Hyper-connections
  float* mix_dots = nullptr;  // [T, A]
  float* pre_attn = nullptr;  // [T, C]
  float* pre_ffn = nullptr;   // [T, C]
  float* post = nullptr;      // [T, C]
  float* comb = nullptr;      // [T, C, C]

  bf16* hidden = nullptr;    // [T, D] collapsed and normed sublayer input
  bf16* hidden_q = nullptr;  // [T, D] its quantize_q8 values
  bf16* output = nullptr;    // [T, D] sublayer output

  // Rotations of the rows: [T, pairs], for layers without / with a compress ratio
  float* cos[2] = {};
  float* sin[2] = {};

  // Attention
  bf16* q_latent = nullptr;        // [T, q_lora]
  bf16* q_latent_q = nullptr;      // [T, q_lora]
  bf16* q = nullptr;               // [T, H, Dh]
  bf16* kv = nullptr;              // [T, Dh]
  uint8_t* own_records = nullptr;  // [T, window record], this layer's rows of the step
  bf16* heads = nullptr;           // [T, H, Dh]
  bf16* low_rank = nullptr;        // [T, G * o_lora]

  // Compressor
  float* pool_kv = nullptr;     // [T, Dh]
  float* pool_score = nullptr;  // [T, Dh]
  bf16* latent = nullptr;       // [T, Dh]
  bf16* index_key = nullptr;    // [T, d_i]

  // Indexer
  bf16* index_q = nullptr;             // [T, H_i, d_i]
  bf16* head_weight = nullptr;         // [T, H_i]
  float* head_weight_f = nullptr;      // [T, H_i]
  int32_t* selected = nullptr;         // [T, k] ascending
  int32_t* selected_count = nullptr;   // [T]
  int32_t* candidates = nullptr;       // [T, candidate_topk_blocks] ascending
  int32_t* candidate_count = nullptr;  // [T], -1 = every block

  // Experts
  float* router = nullptr;          // [T, E]
  int32_t* chosen = nullptr;        // [T, K] expert ids, ascending
  float* chosen_weight = nullptr;   // [T, K]
  int32_t* expert_rows = nullptr;   // [P] rows grouped by expert, the shared expert last
  int32_t* slot_of = nullptr;       // [T, K + 1] place of a row's expert outputs
  int32_t* expert_begin = nullptr;  // [E + 2]
  bf16* expert_x = nullptr;         // [P, D] gathered, quantised
  bf16* expert_gate = nullptr;      // [P, I]
  bf16* expert_up = nullptr;        // [P, I]
  bf16* expert_h = nullptr;         // [P, I] quantised
  bf16* expert_y = nullptr;         // [P, D]

  // Engram
  int64_t* engram_rows = nullptr;  // [T, tables, columns]
  bf16* engram_e = nullptr;        // [T, columns * d_e]
  bf16* engram_kv = nullptr;       // [T, (C + 1) * D]

  bf16* normed = nullptr;   // [T, D]
  float* logits = nullptr;  // [logit rows, V]

  // Draft taps of the rows that ran the tap layers, and those of layers before the seam, where a
  // bounded prefill drops rows.
  bf16* taps = nullptr;        // [tap rows, taps, D]
  bf16* early_taps = nullptr;  // [T, early taps, D]

  int64_t score_tile = 0;  // rows scored between two pushes
  std::vector<MemberScratch> members;
  Scored* merge_rows = nullptr;  // top-k over the members' parts
  Scored* merge_blocks = nullptr;

 private:
  explicit Workspace(int threads);  // no memory yet
  Pages memory_;
};

}  // namespace cedra::model

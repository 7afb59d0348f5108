// One forward step as the layer files see it: the rows, their places, and the tools to work on
// them. Internal to model/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/sequence.h"
#include "kernels/ops.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/phases.h"
#include "model/workspace.h"
#include "parallel/team.h"

namespace cedra::model {

// Consecutive rows of one sequence inside a stage.
struct Run {
  cache::Sequence* sequence = nullptr;
  int64_t first_row = 0;  // row of `position` when the stage began
  int64_t position = 0;
  int64_t count = 0;
  int64_t window_start = 0;  // window keys of older positions do not exist
  int64_t replay_until = 0;  // rows before it write no compressed rows
  int64_t may_roll_back = 0;
  Want want = Want::kNone;
  std::span<const WindowCapture> captures;
};

struct Row {
  int32_t run = 0;
  bool image = false;
  int64_t position = 0;
};

// The rows that go through a span of layers together. Capacities are reserved at construction.
struct Stage {
  int buffer = 0;  // which of the workspace's streams
  std::vector<Run> runs;
  std::vector<Row> rows;
  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

struct Step {
  const Model& model;
  const kernels::Ops& ops;
  Team& team;
  Workspace& work;
  cache::BlockPool* pool;  // null while drafting: the stages have no compressed rows
  Probe* probe = nullptr;
  PhaseTimes* phases = nullptr;

  const TextConfig& text() const { return model.text(); }
};

// Compressed rows that the query at `position` sees of a source with this ratio.
inline int64_t visible_rows(int64_t position, int64_t ratio) { return (position + 1) / ratio; }

// ---- linear.cpp

struct Output {
  bf16* as_bf16 = nullptr;
  float* as_f32 = nullptr;
  int64_t stride = 0;
};
// y[rows, n_begin..n_end) of w over the whole team.
void linear(Step& step, const kernels::Matrix& w, const bf16* x, int64_t x_stride, int64_t rows,
            kernels::SumRule rule, Output y);
// The same on the calling member alone.
void linear_part(const kernels::Ops& ops, const kernels::Matrix& w, const bf16* x, int64_t x_stride,
                 int64_t rows, kernels::SumRule rule, Output y, int64_t n_begin, int64_t n_end);
// quantize_q8 of every row of x [rows, k].
void quantize_rows(Step& step, const bf16* x, bf16* y, int64_t rows, int64_t k);
// rms_norm of every row of x [rows, k]; y may be x.
void norm_rows(Step& step, const bf16* x, const bf16* weight, bf16* y, int64_t rows, int64_t k);

// ---- hyper_connections.cpp

// The stream of a row is C copies of its embedding [D], at any alignment; the first pre-mix is
// one-hot.
void enter_row(Step& step, const Stage& stage, int64_t row, const void* embedding);
// pre, post and comb of one sublayer from the stream as it is now.
void mixes(Step& step, const Stage& stage, const HyperWeights& weights, float* pre);
// work.hidden = norm(collapse(stream, pre)).
void sublayer_input(Step& step, const Stage& stage, const float* pre, const bf16* norm);
// stream = expand(output, stream, post, comb), in place.
void expand(Step& step, const Stage& stage);

// ---- attention_parts.cpp. `table`: rotations of layers without (0) or with (1) a compress ratio.

// Codes, then scales.
inline int64_t window_record_bytes(const TextConfig& text) {
  return text.head_dim + text.head_dim / 32;
}
// From work.hidden_q: the FP8 record that is key and value of all heads, one per row, into
// work.own_records.
void window_rows(Step& step, const AttentionWeights& weights, int64_t rows, int table);
// From work.hidden_q: work.q_latent_q (what an indexer reads too) and the rotated work.q.
void attention_queries(Step& step, const AttentionWeights& weights, int64_t rows, int table);
// What each row attends to: an ordered list of entries, of which some may be missing.
class AttentionLists {
 public:
  virtual int64_t entries(int64_t row) const = 0;
  // Entries [begin, end) of the row's list, into keys[begin, end) and present[begin, end).
  virtual void gather(int64_t row, int64_t begin, int64_t end, bf16* keys,
                      uint8_t* present) const = 0;

 protected:
  ~AttentionLists() = default;
};
// work.heads = attention of work.q over the lists.
void attend_rows(Step& step, int64_t rows, const float* sink, const AttentionLists& lists);
// work.output from work.heads, which is overwritten.
void attention_output(Step& step, const AttentionWeights& weights, int64_t rows, int table);

// ---- the sublayers. u = work.hidden [T, D], result in work.output [T, D].

// attention.cpp. `narrow`: after the window and compressed rows are written, only wanted rows go
// on; the stage's rows, work.hidden and the stream shrink to them.
void attention(Step& step, Stage& stage, int64_t layer, bool compressed_early, bool narrow);

// compressor.cpp: finishes the groups that these rows complete; stores compressed rows and index
// keys.
void compress(Step& step, const Stage& stage, int64_t layer);

// selection.cpp: the index_topk best visible compressed rows of every row, into work.selected.
void select(Step& step, const Stage& stage, int64_t layer);

// moe.cpp
void moe(Step& step, const Stage& stage, const MoeWeights& weights, int64_t n_active);

// engram_layer.cpp: stream += gate * value, in place.
void engram(Step& step, const Stage& stage, int64_t layer);

}  // namespace cedra::model

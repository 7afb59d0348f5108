// The forward pass of the text backbone over a ragged batch: any number of sequences, each with any
// number of next tokens (a prompt, a chunk of one, one decode token).
//
// A row's result depends on the tokens before it and on nothing else: not on the other rows of the
// step, on chunk borders, on threads. (Bounded prefill is an approximation on purpose: kv_cache.md
// 4b.)
//
// One engine thread drives a Forward; the team works inside run(). No allocation after
// construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/sequence.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "parallel/team.h"

namespace cedra::model {

// Which rows of a segment get logits.
enum class Want : uint8_t { kNone, kLast, kAll };

class PhaseTimes;

enum class RowKind : uint8_t { kText, kImage };

// Copy the windows of all layers, as they are when `position` tokens are committed, to `out`
// ([L, W, record], slot p mod W): what an exact prefix hit restores. Exact prefill only.
struct WindowCapture {
  int64_t position = 0;  // inside or at the end of the segment
  uint8_t* out = nullptr;
};

// The next tokens of one sequence.
struct Segment {
  cache::Sequence* sequence = nullptr;  // blocks cover length + tokens
  std::span<const int32_t> tokens;      // positions sequence->length ...
  Want want = Want::kLast;
  // Bounded prefill: layers from the seam on run once, on the last window of rows of the prefill,
  // when the chunk with more_follows == false comes. begin_prefill() starts it.
  bool bounded = false;
  bool more_follows = false;
  // Rows before this position write windows only: their compressed rows are in the cache (prefix
  // hit with bounded replay, kv_cache.md 4a).
  int64_t replay_until = 0;
  // The last so many tokens are drafts: sequence->rollback() can take back any number of them until
  // the next step. At most SequenceLimits::max_rollback, and not in a bounded segment.
  int64_t may_roll_back = 0;
  // Image spans: kind per token and, for every token of an image span, the row that replaces its
  // embedding; its id is not looked at. Empty: all text.
  std::span<const RowKind> kinds;
  std::span<const bf16* const> embeddings;
  std::span<const WindowCapture> captures;
};

struct ForwardLimits {
  int64_t max_rows = 512;  // rows of a step; at least W where bounded prefill is used
  int64_t max_segments = 64;
  int64_t max_context = 0;      // longest sequence
  int64_t max_logit_rows = 64;  // rows per call of logits()
  // Keep the draft taps of a step (dspark.md 3). With bounded prefill, sequences then need
  // SequenceLimits::seam_tap_width = early_tap_width().
  bool draft_taps = false;
};

// Inputs of the tap layers of a segment's rows that ran them, for the draft stages: all rows, or
// those that a bounded prefill kept, or none where more of it follows.
struct Taps {
  int64_t position = 0;  // of the first row
  int64_t count = 0;
  const bf16* rows = nullptr;  // [count, taps, D], in order of dspark_target_layer_ids
};

// Tap elements of a row that come from layers before the seam: a bounded prefill has to carry them.
int64_t early_tap_width(const TextConfig& config);

// Sees, and may replace, what flows between layers. For `cedra golden` only.
class Probe {
 public:
  virtual ~Probe() = default;
  // Before a layer: stream [T, C, D] and pre [T, C] may be overwritten.
  virtual void enter(int64_t /*layer*/, int64_t /*rows*/, bf16* /*stream*/, float* /*pre*/) {}
  // Module outputs: "engram" [T, C, D], "attn" [T, D], "ffn" [T, D], "stream" [T, C, D].
  virtual void output(int64_t /*layer*/, std::string_view /*module*/, int64_t /*rows*/,
                      int64_t /*width*/, const bf16* /*values*/) {}
  // Pre-mix after block `layer`, [T, C].
  virtual void pre(int64_t /*layer*/, int64_t /*rows*/, int64_t /*copies*/, const float*) {}
  // Selected compressed rows of an index source, [T, k] ascending, -1 = none.
  virtual void selected(int64_t /*layer*/, int64_t /*rows*/, int64_t /*k*/, const int32_t*) {}
  // Engram table rows of all tables, [T, tables, columns].
  virtual void engram_rows(int64_t /*rows*/, int64_t /*width*/, const int64_t*) {}
};

class Forward {
 public:
  // Errors: kInvalid for limits that cannot work (max_rows below the window, say), kUnsupported for
  // taps of a model without draft stages.
  static Result<std::unique_ptr<Forward>> create(const Model& model, const kernels::Ops& ops,
                                                 Team& team, const ForwardLimits& limits,
                                                 cache::BlockPool& pool);
  ~Forward();

  // Runs the segments and commits their tokens (sequence->length grows). Total tokens, and rows
  // with logits, are at most max_rows.
  void run(std::span<const Segment> segments, Probe* probe = nullptr);

  // Keeps the times of this and later steps in `times`; null: off (the start).
  void measure(PhaseTimes* times);

  // Rows with logits of the last run, in order of segments and positions.
  int64_t wanted_rows() const;
  // After the final norm, [D].
  const bf16* normed(int64_t row) const;
  // Logits of wanted rows [first, first + count), FP32 [count, V]; count <= max_logit_rows.
  // Valid until the next call.
  const float* logits(int64_t first, int64_t count);

  // Taps of segment `index` of the last run, valid until the next. limits.draft_taps only.
  Taps taps(int64_t index) const;

  // Bytes of all workspaces for these limits.
  static int64_t workspace_bytes(const TextConfig& config, const ForwardLimits& limits,
                                 int threads);
  // 0xFF into every workspace: stale values must never matter (tests).
  void poison();

 private:
  struct Impl;
  explicit Forward(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cedra::model

// What one sequence keeps between forward passes (spec kv_cache.md 1, model.md 6): block ids, the
// windows of all layers, unfinished compression groups, the Engram look-back, and, while a bounded
// prefill runs, the seam inputs of its newest rows.
//
// The newest rows of a step can be taken back (rejected drafts): rings of rows keep enough of the
// past, and the window records that such rows overwrite are saved. Compressed rows need nothing:
// those past the length are not visible and are written again.
//
// All memory is taken at construction and reused: a sequence is a slot that requests occupy in
// turn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/layout.h"
#include "numerics/bfloat16.h"

namespace cedra::cache {

struct SequenceLimits {
  int64_t max_tokens = 0;    // context length of the slot
  int64_t stream_width = 0;  // C * D
  int64_t copies = 0;        // C
  int64_t lookback = 0;      // Engram: engram_max_ngram_size - 1
  bool keep_seam = false;    // room for bounded prefill
  // With keep_seam and drafts: tap elements of a row from layers before the seam.
  int64_t seam_tap_width = 0;
  // Rows of a step that can be taken back.
  int64_t max_rollback = 0;
};

class Sequence {
 public:
  Sequence(const CacheLayout& layout, const SequenceLimits& limits);

  // Back to position 0. The caller has released the blocks.
  void reset();

  // Positions [0, length) are committed.
  int64_t length = 0;
  std::vector<BlockId> blocks;  // capacity for max_tokens is reserved

  // Keys of older positions are not in the windows of the layers before / from the seam on: they
  // were skipped by a bounded replay (kv_cache.md 4).
  int64_t encoder_window_start = 0;
  int64_t decoder_window_start = 0;

  // Record of `position` in the window of `layer`: codes, then scales. Valid for the last W
  // committed positions from the window start on.
  uint8_t* window_record(int64_t layer, int64_t position) {
    return windows_.get() +
           (layer * layout_->window + position % layout_->window) * layout_->window_record_bytes();
  }
  // All window records of a layer, in slot order.
  std::span<uint8_t> window_layer(int64_t layer);

  // The windows of all layers as a capture left them ([L, W, record]).
  void restore_windows(const uint8_t* record);
  // The windows of all layers as they are now, the same way.
  void copy_windows(uint8_t* record) const;

  // Raw FP32 kv or score row of a position whose group a source with ratio > 1 had not finished, or
  // may have to finish again: the newest tail_slots() positions.
  float* tail_kv(int64_t tail_index, int64_t position) { return tail(tail_index, position, 0); }
  float* tail_score(int64_t tail_index, int64_t position) { return tail(tail_index, position, 1); }
  int64_t tail_slots() const { return layout_->max_ratio + limits_.max_rollback; }

  // Compressed token ids of the last history_capacity() positions, oldest first; fewer at the start
  // and after a prefix hit or rollback, but never fewer than `lookback` if there are so many.
  std::vector<int32_t> engram_history;
  int64_t history_capacity() const { return limits_.lookback + limits_.max_rollback; }

  // ---- taking rows back

  // The lowest length that rollback() can return to: set by the forward pass.
  int64_t rollback_floor = 0;
  // Where the record of `position` - W, which that of `position` >= rollback_floor replaces in the
  // ring, is saved.
  uint8_t* saved_record(int64_t layer, int64_t position) {
    return saved_.get() + (layer * limits_.max_rollback + position - rollback_floor) *
                              layout_->window_record_bytes();
  }
  // Forgets positions from `new_length` on: what follows has the bits that it would have had
  // without them. rollback_floor <= new_length <= length. Blocks stay with the sequence.
  void rollback(int64_t new_length);

  // Bounded prefill: rows seen since begin_prefill(), and the seam inputs of the newest
  // min(W, rows): slot position mod W.
  void begin_prefill() { prefill_rows = 0; }
  int64_t prefill_rows = 0;
  bf16* seam_stream(int64_t position) {
    return seam_stream_.get() + (position % layout_->window) * limits_.stream_width;
  }
  float* seam_pre(int64_t position) {
    return seam_pre_.get() + (position % layout_->window) * limits_.copies;
  }
  bf16* seam_taps(int64_t position) {
    return seam_taps_.get() + (position % layout_->window) * limits_.seam_tap_width;
  }
  uint8_t* seam_image(int64_t position) { return &seam_image_[position % layout_->window]; }

  const CacheLayout& layout() const { return *layout_; }
  const SequenceLimits& limits() const { return limits_; }
  // Bytes of a slot without its blocks.
  static int64_t slot_bytes(const CacheLayout& layout, const SequenceLimits& limits);

 private:
  float* tail(int64_t index, int64_t position, int64_t which) {
    return tails_.get() +
           ((index * tail_slots() + position % tail_slots()) * 2 + which) * layout_->head_dim;
  }
  const CacheLayout* layout_;
  SequenceLimits limits_;
  std::unique_ptr<uint8_t[]> windows_;     // [L, W, record]
  std::unique_ptr<float[]> tails_;         // [tails, tail_slots, 2, Dh]
  std::unique_ptr<uint8_t[]> saved_;       // [L, max_rollback, record]
  std::unique_ptr<bf16[]> seam_stream_;    // [W, C, D]
  std::unique_ptr<float[]> seam_pre_;      // [W, C]
  std::unique_ptr<uint8_t[]> seam_image_;  // [W]
  std::unique_ptr<bf16[]> seam_taps_;      // [W, seam_tap_width]
};

}  // namespace cedra::cache

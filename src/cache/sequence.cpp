#include "cache/sequence.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace cedra::cache {
namespace {

int64_t window_bytes(const CacheLayout& layout) {
  return layout.layers * layout.window * layout.window_record_bytes();
}

int64_t tail_floats(const CacheLayout& layout, const SequenceLimits& limits) {
  return layout.tails * (layout.max_ratio + limits.max_rollback) * 2 * layout.head_dim;
}

int64_t saved_bytes(const CacheLayout& layout, const SequenceLimits& limits) {
  return layout.layers * limits.max_rollback * layout.window_record_bytes();
}

}  // namespace

Sequence::Sequence(const CacheLayout& layout, const SequenceLimits& limits)
    : layout_(&layout),
      limits_(limits),
      windows_(new uint8_t[static_cast<size_t>(window_bytes(layout))]()),
      tails_(new float[static_cast<size_t>(tail_floats(layout, limits))]()),
      saved_(new uint8_t[static_cast<size_t>(saved_bytes(layout, limits))]()) {
  blocks.reserve(static_cast<size_t>(layout.blocks_for(limits.max_tokens)));
  engram_history.reserve(static_cast<size_t>(history_capacity()));
  if (limits.keep_seam) {
    const size_t window = static_cast<size_t>(layout.window);
    seam_stream_.reset(new bf16[window * static_cast<size_t>(limits.stream_width)]());
    seam_pre_.reset(new float[window * static_cast<size_t>(limits.copies)]());
    seam_image_.reset(new uint8_t[window]());
    seam_taps_.reset(new bf16[window * static_cast<size_t>(limits.seam_tap_width)]());
  }
}

void Sequence::reset() {
  length = 0;
  blocks.clear();
  encoder_window_start = 0;
  decoder_window_start = 0;
  engram_history.clear();
  prefill_rows = 0;
  rollback_floor = 0;
}

void Sequence::rollback(int64_t new_length) {
  assert(new_length >= rollback_floor && new_length <= length);
  const size_t bytes = static_cast<size_t>(layout_->window_record_bytes());
  for (int64_t layer = 0; layer < layout_->layers; ++layer) {
    // Newest first: with more rows than W, the oldest one's predecessor is what stays.
    for (int64_t p = length - 1; p >= new_length; --p) {
      std::memcpy(window_record(layer, p), saved_record(layer, p), bytes);
    }
  }
  // Without Engram layers there is no history.
  const size_t undone = static_cast<size_t>(length - new_length);
  engram_history.resize(engram_history.size() - std::min(undone, engram_history.size()));
  length = new_length;
}

void Sequence::restore_windows(const uint8_t* record) {
  std::memcpy(windows_.get(), record, static_cast<size_t>(window_bytes(*layout_)));
}

void Sequence::copy_windows(uint8_t* record) const {
  std::memcpy(record, windows_.get(), static_cast<size_t>(window_bytes(*layout_)));
}

std::span<uint8_t> Sequence::window_layer(int64_t layer) {
  const int64_t bytes = layout_->window * layout_->window_record_bytes();
  return {windows_.get() + layer * bytes, static_cast<size_t>(bytes)};
}

int64_t Sequence::slot_bytes(const CacheLayout& layout, const SequenceLimits& limits) {
  int64_t bytes = window_bytes(layout) + tail_floats(layout, limits) * int64_t{sizeof(float)} +
                  saved_bytes(layout, limits);
  bytes += layout.blocks_for(limits.max_tokens) * int64_t{sizeof(BlockId)};
  if (limits.keep_seam) {
    bytes += layout.window *
             (limits.stream_width * int64_t{sizeof(bf16)} + limits.copies * int64_t{sizeof(float)} +
              limits.seam_tap_width * int64_t{sizeof(bf16)} + 1);
  }
  return bytes;
}

}  // namespace cedra::cache

#include "cache/sequence.h"

#include <cstring>

namespace cedra::cache {
namespace {

int64_t window_bytes(const CacheLayout& layout) {
  return layout.layers * layout.window * layout.window_record_bytes();
}

int64_t tail_floats(const CacheLayout& layout) {
  return layout.tails * layout.max_ratio * 2 * layout.head_dim;
}

}  // namespace

Sequence::Sequence(const CacheLayout& layout, const SequenceLimits& limits)
    : layout_(&layout),
      limits_(limits),
      windows_(new uint8_t[static_cast<size_t>(window_bytes(layout))]()),
      tails_(new float[static_cast<size_t>(tail_floats(layout))]()) {
  blocks.reserve(static_cast<size_t>(layout.blocks_for(limits.max_tokens)));
  engram_history.reserve(static_cast<size_t>(limits.lookback));
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
}

void Sequence::restore_windows(const uint8_t* record) {
  std::memcpy(windows_.get(), record, static_cast<size_t>(window_bytes(*layout_)));
}

std::span<uint8_t> Sequence::window_layer(int64_t layer) {
  const int64_t bytes = layout_->window * layout_->window_record_bytes();
  return {windows_.get() + layer * bytes, static_cast<size_t>(bytes)};
}

int64_t Sequence::slot_bytes(const CacheLayout& layout, const SequenceLimits& limits) {
  int64_t bytes = window_bytes(layout) + tail_floats(layout) * int64_t{sizeof(float)};
  bytes += layout.blocks_for(limits.max_tokens) * int64_t{sizeof(BlockId)};
  if (limits.keep_seam) {
    bytes += layout.window *
             (limits.stream_width * int64_t{sizeof(bf16)} + limits.copies * int64_t{sizeof(float)} +
              limits.seam_tap_width * int64_t{sizeof(bf16)} + 1);
  }
  return bytes;
}

}  // namespace cedra::cache

// Where the bytes of a sequence's state lie (spec kv_cache.md 1 and 3).
//
// A block holds the compressed KV rows and index keys of B consecutive tokens for ALL KV sources,
// so one id, one copy and one hash cover them. Inside a block, per source: main codes, main scales,
// index codes, index scales; data rows first, then scale rows, so that kernels walk runs of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"

namespace cedra::cache {

// One KV source inside a block. Offsets are bytes from the start of the block.
struct SourceLayout {
  int64_t layer = 0;
  int64_t ratio = 0;           // tokens per compressed row
  int64_t rows_per_block = 0;  // B / ratio
  int64_t main_codes = 0;      // [rows, Dh / 2] E2M1
  int64_t main_scales = 0;     // [rows, Dh / 16] E4M3
  int64_t index_codes = 0;     // [rows, d_i / 2] E2M1
  int64_t index_scales = 0;    // [rows, d_i / 32] E8M0
  int64_t tail_index = -1;     // index among the sources with ratio > 1
};

struct CacheLayout {
  int64_t block_tokens = 0;  // B, a multiple of every ratio
  int64_t block_bytes = 0;   // 890 * B at the released dims
  std::vector<SourceLayout> sources;

  int64_t main_code_bytes = 0;  // per row
  int64_t main_scale_bytes = 0;
  int64_t index_code_bytes = 0;
  int64_t index_scale_bytes = 0;

  int64_t window = 0;              // W
  int64_t layers = 0;              // layers that own a window
  int64_t window_code_bytes = 0;   // Dh
  int64_t window_scale_bytes = 0;  // Dh / 32
  int64_t window_record_bytes() const { return window_code_bytes + window_scale_bytes; }

  int64_t tails = 0;  // sources with ratio > 1
  int64_t max_ratio = 1;
  int64_t head_dim = 0;

  // Index in `sources` of the source that a layer reads, or -1.
  int64_t source_of(int64_t layer) const;
  int64_t blocks_for(int64_t tokens) const { return (tokens + block_tokens - 1) / block_tokens; }
};

// block_tokens must be a positive multiple of every compress ratio (kInvalid otherwise).
Result<CacheLayout> make_layout(const TextConfig& config, int64_t block_tokens);

}  // namespace cedra::cache

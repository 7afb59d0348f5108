// The header of one safetensors file: u64 LE header length, JSON, data (spec model.md 2.2). Trusts
// nothing in it; what comes out addresses only bytes inside the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/dtype.h"

namespace cedra {

struct StoredTensor {
  std::string name;
  Dtype dtype = Dtype::kU8;
  std::vector<int64_t> shape;  // row-major; empty = scalar
  uint64_t begin = 0;          // absolute byte offsets in the file; any alignment (see below)
  uint64_t end = 0;
};

// Tensors in file order. They cover the data section without holes or overlaps, up to the end of
// the file. The format does not promise that a tensor starts at a multiple of its element size, and
// none is required here: readers use memcpy or unaligned loads.
struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;
  uint64_t data_begin = 0;  // 8 + header length
};

inline constexpr uint64_t kMaxSafetensorsHeader = uint64_t{100} << 20;  // the format's own limit

// kCorrupt; the message starts with `file_name`.
Result<SafetensorsHeader> parse_safetensors(std::span<const uint8_t> file,
                                            std::string_view file_name);

}  // namespace cedra

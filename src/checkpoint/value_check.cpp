#include "checkpoint/value_check.h"

#include <algorithm>
#include <cstring>

namespace cedra {
namespace {

// Blocks are scanned without branches, so that the compiler vectorises; only a block with a hit is
// looked at again.
constexpr size_t kBlockElements = 4096;

template <class Word, class Bad>
std::optional<int64_t> scan(std::span<const uint8_t> bytes, Bad bad) {
  const size_t count = bytes.size() / sizeof(Word);
  Word block[kBlockElements];
  for (size_t at = 0; at < count; at += kBlockElements) {
    const size_t size = std::min(kBlockElements, count - at);
    std::memcpy(block, bytes.data() + at * sizeof(Word), size * sizeof(Word));
    Word hits = 0;
    for (size_t i = 0; i < size; ++i) hits |= static_cast<Word>(bad(block[i]));
    if (hits == 0) continue;
    for (size_t i = 0; i < size; ++i) {
      if (bad(block[i])) return static_cast<int64_t>(at + i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> first_bad_value(Dtype dtype, std::span<const uint8_t> bytes) {
  switch (dtype) {
    case Dtype::kF8E8M0:
      return scan<uint8_t>(bytes, [](uint8_t x) { return x == 0xFF; });
    case Dtype::kF8E4M3:
      return scan<uint8_t>(bytes, [](uint8_t x) { return (x & 0x7F) == 0x7F; });
    case Dtype::kBf16:
      return scan<uint16_t>(bytes, [](uint16_t x) { return (x & 0x7F80) == 0x7F80; });
    case Dtype::kF16:
      return scan<uint16_t>(bytes, [](uint16_t x) { return (x & 0x7C00) == 0x7C00; });
    case Dtype::kF32:
      return scan<uint32_t>(bytes, [](uint32_t x) { return (x & 0x7F800000u) == 0x7F800000u; });
    default:
      return std::nullopt;
  }
}

}  // namespace cedra

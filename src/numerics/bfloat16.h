// BF16 as stored: the upper half of an FP32. C++20-clean, no dependencies.
#pragma once

#include <bit>
#include <cstdint>

namespace cedra {

struct bf16 {
  uint16_t bits;
};
static_assert(sizeof(bf16) == 2);

inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Nearest, ties to even. NaN and infinity are not special-cased: an overflow to them is a bug that
// the caller's debug checks find (spec: model.md 3.2).
inline bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// Double to BF16 in the two roundings of the exact arithmetic (model.md 4.11).
inline bf16 to_bf16_twice(double x) { return to_bf16(static_cast<float>(x)); }

// Double to BF16 in one rounding (vision.md 6, the attention output); for results in FP32's normal
// range.
inline bf16 to_bf16_once(double x) {
  constexpr int kDropped = 52 - 7;  // fraction bits that BF16 does not have
  uint64_t bits = std::bit_cast<uint64_t>(x);
  bits += (uint64_t{1} << (kDropped - 1)) - 1 + ((bits >> kDropped) & 1u);
  bits &= ~((uint64_t{1} << kDropped) - 1);
  return to_bf16(static_cast<float>(std::bit_cast<double>(bits)));
}

inline float round_bf16(float x) { return to_float(to_bf16(x)); }

}  // namespace cedra

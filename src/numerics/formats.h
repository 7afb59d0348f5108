// The number formats of the checkpoint and of the packed records: E4M3FN, E8M0, E2M1, and the
// power-of-two scale rule (spec model.md 3). Tables are constants, functions are exact: every
// kernel level and every test takes its definition from here. C++20-clean.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "numerics/bfloat16.h"

namespace cedra {

inline constexpr int64_t kScaleBlock = 32;   // weights and FP8 activations: values per E8M0 scale
inline constexpr int64_t kLatentGroup = 16;  // compressed KV rows: values per E4M3 scale
inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE2m1Max = 6.0f;

// FP32 neighbours of 1/448 and 1/6, as the reference multiplies with them (model.md 3.1).
inline constexpr float kInverseE4m3Max = std::bit_cast<float>(0x3B124925u);
inline constexpr float kInverseE2m1Max = std::bit_cast<float>(0x3E2AAAABu);

// Floors of the group maximum (model.md 3.2); they act on amax, not on the scale.
inline constexpr float kFp8AmaxFloor = std::bit_cast<float>(0x38D1B717u);  // 1e-4
inline constexpr float kIndexAmaxFloor = 0x6p-126f;
inline constexpr float kLatentAmaxFloor = 0x6p-9f;

// 2^exponent for the exponents of normal doubles.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

constexpr double e4m3_value(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? mantissa * power_of_two(-9) : (8 + mantissa) * power_of_two(exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// All 256 codes; 0x7F and 0xFF are NaN.
inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    table[code] = static_cast<float>(e4m3_value(static_cast<uint8_t>(code)));
  }
  table[0x7F] = std::bit_cast<float>(0x7FC00000u);
  table[0xFF] = std::bit_cast<float>(0xFFC00000u);
  return table;
}();

// Byte b is 2^(b - 127); byte 0 is the FP32 subnormal 2^-127, byte 255 is NaN.
inline constexpr std::array<float, 256> kE8m0Values = [] {
  std::array<float, 256> table{};
  table[0] = 0x1p-127f;
  for (uint32_t code = 1; code < 255; ++code) table[code] = std::bit_cast<float>(code << 23);
  table[255] = std::bit_cast<float>(0x7FC00000u);
  return table;
}();

// Codes 0..15: s ee m.
inline constexpr std::array<float, 16> kE2m1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};

inline float decode_e4m3(uint8_t code) { return kE4m3Values[code]; }
inline float decode_e8m0(uint8_t code) { return kE8m0Values[code]; }
inline float decode_e2m1(uint8_t code) { return kE2m1Values[code & 15]; }

// Clamps to +-448, then nearest, ties to the even mantissa; the sign of zero is kept. x is not NaN.
constexpr uint8_t encode_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  if (magnitude > kE4m3Max) magnitude = kE4m3Max;
  if (magnitude < 0x1p-6f) {
    // Subnormal codes count in units of 2^-9. Adding 2^23 leaves the rounded count in the low bits;
    // a count of 8 is the code of the least normal number, as it should be.
    const float shifted = magnitude * 0x1p9f + 0x1p23f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0xFu));
  }
  uint32_t rounded = std::bit_cast<uint32_t>(magnitude);
  rounded += 0x7FFFFu + ((rounded >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - ((127u - 7u) << 3)));
}

// Clamps to +-6, then nearest; exactly on a threshold the even code wins; the sign of zero is kept.
constexpr uint8_t encode_e2m1(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float a = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(((bits >> 28) & 8u) | static_cast<uint32_t>(code));
}

// E8M0 byte of the least power of two >= fl32(amax * inverse_max), from the exponent bits
// (model.md 3.1). The product is a normal number: the floors see to that.
constexpr uint8_t pow2ceil_byte(float amax, float inverse_max) {
  const uint32_t bits = std::bit_cast<uint32_t>(amax * inverse_max);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u));
}

// E4M3 byte of the scale of a compressed KV group (model.md 3.2, FQ4k). amax already floored.
constexpr uint8_t latent_scale_byte(float amax) { return encode_e4m3(amax / kE2m1Max); }

}  // namespace cedra

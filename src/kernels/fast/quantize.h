// Activation quantiser and unpacking of records (model.md 3.2), bit for bit as the oracle does
// them. Packing runs once per token and layer and is the oracle's own code at every level.
#pragma once

#include "kernels/fast/vec.h"
#include "numerics/formats.h"

namespace cedra::kernels {
namespace {

// 2^(byte - 127) for bytes above 0.
CEDRA_INLINE float scale_of_byte(uint8_t byte) {
  const uint32_t bits = byte == 0 ? 0x00400000u : static_cast<uint32_t>(byte) << 23;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}

CEDRA_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Nearest E4M3 value of |x| <= 448, ties to even, sign kept.
CEDRA_INLINE F16 round_e4m3_lanes(F16 x) {
  const U16 sign = as_bits(x) & 0x80000000u;
  const U16 magnitude = as_bits(x) & 0x7FFFFFFFu;
  const U16 normal = (magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u)) & 0xFFF00000u;
  // Below 2^-6 the step is 2^-9: adding 2^14 puts that step at the last mantissa bit.
  const F16 small = (as_float(magnitude) + 0x1p14f) - 0x1p14f;
  const F16 value = if_less(as_float(magnitude), splat(0x1p-6f), small, as_float(normal));
  return as_float(as_bits(value) | sign);
}

void fast_quantize_q8(const bf16* x, bf16* y, int64_t n) {
  for (int64_t group = 0; group < n; group += kScaleBlock) {
    const F16 a = load(x + group);
    const F16 b = load(x + group + kLanes);
    float amax = max_of_lanes(max_lanes(abs_lanes(a), abs_lanes(b)));
    amax = amax > kFp8AmaxFloor ? amax : kFp8AmaxFloor;
    const uint32_t bits = bits_of(amax * kInverseE4m3Max);
    const uint32_t byte = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
    const float scale = scale_of_byte(static_cast<uint8_t>(byte));
    // Byte 105 at least and 248 at most, so the inverse is a normal power of two as well.
    const float inverse = scale_of_byte(static_cast<uint8_t>(254 - byte));
    const F16 top = splat(kE4m3Max);
    const F16 qa = round_e4m3_lanes(max_lanes(min_lanes(a * inverse, top), -top));
    const F16 qb = round_e4m3_lanes(max_lanes(min_lanes(b * inverse, top), -top));
    store(y + group, qa * scale);
    store(y + group + kLanes, qb * scale);
  }
}

// Values of 16 E4M3 codes.
CEDRA_INLINE F16 decode_e4m3_lanes(const uint8_t* codes) {
  const U16 code = load_bytes(codes);
  const U16 magnitude = code & 0x7Fu;
  const F16 normal = as_float((magnitude << 20) + (120u << 23));
  const F16 small = to_float(magnitude) * 0x1p-9f;
  const F16 value = if_less(normal, splat(0x1p-6f), small, normal);  // exponent field 0
  return as_float(as_bits(value) | ((code & 0x80u) << 24));
}

CEDRA_INLINE float decode_e4m3_one(uint8_t code) {
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t bits = (magnitude << 20) + (120u << 23);
  float value;
  memcpy(&value, &bits, sizeof value);
  if (magnitude < 8) value = static_cast<float>(magnitude) * 0x1p-9f;
  return (code & 0x80) != 0 ? -value : value;
}

void fast_unpack_fp8(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y) {
  for (int64_t group = 0; group < n; group += kScaleBlock) {
    const float scale = scale_of_byte(scales[group / kScaleBlock]);
    store(y + group, decode_e4m3_lanes(codes + group) * scale);
    store(y + group + kLanes, decode_e4m3_lanes(codes + group + kLanes) * scale);
  }
}

// Values of 16 packed E2M1 codes (8 bytes), element 2i in the low nibble of byte i.
CEDRA_INLINE F16 decode_e2m1_lanes(const uint8_t* codes) {
  return look_up(e2m1_table(), load_nibbles(codes));
}

void fast_unpack_latent(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y) {
  for (int64_t group = 0; group < n; group += kLatentGroup) {
    store(y + group,
          decode_e2m1_lanes(codes + group / 2) * decode_e4m3_one(scales[group / kLatentGroup]));
  }
}

void fast_unpack_index(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y) {
  for (int64_t group = 0; group < n; group += kLanes) {
    const float scale = scale_of_byte(scales[group / kScaleBlock]);
    store(y + group, decode_e2m1_lanes(codes + group / 2) * scale);
  }
}

}  // namespace
}  // namespace cedra::kernels

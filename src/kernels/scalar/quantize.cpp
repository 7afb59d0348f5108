// Activation quantisers and packed records (model.md 3.2). Exact at every level: the fast levels
// must give these bits.
#include <algorithm>
#include <cmath>

#include "kernels/scalar/scalar.h"
#include "numerics/formats.h"

namespace cedra::kernels::scalar {
namespace {

float group_max(const bf16* x, int64_t n, float floor) {
  float amax = floor;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(to_float(x[i])));
  return amax;
}

// n E2M1 codes, even element in the low nibble.
void encode_fp4_group(const bf16* x, float scale, int64_t n, uint8_t* codes) {
  for (int64_t i = 0; i < n; i += 2) {
    const uint8_t low = encode_e2m1(to_float(x[i]) / scale);
    const uint8_t high = encode_e2m1(to_float(x[i + 1]) / scale);
    codes[i / 2] = static_cast<uint8_t>(low | (high << 4));
  }
}

void decode_fp4_group(const uint8_t* codes, float scale, int64_t n, bf16* y) {
  for (int64_t i = 0; i < n; i += 2) {
    y[i] = to_bf16(decode_e2m1(codes[i / 2] & 15) * scale);
    y[i + 1] = to_bf16(decode_e2m1(codes[i / 2] >> 4) * scale);
  }
}

}  // namespace

void quantize_q8(const bf16* x, bf16* y, int64_t n) {
  for (int64_t group = 0; group < n; group += kScaleBlock) {
    uint8_t codes[kScaleBlock];
    uint8_t scale;
    pack_fp8(x + group, kScaleBlock, codes, &scale);
    unpack_fp8(codes, &scale, kScaleBlock, y + group);
  }
}

void pack_fp8(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t group = 0; group < n; group += kScaleBlock) {
    const float amax = group_max(x + group, kScaleBlock, kFp8AmaxFloor);
    const uint8_t byte = pow2ceil_byte(amax, kInverseE4m3Max);
    const float scale = decode_e8m0(byte);
    for (int64_t i = group; i < group + kScaleBlock; ++i) {
      codes[i] = encode_e4m3(to_float(x[i]) / scale);
    }
    scales[group / kScaleBlock] = byte;
  }
}

void unpack_fp8(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = to_bf16(decode_e4m3(codes[i]) * decode_e8m0(scales[i / kScaleBlock]));
  }
}

void pack_latent(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t group = 0; group < n; group += kLatentGroup) {
    const uint8_t byte = latent_scale_byte(group_max(x + group, kLatentGroup, kLatentAmaxFloor));
    encode_fp4_group(x + group, decode_e4m3(byte), kLatentGroup, codes + group / 2);
    scales[group / kLatentGroup] = byte;
  }
}

void unpack_latent(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y) {
  for (int64_t group = 0; group < n; group += kLatentGroup) {
    const float scale = decode_e4m3(scales[group / kLatentGroup]);
    decode_fp4_group(codes + group / 2, scale, kLatentGroup, y + group);
  }
}

void pack_index(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t group = 0; group < n; group += kScaleBlock) {
    const float amax = group_max(x + group, kScaleBlock, kIndexAmaxFloor);
    const uint8_t byte = pow2ceil_byte(amax, kInverseE2m1Max);
    encode_fp4_group(x + group, decode_e8m0(byte), kScaleBlock, codes + group / 2);
    scales[group / kScaleBlock] = byte;
  }
}

void unpack_index(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y) {
  for (int64_t group = 0; group < n; group += kScaleBlock) {
    const float scale = decode_e8m0(scales[group / kScaleBlock]);
    decode_fp4_group(codes + group / 2, scale, kScaleBlock, y + group);
  }
}

}  // namespace cedra::kernels::scalar

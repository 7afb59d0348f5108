// The tensor formats as AVX2 registers of eight FP32 values, scale multiplied in (exact for
// ordinary rows, see fast/matmul.h).
#pragma once

#include "kernels/fast/matmul.h"

namespace cedra::kernels {
namespace {

// Lane = k mod 8, fused multiply-adds; the products of BF16 values are exact.
struct FloatDot {
  using Reg = __m256;
  struct Block {
    __m256 v[4];
  };
  using Sum = __m256;
  using PanelWord = float;
  static constexpr int kRegs = 4;
  static constexpr int kTileT = 3;  // 12 sums, 3 activations, weights from memory
  static constexpr int64_t kDotRows = 2;
  static constexpr int64_t kPanelBytes = 256 * 1024;
  static constexpr int dot_tile_n(int t) { return t == 1 ? 4 : 2; }

  static CEDRA_INLINE Sum zero() { return _mm256_setzero_ps(); }
  static CEDRA_INLINE Reg load_x_reg(const bf16* x) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  }
  static CEDRA_INLINE Block load_x(const bf16* x) {
    return {{load_x_reg(x), load_x_reg(x + 8), load_x_reg(x + 16), load_x_reg(x + 24)}};
  }
  static CEDRA_INLINE Reg load_panel(const PanelWord* p) { return _mm256_load_ps(p); }
  static CEDRA_INLINE void store_panel(PanelWord* p, const Block& w) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegs; ++i) _mm256_store_ps(p + 8 * i, w.v[i]);
  }
  static CEDRA_INLINE Sum multiply_add_reg(Sum sum, Reg x, Reg w) {
    return _mm256_fmadd_ps(x, w, sum);
  }
  static CEDRA_INLINE Sum multiply_add(Sum sum, const Block& x, const Block& w) {
#pragma GCC unroll 4
    for (int i = 0; i < kRegs; ++i) sum = multiply_add_reg(sum, x.v[i], w.v[i]);
    return sum;
  }
  static CEDRA_INLINE __m128 sum_lanes_of_four(Sum a, Sum b, Sum c, Sum d) {
    // (i, i+4): four lanes of a then of b.
    __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    ab = _mm256_add_ps(ab, _mm256_permute_ps(ab, 0x4E));  // (i, i+2)
    cd = _mm256_add_ps(cd, _mm256_permute_ps(cd, 0x4E));
    ab = _mm256_add_ps(ab, _mm256_permute_ps(ab, 0xB1));  // (i, i+1)
    cd = _mm256_add_ps(cd, _mm256_permute_ps(cd, 0xB1));
    const __m128 sum_a = _mm256_castps256_ps128(ab), sum_b = _mm256_extractf128_ps(ab, 1);
    const __m128 sum_c = _mm256_castps256_ps128(cd), sum_d = _mm256_extractf128_ps(cd, 1);
    return _mm_movelh_ps(_mm_unpacklo_ps(sum_a, sum_b), _mm_unpacklo_ps(sum_c, sum_d));
  }
};

CEDRA_INLINE __m256 broadcast_scale(uint8_t byte) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(byte) << 23));
}

struct Fp4Weights {
  using Row = WeightRow;
  static constexpr int64_t kBytesPerBlock = 16;
  static constexpr bool kAnyK = false;
  static constexpr bool kPairs = false;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return fp4_row(w, n); }

  // The eight magnitudes times the scale are the table of a block; the sign is the nibble's top
  // bit.
  CEDRA_INLINE FloatDot::Block decode(const Row& row, int64_t block) const {
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256 table = _mm256_mul_ps(magnitudes, broadcast_scale(row.scales[block]));
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000u));
    FloatDot::Block out;
#pragma GCC unroll 4
    for (int i = 0; i < FloatDot::kRegs; ++i) {
      int word;
      memcpy(&word, row.codes + block * kBytesPerBlock + 4 * i, sizeof word);
      const __m256i nibbles = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
      const __m256i signs = _mm256_and_si256(_mm256_slli_epi32(nibbles, 28), sign);
      out.v[i] =
          _mm256_xor_ps(_mm256_permutevar8x32_ps(table, nibbles), _mm256_castsi256_ps(signs));
    }
    return out;
  }
};

struct Fp8Weights {
  using Row = WeightRow;
  static constexpr int64_t kBytesPerBlock = 32;
  static constexpr bool kAnyK = false;
  static constexpr bool kPairs = false;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return fp8_row(w, n); }

  // E4M3 shifted into FP16 is the value times 2^-8, subnormals included.
  CEDRA_INLINE FloatDot::Block decode(const Row& row, int64_t block) const {
    const __m256 scale = broadcast_scale(static_cast<uint8_t>(row.scales[block] + 8));
    FloatDot::Block out;
#pragma GCC unroll 4
    for (int i = 0; i < FloatDot::kRegs; ++i) {
      const __m128i codes = _mm_loadl_epi64(
          reinterpret_cast<const __m128i*>(row.codes + block * kBytesPerBlock + 8 * i));
      // Sign-extended, so that bit 15 is the sign; bit 14 (a copy of it) must go.
      const __m128i words = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
      const __m128i half = _mm_and_si128(words, _mm_set1_epi16(static_cast<int16_t>(0xBF80)));
      out.v[i] = _mm256_mul_ps(_mm256_cvtph_ps(half), scale);
    }
    return out;
  }
};

struct Bf16Weights {
  using Row = WeightRow;
  static constexpr int64_t kBytesPerBlock = 64;
  static constexpr bool kAnyK = true;
  static constexpr bool kPairs = false;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return plain_row(w, n, 2); }
  CEDRA_INLINE FloatDot::Block decode(const Row& row, int64_t block) const {
    FloatDot::Block out;
#pragma GCC unroll 4
    for (int i = 0; i < FloatDot::kRegs; ++i) {
      const __m128i words = _mm_loadu_si128(
          reinterpret_cast<const __m128i*>(row.codes + block * kBytesPerBlock + 16 * i));
      out.v[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
    }
    return out;
  }
};

}  // namespace
}  // namespace cedra::kernels

// The tensor formats as AVX2 registers of BF16, scale multiplied in (exact for ordinary rows, see
// fast/matmul.h). BF16 becomes FP32 in one instruction per eight values, so every format goes
// through it.
//
// A block of 32 values is two registers of sixteen words, and four of eight FP32 values: the even
// words of the first, its odd words, the even words of the second, its odd words. FP4 decodes into
// an order of its own (kNatural says so); activations are put into the same order before they are
// used. Above kMostDotRows rows of activations decoding into a panel pays.
#pragma once

#include "kernels/fast/matmul.h"

namespace cedra::kernels {
namespace {

struct Words {
  __m256i v[2];
};

CEDRA_INLINE __m256 even_words(__m256i words) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
CEDRA_INLINE __m256 odd_words(__m256i words) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
CEDRA_INLINE __m256i load_32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
CEDRA_INLINE __m256i broadcast_16(const void* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

// The sixteen E2M1 values times 2^(b - 127) as BF16, for each scale byte b of an ordinary row: the
// low bytes, then the high ones. A checkpoint uses a handful of scales, whose tables stay in the
// first-level cache.
struct Fp4Tables {
  alignas(32) uint8_t bytes[256][32];
};
constexpr Fp4Tables make_fp4_tables() {
  constexpr int kMagnitudes[8] = {0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
  Fp4Tables tables{};
  for (int scale = kLeastScale; scale <= kGreatestScale; ++scale) {
    for (int code = 0; code < 16; ++code) {
      int bits = kMagnitudes[code & 7];
      if (bits != 0) bits += (scale - 127) * 128;
      if ((code & 8) != 0) bits |= 0x8000;
      tables.bytes[scale][code] = static_cast<uint8_t>(bits & 0xFF);
      tables.bytes[scale][16 + code] = static_cast<uint8_t>(bits >> 8);
    }
  }
  return tables;
}

struct Fp4Weights {
  using Row = WeightRow;
  static constexpr int64_t kMostDotRows = 8;
  static constexpr bool kNatural = false;
  static constexpr Fp4Tables kTables = make_fp4_tables();
  static constexpr int64_t kBytesPerBlock = 16;
  static constexpr bool kAnyK = false;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return fp4_row(w, n); }

  // Low nibbles in the low half, high nibbles in the high half: 0, 2, .., 14, 1, 3, .., 15.
  template <int R>
  static CEDRA_INLINE void decode(const Row* rows, int64_t block, Words* out) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const uint8_t* table = kTables.bytes[rows[r].scales[block]];
      const __m256i raw = broadcast_16(rows[r].codes + block * kBytesPerBlock);
      const __m256i codes = _mm256_and_si256(_mm256_srlv_epi64(raw, _mm256_setr_epi64x(0, 0, 4, 4)),
                                             _mm256_set1_epi8(15));
      const __m256i low = _mm256_shuffle_epi8(broadcast_16(table), codes);
      const __m256i high = _mm256_shuffle_epi8(broadcast_16(table + 16), codes);
      out[r] = {{_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)}};
    }
  }
  static CEDRA_INLINE Words arrange(const bf16* x) {
    const __m256i deal = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                          0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    Words out;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      out.v[i] = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load_32(x + 16 * i), deal), 0xD8);
    }
    return out;
  }
};

// What is added to the exponent fields of the two words of a dword for each scale byte; 120 is the
// difference between the biases of E4M3 and BF16.
struct FoldTable {
  uint32_t word[256];
};
constexpr FoldTable make_fold_table() {
  FoldTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    table.word[byte] = (static_cast<uint32_t>((byte - 127 + 120) * 128) & 0xFFFFu) * 0x10001u;
  }
  return table;
}

struct Fp8Weights {
  using Row = WeightRow;
  static constexpr int64_t kMostDotRows = 8;
  static constexpr bool kNatural = true;
  static constexpr FoldTable kFold = make_fold_table();
  static constexpr int64_t kBytesPerBlock = 32;
  static constexpr bool kAnyK = false;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return fp8_row(w, n); }

  // The rows share their scales.
  template <int R>
  static CEDRA_INLINE void decode(const Row* rows, int64_t block, Words* out) {
    const __m256i fold = _mm256_set1_epi32(static_cast<int>(kFold.word[rows[0].scales[block]]));
    const __m256i exponent = _mm256_set1_epi8(0x78);
    __m256i least = exponent;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const uint8_t* p = rows[r].codes + block * kBytesPerBlock;
      least = _mm256_min_epu8(least, _mm256_and_si256(load_32(p), exponent));
      out[r] = {{place(extended(p), fold), place(extended(p + 16), fold)}};
    }
    // Zeros and subnormals have no such exponent; few blocks of a trained matrix have any.
    const __m256i small = _mm256_cmpeq_epi8(least, _mm256_setzero_si256());
    if (_mm256_movemask_epi8(small) != 0) [[unlikely]] {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const uint8_t* p = rows[r].codes + block * kBytesPerBlock;
        out[r].v[0] = put_small(out[r].v[0], extended(p), fold);
        out[r].v[1] = put_small(out[r].v[1], extended(p + 16), fold);
      }
    }
  }

 private:
  // Sixteen codes as words, the sign extended.
  static CEDRA_INLINE __m256i extended(const uint8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // The exponent field lands in BF16's as it is.
  static CEDRA_INLINE __m256i place(__m256i codes, __m256i fold) {
    const __m256i field = _mm256_set1_epi16(static_cast<int16_t>(0x87F0));
    return _mm256_add_epi16(_mm256_and_si256(_mm256_slli_epi16(codes, 4), field), fold);
  }
  // Words of codes below 8 are replaced: BF16 of m * 2^-9 less the 120 of `fold`, modulo 2^16.
  static CEDRA_INLINE __m256i put_small(__m256i words, __m256i codes, __m256i fold) {
    // The low bytes for m = 0 .. 7, then the high ones.
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0x00, 0x00, -0x80, -0x40, 0x00, 0x20, 0x40, 0x60,
                                                  0x00, -1, -1, -1, 0x00, 0x00, 0x00, 0x00));
    const __m256i zero = _mm256_setzero_si256();
    const __m256i mantissa = _mm256_and_si256(codes, _mm256_set1_epi16(7));
    const __m256i index = _mm256_or_si256(_mm256_or_si256(mantissa, _mm256_slli_epi16(mantissa, 8)),
                                          _mm256_set1_epi16(0x0800));
    const __m256i value =
        _mm256_add_epi16(_mm256_shuffle_epi8(table, index),
                         _mm256_andnot_si256(_mm256_cmpeq_epi16(mantissa, zero), fold));
    const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi16(-0x8000));
    const __m256i is_small =
        _mm256_cmpeq_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0x78)), zero);
    return _mm256_blendv_epi8(words, _mm256_or_si256(value, sign), is_small);
  }
};

struct Bf16Weights {
  using Row = WeightRow;
  static constexpr int64_t kMostDotRows = 31;
  static constexpr bool kNatural = true;
  static constexpr int64_t kBytesPerBlock = 64;
  static constexpr bool kAnyK = true;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return plain_row(w, n, 2); }
  template <int R>
  static CEDRA_INLINE void decode(const Row* rows, int64_t block, Words* out) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const uint8_t* p = rows[r].codes + block * kBytesPerBlock;
      out[r] = {{load_32(p), load_32(p + 32)}};
    }
  }
};

}  // namespace
}  // namespace cedra::kernels

// The tensor formats as AVX-512 registers of 32 BF16 values, scale folded in (exact for ordinary
// rows, see fast/matmul.h), and FP32 tensors as two registers of 16.
#pragma once

#include "kernels/fast/matmul.h"

namespace cedra::kernels {
namespace {

CEDRA_INLINE __m128 sum_lanes_of_four_512(__m512 a, __m512 b, __m512 c, __m512 d) {
  // (i, i+8): eight lanes of a then of b.
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  // (i, i+4): four lanes of a, b, c, d.
  __m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4E));  // (i, i+2)
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xB1));  // (i, i+1)
  const __m512i first_of_each = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_each, s));
}

// BF16 dot products: lane l adds the products of elements 2l and 2l+1 of each block of 32.
struct Bf16Dot {
  using Reg = __m512i;
  using Block = __m512i;
  using Sum = __m512;
  using PanelWord = uint16_t;
  static constexpr int kRegs = 1;
  static constexpr int kTileT = 6;        // 24 sums, 4 weights, 1 activation
  static constexpr int64_t kDotRows = 4;  // 16 sums, 4 activations, the rest to decode
  static constexpr int64_t kPanelBytes = 256 * 1024;
  static constexpr int dot_tile_n(int) { return 4; }

  static CEDRA_INLINE Sum zero() { return _mm512_setzero_ps(); }
  static CEDRA_INLINE Reg load_x_reg(const bf16* x) { return _mm512_loadu_si512(x); }
  static CEDRA_INLINE Block load_x(const bf16* x) { return _mm512_loadu_si512(x); }
  static CEDRA_INLINE Reg load_panel(const PanelWord* p) { return _mm512_load_si512(p); }
  static CEDRA_INLINE void store_panel(PanelWord* p, Block w) { _mm512_store_si512(p, w); }
  static CEDRA_INLINE Sum multiply_add_reg(Sum sum, Reg x, Reg w) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
  static CEDRA_INLINE Sum multiply_add(Sum sum, Block x, Block w) {
    return multiply_add_reg(sum, x, w);
  }
  static CEDRA_INLINE __m128 sum_lanes_of_four(Sum a, Sum b, Sum c, Sum d) {
    return sum_lanes_of_four_512(a, b, c, d);
  }
};

// What is added to the exponent field of both BF16 halves of a dword for scale byte b.
struct FoldTable {
  uint32_t word[256];
};
constexpr FoldTable make_fold_table(int offset) {
  FoldTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t half = static_cast<uint32_t>((byte - 127 + offset) * 128) & 0xFFFFu;
    table.word[byte] = half * 0x10001u;
  }
  return table;
}

// The sixteen E2M1 values times 2^(b - 127) as BF16, for each scale byte b of an ordinary row,
// twice: vpermw looks at five bits of an index, so the nibble above may stay. A checkpoint uses a
// handful of scales, whose tables stay in the first-level cache.
struct Fp4Tables {
  alignas(64) uint16_t value[256][32];
};
constexpr Fp4Tables make_fp4_tables() {
  constexpr uint16_t kMagnitudes[8] = {0x0000, 0x3F00, 0x3F80, 0x3FC0,
                                       0x4000, 0x4040, 0x4080, 0x40C0};
  Fp4Tables tables{};
  for (int byte = kLeastScale; byte <= kGreatestScale; ++byte) {
    for (int code = 0; code < 32; ++code) {
      int bits = kMagnitudes[code & 7];
      if (bits != 0) bits += (byte - 127) * 128;
      tables.value[byte][code] = static_cast<uint16_t>(bits | ((code & 8) != 0 ? 0x8000 : 0));
    }
  }
  return tables;
}

struct Fp4Weights {
  using Row = WeightRow;
  static constexpr Fp4Tables kTables = make_fp4_tables();
  static constexpr int64_t kBytesPerBlock = 16;
  static constexpr bool kAnyK = false;
  static constexpr bool kPairs = true;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return fp4_row(w, n); }

  __m512i spread, shift_first, shift_second;
  CEDRA_INLINE Fp4Weights() {
    // Dword i takes byte i of the first block and of the second, twice; its two words are elements
    // 2i and 2i + 1 once the nibble wanted is shifted down.
    const __m512i dwords = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    spread = _mm512_add_epi8(_mm512_mullo_epi32(dwords, _mm512_set1_epi32(0x01010101)),
                             _mm512_set1_epi32(0x10001000));
    shift_first = _mm512_set1_epi32(0x00040000);
    shift_second = _mm512_set1_epi32(0x000C0008);
  }
  static CEDRA_INLINE __m512i table(uint8_t scale) {
    return _mm512_load_si512(kTables.value[scale]);
  }

  CEDRA_INLINE __m512i decode(const Row& row, int64_t block) const {
    const __m128i raw =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.codes + block * kBytesPerBlock));
    const __m512i bytes = _mm512_permutexvar_epi8(spread, _mm512_castsi128_si512(raw));
    return _mm512_permutexvar_epi16(_mm512_srlv_epi16(bytes, shift_first),
                                    table(row.scales[block]));
  }
  // Blocks `block` and the next one.
  CEDRA_INLINE void decode_pair(const Row& row, int64_t block, __m512i& first,
                                __m512i& second) const {
    const __m256i raw =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.codes + block * kBytesPerBlock));
    const __m512i bytes = _mm512_permutexvar_epi8(spread, _mm512_castsi256_si512(raw));
    first =
        _mm512_permutexvar_epi16(_mm512_srlv_epi16(bytes, shift_first), table(row.scales[block]));
    second = _mm512_permutexvar_epi16(_mm512_srlv_epi16(bytes, shift_second),
                                      table(row.scales[block + 1]));
  }
};

struct Fp8Weights {
  using Row = WeightRow;
  // The E4M3 exponent field lands in BF16's as it is; 120 is the difference of the biases.
  static constexpr FoldTable kFold = make_fold_table(120);
  static constexpr int64_t kBytesPerBlock = 32;
  static constexpr bool kAnyK = false;
  static constexpr bool kPairs = false;

  // Codes below 8 (zero and subnormals) go through a table: BF16 of m * 2^-9 less the 120 of kFold,
  // modulo 2^16.
  alignas(64) static constexpr uint16_t kSmall[32] = {0x0000, 0xFF00, 0xFF80, 0xFFC0,
                                                      0x0000, 0x0020, 0x0040, 0x0060};
  static constexpr __mmask32 kNonZero = 0x000000FEu;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return fp8_row(w, n); }

  __m512i small;
  CEDRA_INLINE Fp8Weights() { small = _mm512_load_si512(kSmall); }
  CEDRA_INLINE __m512i decode(const Row& row, int64_t block) const {
    const __m512i code = _mm512_cvtepi8_epi16(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.codes + block * kBytesPerBlock)));
    const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7F));
    const __mmask32 is_small = _mm512_testn_epi16_mask(code, _mm512_set1_epi16(0x78));
    const __m512i fold = _mm512_set1_epi32(static_cast<int>(kFold.word[row.scales[block]]));
    __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), fold);
    const __m512i scaled_small = _mm512_mask_add_epi16(small, kNonZero, small, fold);
    value = _mm512_mask_permutexvar_epi16(value, is_small, magnitude, scaled_small);
    // value | (code & 0x8000): the code was sign-extended.
    return _mm512_ternarylogic_epi32(value, code, _mm512_set1_epi16(-0x8000), 0xF8);
  }
};

struct Bf16Weights {
  using Row = WeightRow;
  static constexpr int64_t kBytesPerBlock = 64;
  static constexpr bool kAnyK = true;
  static constexpr bool kPairs = false;

  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return plain_row(w, n, 2); }
  CEDRA_INLINE __m512i decode(const Row& row, int64_t block) const {
    return _mm512_loadu_si512(row.codes + block * kBytesPerBlock);
  }
};

}  // namespace
}  // namespace cedra::kernels

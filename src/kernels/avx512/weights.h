// Weights of the three tensor formats as BF16 registers: 32 consecutive weights of a row, scale
// folded in (exact: the row was found ordinary, see matmul.cpp).
#pragma once

#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

constexpr int64_t kStep = 32;  // weights per register; one scale block

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

struct Fp4Weights {
  static constexpr FoldTable kFold = make_fold_table(0);
  static constexpr int64_t kBytesPerStep = 16;  // codes of a row

  // Nibble -> BF16, twice: only the low five bits of an index count, so the upper nibble may stay.
  alignas(64) static constexpr uint16_t kTable[32] = {
      0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80,
      0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0, 0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040,
      0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0};
  static constexpr __mmask32 kNonZero = 0xFEFEFEFEu;

  struct Row {
    const uint8_t* codes;
    const uint8_t* scales;
  };
  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) {
    return {w.data + n * (w.cols / 2), w.scales + n * (w.cols / kStep)};
  }

  __m512i spread, shift, table;
  CEDRA_INLINE Fp4Weights() {
    // Word i takes byte i / 2; the odd words take its upper nibble.
    const __m512i words =
        _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                         12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    spread = _mm512_srli_epi16(words, 1);
    shift = _mm512_set1_epi32(0x00040000);
    table = _mm512_load_si512(kTable);
  }
  CEDRA_INLINE __m512i decode(const Row& row, int64_t step) const {
    const __m128i raw =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.codes + step * kBytesPerStep));
    const __m512i index =
        _mm512_srlv_epi16(_mm512_permutexvar_epi8(spread, _mm512_castsi128_si512(raw)), shift);
    const __m512i fold = _mm512_set1_epi32(static_cast<int>(kFold.word[row.scales[step]]));
    const __m512i scaled = _mm512_mask_add_epi16(table, kNonZero, table, fold);
    return _mm512_permutexvar_epi16(index, scaled);
  }
};

struct Fp8Weights {
  // The E4M3 exponent field lands in BF16's as it is; 120 is the difference of the biases.
  static constexpr FoldTable kFold = make_fold_table(120);
  static constexpr int64_t kBytesPerStep = 32;

  // Codes below 8 (zero and subnormals) go through a table: BF16 of m * 2^-9 less the 120 of kFold.
  alignas(64) static constexpr uint16_t kSmall[32] = {0x0000,
                                                      0x3B00 - 0x3C00 + 0x10000,
                                                      0x3B80 - 0x3C00 + 0x10000,
                                                      0x3BC0 - 0x3C00 + 0x10000,
                                                      0x3C00 - 0x3C00,
                                                      0x3C20 - 0x3C00,
                                                      0x3C40 - 0x3C00,
                                                      0x3C60 - 0x3C00};
  static constexpr __mmask32 kNonZero = 0x000000FEu;

  struct Row {
    const uint8_t* codes;
    const uint8_t* scales;
  };
  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) {
    return {w.data + n * w.cols, w.scales + (n / kStep) * (w.cols / kStep)};
  }

  __m512i small;
  CEDRA_INLINE Fp8Weights() { small = _mm512_load_si512(kSmall); }
  CEDRA_INLINE __m512i decode(const Row& row, int64_t step) const {
    const __m512i code = _mm512_cvtepi8_epi16(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.codes + step * kBytesPerStep)));
    const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7F));
    const __mmask32 is_small = _mm512_testn_epi16_mask(code, _mm512_set1_epi16(0x78));
    const __m512i fold = _mm512_set1_epi32(static_cast<int>(kFold.word[row.scales[step]]));
    __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), fold);
    const __m512i scaled_small = _mm512_mask_add_epi16(small, kNonZero, small, fold);
    value = _mm512_mask_permutexvar_epi16(value, is_small, magnitude, scaled_small);
    // value | (code & 0x8000): the code was sign-extended.
    return _mm512_ternarylogic_epi32(value, code, _mm512_set1_epi16(-0x8000), 0xF8);
  }
};

struct Bf16Weights {
  static constexpr int64_t kBytesPerStep = 64;

  struct Row {
    const uint8_t* values;
  };
  static CEDRA_INLINE Row row(const Matrix& w, int64_t n) { return {w.data + 2 * n * w.cols}; }

  CEDRA_INLINE __m512i decode(const Row& row, int64_t step) const {
    return _mm512_loadu_si512(row.values + step * kBytesPerStep);
  }
  // The last, short step: lanes outside `mask` are zero and not read.
  CEDRA_INLINE __m512i decode_tail(const Row& row, int64_t step, __mmask32 mask) const {
    return _mm512_maskz_loadu_epi16(mask, row.values + step * kBytesPerStep);
  }
};

}  // namespace
}  // namespace cedra::kernels

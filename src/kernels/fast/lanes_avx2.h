// Sixteen lanes as two 32-byte vectors: the AVX2 half of vec.h, which says what may be here. g++ 12
// turns generic 64-byte vectors into scalar code for compares, conversions and selections at this
// level, so every operation is written out. The names are those of lanes_avx512.h.
#pragma once

namespace cedra::kernels {
namespace {

struct F16 {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
};
struct U16 {
  __m256i low, high;
};
struct I16 {
  __m256i low, high;
};

CEDRA_INLINE F16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
CEDRA_INLINE F16 as_float(U16 x) {
  return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)};
}
CEDRA_INLINE F16 as_float(I16 x) {
  return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)};
}
CEDRA_INLINE U16 as_bits(F16 x) {
  return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)};
}
CEDRA_INLINE float first_lane(F16 x) { return _mm256_cvtss_f32(x.low); }

#define CEDRA_LANES_OPERATOR(op, name)                                             \
  CEDRA_INLINE F16 operator op(F16 a, F16 b) {                                     \
    return {_mm256_##name##_ps(a.low, b.low), _mm256_##name##_ps(a.high, b.high)}; \
  }                                                                                \
  CEDRA_INLINE F16 operator op(F16 a, float b) { return a op splat(b); }           \
  CEDRA_INLINE F16 operator op(float a, F16 b) { return splat(a) op b; }
CEDRA_LANES_OPERATOR(+, add)
CEDRA_LANES_OPERATOR(-, sub)
CEDRA_LANES_OPERATOR(*, mul)
CEDRA_LANES_OPERATOR(/, div)
#undef CEDRA_LANES_OPERATOR
CEDRA_INLINE F16 operator-(F16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}

CEDRA_INLINE U16 operator+(U16 a, U16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
CEDRA_INLINE U16 operator|(U16 a, U16 b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
CEDRA_INLINE U16 operator+(U16 a, uint32_t b) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(b));
  return {_mm256_add_epi32(a.low, all), _mm256_add_epi32(a.high, all)};
}
CEDRA_INLINE U16 operator&(U16 a, uint32_t b) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(b));
  return {_mm256_and_si256(a.low, all), _mm256_and_si256(a.high, all)};
}
CEDRA_INLINE U16 operator<<(U16 a, int n) {
  return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}
CEDRA_INLINE U16 operator>>(U16 a, int n) {
  return {_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
}
CEDRA_INLINE I16 operator-(I16 a, I16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
CEDRA_INLINE I16 operator+(I16 a, int b) {
  return {_mm256_add_epi32(a.low, _mm256_set1_epi32(b)),
          _mm256_add_epi32(a.high, _mm256_set1_epi32(b))};
}
CEDRA_INLINE I16 operator<<(I16 a, int n) {
  return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}
CEDRA_INLINE I16 operator>>(I16 a, int n) {
  return {_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)};
}

CEDRA_INLINE F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
CEDRA_INLINE void store(float* p, F16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
CEDRA_INLINE U16 load_words(const void* p) {
  const __m256i* words = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
CEDRA_INLINE void store_words(void* p, U16 v) {
  __m256i* words = static_cast<__m256i*>(p);
  _mm256_storeu_si256(words, v.low);
  _mm256_storeu_si256(words + 1, v.high);
}
CEDRA_INLINE F16 load(const bf16* p) {
  const __m128i* words = reinterpret_cast<const __m128i*>(p);
  return as_float(U16{_mm256_cvtepu16_epi32(_mm_loadu_si128(words)),
                      _mm256_cvtepu16_epi32(_mm_loadu_si128(words + 1))}
                  << 16);
}
// Sixteen bytes, zero-extended.
CEDRA_INLINE U16 load_bytes(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}

// Nearest, ties to even, as to_bf16().
CEDRA_INLINE void store(bf16* p, F16 v) {
  const U16 bits = as_bits(v);
  const U16 words = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const __m256i packed = _mm256_packus_epi32(words.low, words.high);  // in quarters 0, 2, 1, 3
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}

CEDRA_INLINE I16 to_int(F16 a) {  // of whole numbers
  return {_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high)};
}
CEDRA_INLINE F16 to_float(U16 a) {  // below 2^31
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
CEDRA_INLINE F16 min_lanes(F16 a, F16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
CEDRA_INLINE F16 max_lanes(F16 a, F16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
// a < b ? x : y
CEDRA_INLINE F16 if_less(F16 a, F16 b, F16 x, F16 y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
CEDRA_INLINE F16 fma(F16 a, F16 b, F16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
CEDRA_INLINE F16 sqrt_lanes(F16 a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
// Lane i is table[code[i] & 15].
CEDRA_INLINE F16 look_up(F16 table, U16 code) {
  // Bit 3 of the index picks the half; blendv looks at the sign bit.
  const auto pick = [&](__m256i i) __attribute__((always_inline)) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, i),
                            _mm256_permutevar8x32_ps(table.high, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
  };
  return {pick(code.low), pick(code.high)};
}
// The sixteen nibbles at p, the low one of a byte first; what stands above them may be anything.
CEDRA_INLINE U16 load_nibbles(const void* p) {
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  int words[2];
  memcpy(words, p, sizeof words);
  return {_mm256_srlv_epi32(_mm256_set1_epi32(words[0]), shifts),
          _mm256_srlv_epi32(_mm256_set1_epi32(words[1]), shifts)};
}
// The sixteen E2M1 values.
CEDRA_INLINE F16 e2m1_table() {
  return {_mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f),
          _mm256_setr_ps(-0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f)};
}
CEDRA_INLINE Halves halves(F16 v) { return {v.low, v.high}; }

struct D16 {
  __m256d v[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                  _mm256_setzero_pd()};
  static CEDRA_INLINE __m256d widen(__m256 x, int half) {
    return _mm256_cvtps_pd(half == 0 ? _mm256_castps256_ps128(x) : _mm256_extractf128_ps(x, 1));
  }
  CEDRA_INLINE void add(F16 a) {
    v[0] = _mm256_add_pd(v[0], widen(a.low, 0));
    v[1] = _mm256_add_pd(v[1], widen(a.low, 1));
    v[2] = _mm256_add_pd(v[2], widen(a.high, 0));
    v[3] = _mm256_add_pd(v[3], widen(a.high, 1));
  }
  // += a * b, the product not rounded.
  CEDRA_INLINE void add_product(F16 a, F16 b) {
    v[0] = _mm256_fmadd_pd(widen(a.low, 0), widen(b.low, 0), v[0]);
    v[1] = _mm256_fmadd_pd(widen(a.low, 1), widen(b.low, 1), v[1]);
    v[2] = _mm256_fmadd_pd(widen(a.high, 0), widen(b.high, 0), v[2]);
    v[3] = _mm256_fmadd_pd(widen(a.high, 1), widen(b.high, 1), v[3]);
  }
  CEDRA_INLINE F16 to_float() const {
    return {_mm256_set_m128(_mm256_cvtpd_ps(v[1]), _mm256_cvtpd_ps(v[0])),
            _mm256_set_m128(_mm256_cvtpd_ps(v[3]), _mm256_cvtpd_ps(v[2]))};
  }
  // The first eight lanes plus the last eight.
  CEDRA_INLINE void fold(__m256d* low, __m256d* high) const {
    *low = _mm256_add_pd(v[0], v[2]);
    *high = _mm256_add_pd(v[1], v[3]);
  }
};

}  // namespace
}  // namespace cedra::kernels

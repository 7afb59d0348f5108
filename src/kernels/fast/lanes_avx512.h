// Sixteen lanes as one 64-byte vector: the AVX-512 and AMX half of vec.h, which says what may be
// here. The names are those of lanes_avx2.h.
#pragma once

namespace cedra::kernels {
namespace {

typedef float F16 __attribute__((vector_size(64)));
typedef uint32_t U16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef uint16_t W16 __attribute__((vector_size(32)));
typedef uint8_t B16 __attribute__((vector_size(16)));

CEDRA_INLINE F16 splat(float x) { return F16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
CEDRA_INLINE F16 as_float(U16 x) { return reinterpret_cast<F16>(x); }
CEDRA_INLINE F16 as_float(I16 x) { return reinterpret_cast<F16>(x); }
CEDRA_INLINE U16 as_bits(F16 x) { return reinterpret_cast<U16>(x); }
CEDRA_INLINE float first_lane(F16 x) { return x[0]; }

CEDRA_INLINE F16 load(const float* p) {
  F16 v;
  memcpy(&v, p, sizeof v);
  return v;
}
CEDRA_INLINE void store(float* p, F16 v) { memcpy(p, &v, sizeof v); }
CEDRA_INLINE U16 load_words(const void* p) {
  U16 v;
  memcpy(&v, p, sizeof v);
  return v;
}
CEDRA_INLINE void store_words(void* p, U16 v) { memcpy(p, &v, sizeof v); }
CEDRA_INLINE F16 load(const bf16* p) {
  W16 w;
  memcpy(&w, p, sizeof w);
  return as_float(__builtin_convertvector(w, U16) << 16);
}
// Sixteen bytes, zero-extended.
CEDRA_INLINE U16 load_bytes(const uint8_t* p) {
  B16 bytes;
  memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, U16);
}

// Nearest, ties to even, as to_bf16().
CEDRA_INLINE void store(bf16* p, F16 v) {
  const U16 bits = as_bits(v);
  const W16 w = __builtin_convertvector((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16, W16);
  memcpy(p, &w, sizeof w);
}

CEDRA_INLINE I16 to_int(F16 a) { return __builtin_convertvector(a, I16); }  // of whole numbers
CEDRA_INLINE F16 to_float(U16 a) {                                          // below 2^31
  return __builtin_convertvector(reinterpret_cast<I16>(a), F16);
}
CEDRA_INLINE F16 min_lanes(F16 a, F16 b) { return a < b ? a : b; }
CEDRA_INLINE F16 max_lanes(F16 a, F16 b) { return a > b ? a : b; }
// a < b ? x : y
CEDRA_INLINE F16 if_less(F16 a, F16 b, F16 x, F16 y) { return a < b ? x : y; }
CEDRA_INLINE F16 fma(F16 a, F16 b, F16 c) {
  return reinterpret_cast<F16>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
}
CEDRA_INLINE F16 sqrt_lanes(F16 a) {
  return reinterpret_cast<F16>(_mm512_sqrt_ps(reinterpret_cast<__m512>(a)));
}
// Lane i is table[code[i] & 15].
CEDRA_INLINE F16 look_up(F16 table, U16 code) {
  return reinterpret_cast<F16>(
      _mm512_permutexvar_ps(reinterpret_cast<__m512i>(code), reinterpret_cast<__m512>(table)));
}
// The sixteen nibbles at p, the low one of a byte first; what stands above them may be anything.
CEDRA_INLINE U16 load_nibbles(const void* p) {
  const U16 shifts = {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
  const __m512i index = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i words = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  return reinterpret_cast<U16>(_mm512_permutexvar_epi32(index, _mm512_castsi128_si512(words))) >>
         shifts;
}
// The sixteen E2M1 values.
CEDRA_INLINE F16 e2m1_table() {
  return F16{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
}
CEDRA_INLINE Halves halves(F16 v) {
  Halves h;
  memcpy(&h, &v, sizeof h);
  return h;
}

struct D16 {
  __m512d v[2] = {};
  CEDRA_INLINE void add(F16 a) {
    const __m512 x = reinterpret_cast<__m512>(a);
    v[0] = _mm512_add_pd(v[0], _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    v[1] = _mm512_add_pd(v[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
  }
  // += a * b, the product not rounded.
  CEDRA_INLINE void add_product(F16 a, F16 b) {
    const __m512 x = reinterpret_cast<__m512>(a), y = reinterpret_cast<__m512>(b);
    v[0] = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                           _mm512_cvtps_pd(_mm512_castps512_ps256(y)), v[0]);
    v[1] = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)),
                           _mm512_cvtps_pd(_mm512_extractf32x8_ps(y, 1)), v[1]);
  }
  CEDRA_INLINE F16 to_float() const {
    return reinterpret_cast<F16>(_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(v[0])),
                                                    _mm512_cvtpd_ps(v[1]), 1));
  }
  // The first eight lanes plus the last eight.
  CEDRA_INLINE void fold(__m256d* low, __m256d* high) const {
    const __m512d eight = _mm512_add_pd(v[0], v[1]);
    *low = _mm512_castpd512_pd256(eight);
    *high = _mm512_extractf64x4_pd(eight, 1);
  }
};

}  // namespace
}  // namespace cedra::kernels

// Sixteen FP32 lanes for the code that the fast levels share. Included only by files that are
// compiled for AVX2 or AVX-512; everything lives in an anonymous namespace, and nothing from the
// standard library is instantiated here, so that no instruction of a level can leak into code that
// the linker shares with the rest of the program.
//
// The lanes are the same at both levels (two halves of eight on AVX2), so a sum over lanes has one
// order: lane = index mod 16, then halves are added, then quarters, and so on.
#pragma once

#ifndef __AVX2__
#error "kernels/fast is for the per-level files only"
#endif

// g++ 12 reports its own "undefined" placeholders in the intrinsics.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/ops.h"

// Vectors are passed by value between functions that are always inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#define CEDRA_INLINE inline __attribute__((always_inline))

namespace cedra::kernels {
namespace {

constexpr int64_t kLanes = 16;

typedef float F16 __attribute__((vector_size(64)));
typedef uint32_t U16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
typedef uint16_t W16 __attribute__((vector_size(32)));
typedef uint8_t B16 __attribute__((vector_size(16)));

CEDRA_INLINE F16 splat(float x) { return F16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
CEDRA_INLINE F16 as_float(U16 x) { return reinterpret_cast<F16>(x); }
CEDRA_INLINE U16 as_bits(F16 x) { return reinterpret_cast<U16>(x); }

CEDRA_INLINE F16 load(const float* p) {
  F16 v;
  memcpy(&v, p, sizeof v);
  return v;
}
CEDRA_INLINE void store(float* p, F16 v) { memcpy(p, &v, sizeof v); }

CEDRA_INLINE F16 widen(W16 w) { return as_float(__builtin_convertvector(w, U16) << 16); }
CEDRA_INLINE F16 load(const bf16* p) {
  W16 w;
  memcpy(&w, p, sizeof w);
  return widen(w);
}

// Nearest, ties to even, as to_bf16().
CEDRA_INLINE W16 narrow(F16 v) {
  const U16 bits = as_bits(v);
  return __builtin_convertvector((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16, W16);
}
CEDRA_INLINE void store(bf16* p, F16 v) {
  const W16 w = narrow(v);
  memcpy(p, &w, sizeof w);
}
CEDRA_INLINE F16 round_bf16_lanes(F16 v) {
  const U16 bits = as_bits(v);
  return as_float((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}

// The first `count` lanes from memory, zeros behind them.
template <class T>
CEDRA_INLINE F16 load_part(const T* p, int64_t count) {
  T lanes[kLanes] = {};
  memcpy(lanes, p, static_cast<size_t>(count) * sizeof(T));
  return load(lanes);
}
template <class T>
CEDRA_INLINE void store_part(T* p, F16 v, int64_t count) {
  T lanes[kLanes];
  store(lanes, v);
  memcpy(p, lanes, static_cast<size_t>(count) * sizeof(T));
}

CEDRA_INLINE F16 min_lanes(F16 a, F16 b) { return a < b ? a : b; }
CEDRA_INLINE F16 max_lanes(F16 a, F16 b) { return a > b ? a : b; }
CEDRA_INLINE F16 abs_lanes(F16 a) { return as_float(as_bits(a) & 0x7FFFFFFFu); }

#ifdef __AVX512F__
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
// The first dword at p in lanes 0..7, the second in lanes 8..15.
CEDRA_INLINE U16 spread_two(const void* p) {
  const __m512i index = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i words = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  return reinterpret_cast<U16>(_mm512_permutexvar_epi32(index, _mm512_castsi128_si512(words)));
}
#else
struct Halves {
  __m256 low, high;
};
CEDRA_INLINE Halves split(F16 v) {
  Halves h;
  memcpy(&h, &v, sizeof h);
  return h;
}
CEDRA_INLINE F16 join(__m256 low, __m256 high) {
  const Halves h = {low, high};
  F16 v;
  memcpy(&v, &h, sizeof v);
  return v;
}
CEDRA_INLINE F16 fma(F16 a, F16 b, F16 c) {
  const Halves x = split(a), y = split(b), z = split(c);
  return join(_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high));
}
CEDRA_INLINE F16 sqrt_lanes(F16 a) {
  const Halves x = split(a);
  return join(_mm256_sqrt_ps(x.low), _mm256_sqrt_ps(x.high));
}
CEDRA_INLINE F16 look_up(F16 table, U16 code) {
  const Halves t = split(table), c = split(as_float(code));
  const __m256i low = _mm256_castps_si256(c.low), high = _mm256_castps_si256(c.high);
  // Bit 3 of the index picks the half; blendv looks at the sign bit.
  auto pick = [&](__m256i i) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, i), _mm256_permutevar8x32_ps(t.high, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
  };
  return join(pick(low), pick(high));
}
CEDRA_INLINE U16 spread_two(const void* p) {
  int words[2];
  memcpy(words, p, sizeof words);
  return as_bits(join(_mm256_castsi256_ps(_mm256_set1_epi32(words[0])),
                      _mm256_castsi256_ps(_mm256_set1_epi32(words[1]))));
}
#endif

// Sixteen float64 sums, lane by lane. Used where a sum decides over everything after it (norms,
// hyper-connection coefficients, gates) and costs little: there the fast levels give the oracle's
// bits, up to the order of a float64 sum.
#ifdef __AVX512F__
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
  CEDRA_INLINE double sum() const {
    double s[kLanes];
    _mm512_storeu_pd(s, v[0]);
    _mm512_storeu_pd(s + 8, v[1]);
    for (int half = 8; half >= 1; half /= 2) {
      for (int i = 0; i < half; ++i) s[i] += s[i + half];
    }
    return s[0];
  }
};
#else
struct D16 {
  __m256d v[4] = {};
  static CEDRA_INLINE __m256d widen(__m256 x, int half) {
    return _mm256_cvtps_pd(half == 0 ? _mm256_castps256_ps128(x) : _mm256_extractf128_ps(x, 1));
  }
  CEDRA_INLINE void add(F16 a) {
    const Halves x = split(a);
    v[0] = _mm256_add_pd(v[0], widen(x.low, 0));
    v[1] = _mm256_add_pd(v[1], widen(x.low, 1));
    v[2] = _mm256_add_pd(v[2], widen(x.high, 0));
    v[3] = _mm256_add_pd(v[3], widen(x.high, 1));
  }
  CEDRA_INLINE void add_product(F16 a, F16 b) {
    const Halves x = split(a), y = split(b);
    v[0] = _mm256_fmadd_pd(widen(x.low, 0), widen(y.low, 0), v[0]);
    v[1] = _mm256_fmadd_pd(widen(x.low, 1), widen(y.low, 1), v[1]);
    v[2] = _mm256_fmadd_pd(widen(x.high, 0), widen(y.high, 0), v[2]);
    v[3] = _mm256_fmadd_pd(widen(x.high, 1), widen(y.high, 1), v[3]);
  }
  CEDRA_INLINE F16 to_float() const {
    return join(_mm256_set_m128(_mm256_cvtpd_ps(v[1]), _mm256_cvtpd_ps(v[0])),
                _mm256_set_m128(_mm256_cvtpd_ps(v[3]), _mm256_cvtpd_ps(v[2])));
  }
  CEDRA_INLINE double sum() const {
    double s[kLanes];
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(s + 4 * i, v[i]);
    for (int half = 8; half >= 1; half /= 2) {
      for (int i = 0; i < half; ++i) s[i] += s[i + half];
    }
    return s[0];
  }
};
#endif

// (i, i+8), then (i, i+4), (i, i+2), (i, i+1).
CEDRA_INLINE float sum_lanes(F16 v) {
  struct {
    __m256 low, high;
  } h;
  memcpy(&h, &v, sizeof h);
  const __m256 eight = _mm256_add_ps(h.low, h.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CEDRA_INLINE float max_of_lanes(F16 v) {
  float s[kLanes];
  store(s, v);
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) s[i] = s[i] > s[i + half] ? s[i] : s[i + half];
  }
  return s[0];
}

// e^x within 1 ulp or so; 0 and infinity at the ends, subnormals in between. Cephes' polynomial for
// |r| <= ln2 / 2; 2^n is applied in two factors so that neither leaves the range.
CEDRA_INLINE F16 exp_lanes(F16 x) {
  x = max_lanes(min_lanes(x, splat(89.0f)), splat(-104.0f));
  const float magic = 0x1.8p23f;  // adding it rounds to an integer
  const F16 n = (x * 1.44269504088896341f + magic) - magic;
  F16 r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  F16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  const F16 value = fma(p, r * r, r) + 1.0f;
  const I16 whole = __builtin_convertvector(n, I16);
  const I16 first = whole >> 1;
  const I16 second = whole - first;
  const F16 scale_a = reinterpret_cast<F16>((first + 127) << 23);
  const F16 scale_b = reinterpret_cast<F16>((second + 127) << 23);
  return (value * scale_a) * scale_b;
}

// 1 / (1 + e^-x), by e^-|x| so that nothing overflows and small results keep their digits.
CEDRA_INLINE F16 sigmoid_lanes(F16 x) {
  const F16 e = exp_lanes(-abs_lanes(x));
  return (x < 0.0f ? e : splat(1.0f)) / (1.0f + e);
}

// log(1 + e^x) = max(x, 0) + 2 atanh(y / (2 + y)), y = e^-|x|: the argument is at most 1/3, where
// the series is short; above 20 the result is x.
CEDRA_INLINE F16 softplus_lanes(F16 x) {
  const F16 y = exp_lanes(-abs_lanes(x));
  const F16 s = y / (2.0f + y);
  const F16 q = s * s;
  F16 p = splat(1.0f / 15);
  p = fma(p, q, splat(1.0f / 13));
  p = fma(p, q, splat(1.0f / 11));
  p = fma(p, q, splat(1.0f / 9));
  p = fma(p, q, splat(1.0f / 7));
  p = fma(p, q, splat(1.0f / 5));
  p = fma(p, q, splat(1.0f / 3));
  const F16 log1p = y < 0x1p-25f ? y : 2.0f * fma(p * q, s, s);
  return x > 20.0f ? x : max_lanes(x, splat(0.0f)) + log1p;
}

CEDRA_INLINE float exp_one(float x) { return exp_lanes(splat(x))[0]; }
CEDRA_INLINE float sigmoid_one(float x) { return sigmoid_lanes(splat(x))[0]; }

// body(load, store, i) for i = 0, 16, ..; the last call works on what is left. `Load` and `Store`
// take pointers to element i.
struct WholeLanes {
  template <class T>
  CEDRA_INLINE F16 load(const T* p) const {
    return kernels::load(p);
  }
  template <class T>
  CEDRA_INLINE void store(T* p, F16 v) const {
    kernels::store(p, v);
  }
};
struct PartLanes {
  int64_t count;
  template <class T>
  CEDRA_INLINE F16 load(const T* p) const {
    return load_part(p, count);
  }
  template <class T>
  CEDRA_INLINE void store(T* p, F16 v) const {
    store_part(p, v, count);
  }
};
template <class Body>
CEDRA_INLINE void for_lanes(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(WholeLanes{}, i);
  if (i < n) body(PartLanes{n - i}, i);
}

}  // namespace
}  // namespace cedra::kernels

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

// The lanes of one FP32 vector, at any level.
struct Halves {
  __m256 low, high;
};

}  // namespace
}  // namespace cedra::kernels

#ifdef __AVX512F__
#include "kernels/fast/lanes_avx512.h"
#else
#include "kernels/fast/lanes_avx2.h"
#endif

namespace cedra::kernels {
namespace {

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

CEDRA_INLINE F16 abs_lanes(F16 a) { return as_float(as_bits(a) & 0x7FFFFFFFu); }

// Sixteen float64 sums, D16, lane by lane. Used where a sum decides over everything after it
// (norms, hyper-connection coefficients, gates) and costs little: there the fast levels give the
// oracle's bits, up to the order of a float64 sum. The lanes are added in halves.
CEDRA_INLINE double sum_lanes(const D16& sums) {
  __m256d low, high;
  sums.fold(&low, &high);
  const __m256d four = _mm256_add_pd(low, high);
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// (i, i+8), then (i, i+4), (i, i+2), (i, i+1).
CEDRA_INLINE float sum_lanes(F16 v) {
  const Halves h = halves(v);
  const __m256 eight = _mm256_add_ps(h.low, h.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CEDRA_INLINE float max_of_lanes(F16 v) {
  const Halves h = halves(v);
  const __m256 eight = _mm256_max_ps(h.low, h.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
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
  const I16 whole = to_int(n);
  const I16 first = whole >> 1;
  const I16 second = whole - first;
  const F16 scale_a = as_float((first + 127) << 23);
  const F16 scale_b = as_float((second + 127) << 23);
  return (value * scale_a) * scale_b;
}

// 1 / (1 + e^-x), by e^-|x| so that nothing overflows and small results keep their digits.
CEDRA_INLINE F16 sigmoid_lanes(F16 x) {
  const F16 e = exp_lanes(-abs_lanes(x));
  return if_less(x, F16{}, e, splat(1.0f)) / (1.0f + e);
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
  const F16 log1p = if_less(y, splat(0x1p-25f), y, 2.0f * fma(p * q, s, s));
  return if_less(splat(20.0f), x, x, max_lanes(x, F16{}) + log1p);
}

CEDRA_INLINE float exp_one(float x) { return first_lane(exp_lanes(splat(x))); }
CEDRA_INLINE float sigmoid_one(float x) { return first_lane(sigmoid_lanes(splat(x))); }

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

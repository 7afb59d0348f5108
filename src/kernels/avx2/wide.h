// FP32 matrices of the AVX2 level: the sums of fast/wide_matmul.h bit for bit, four of their
// sixteen float64 lanes at a time, so that the sums of three rows and four outputs stay in
// registers.
#pragma once

#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

constexpr int kWideOutputs = 4;
constexpr int kWideRows = 3;
constexpr int64_t kWideChunk = 512;  // of K: its weights stay in the first-level cache

// sums[T][R] += x[T][i .. i + 16) * w[R][i .. i + 16) for i = 0, 16, .. below count.
template <int R, int T>
CEDRA_INLINE void wide_lanes(const bf16* const* x, const float* const* w, int64_t count,
                             D16* sums) {
  for (int quarter = 0; quarter < 4; ++quarter) {
    __m256d sum[T * R];
#pragma GCC unroll 12
    for (int i = 0; i < T * R; ++i) sum[i] = sums[i].v[quarter];
    for (int64_t k = 4 * quarter; k < count; k += kLanes) {
      __m256d values[T];
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) {
        const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x[t] + k));
        values[t] =
            _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(words), 16)));
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256d weight = _mm256_cvtps_pd(_mm_loadu_ps(w[r] + k));
#pragma GCC unroll 3
        for (int t = 0; t < T; ++t) {
          sum[t * R + r] = _mm256_fmadd_pd(values[t], weight, sum[t * R + r]);
        }
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < T * R; ++i) sums[i].v[quarter] = sum[i];
  }
}

template <int R, int T>
__attribute__((noinline)) void wide_tile(const MatmulJob& job, int64_t t, int64_t n) {
  const int64_t k_size = job.w.cols;
  const bf16* x[T];
  const float* w[R];
  D16 sums[T * R];
  const int64_t whole = k_size / kLanes * kLanes;
  for (int64_t k = 0; k < whole; k += kWideChunk) {
    for (int i = 0; i < T; ++i) x[i] = job.x + (t + i) * job.x_stride + k;
    // Only ever read with unaligned loads.
    for (int r = 0; r < R; ++r)
      w[r] = reinterpret_cast<const float*>(job.w.data) + (n + r) * k_size + k;
    wide_lanes<R, T>(x, w, whole - k < kWideChunk ? whole - k : kWideChunk, sums);
  }
  if (whole < k_size) {
    bf16 last_x[T][kLanes] = {};
    float last_w[R][kLanes] = {};
    const auto left = static_cast<size_t>(k_size - whole);
    for (int i = 0; i < T; ++i) {
      memcpy(last_x[i], job.x + (t + i) * job.x_stride + whole, left * sizeof(bf16));
      x[i] = last_x[i];
    }
    for (int r = 0; r < R; ++r) {
      memcpy(last_w[r], job.w.data + ((n + r) * k_size + whole) * int64_t{sizeof(float)},
             left * sizeof(float));
      w[r] = last_w[r];
    }
    wide_lanes<R, T>(x, w, kLanes, sums);
  }
  for (int i = 0; i < T; ++i) {
    for (int r = 0; r < R; ++r) {
      const float bias = job.bias != nullptr ? to_float(job.bias[n + r]) : -0.0f;
      const float y = static_cast<float>(sum_lanes(sums[i * R + r]) + bias);
      const int64_t at = (t + i) * job.y_stride + n + r;
      if (job.y_f32 != nullptr) {
        job.y_f32[at] = y;
      } else {
        job.y_bf16[at] = to_bf16(y);
      }
    }
  }
}

template <int T>
void wide_rows(const MatmulJob& job, int64_t t) {
  int64_t n = job.n_begin;
  for (; n + kWideOutputs <= job.n_end; n += kWideOutputs) wide_tile<kWideOutputs, T>(job, t, n);
  for (; n < job.n_end; ++n) wide_tile<1, T>(job, t, n);
}

void multiply_wide(const MatmulJob& job) {
  int64_t t = 0;
  for (; t + kWideRows <= job.rows; t += kWideRows) wide_rows<kWideRows>(job, t);
  if (job.rows - t == 2) wide_rows<2>(job, t);
  if (job.rows - t == 1) wide_rows<1>(job, t);
}

}  // namespace
}  // namespace cedra::kernels

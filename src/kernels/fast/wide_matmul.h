// FP32 matrices of the fast levels, with float64 sums. Only the hyper-connection coefficients
// (hc_*_fn, [24, 20480] in the release) are such matrices: 1.2 % of a decode step's bytes, and
// every row of the step depends on their result, which often cancels. One accumulator of 16 float64
// lanes per output, K in order; the lanes are added in halves.
#pragma once

#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

constexpr int kWideRows = 4;  // outputs that share the conversion of x

template <int R>
CEDRA_INLINE void wide_tile(const MatmulJob& job, int64_t t, int64_t n) {
  const bf16* x = job.x + t * job.x_stride;
  const int64_t k_size = job.w.cols;
  const uint8_t* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = job.w.data + (n + r) * k_size * int64_t{sizeof(float)};
  D16 sums[R];
  int64_t k = 0;
  for (; k + kLanes <= k_size; k += kLanes) {
    const F16 values = load(x + k);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const U16 w = load_words(rows[r] + k * int64_t{sizeof(float)});  // any alignment
      sums[r].add_product(values, as_float(w));
    }
  }
  if (k < k_size) {
    const F16 values = load_part(x + k, k_size - k);
    for (int r = 0; r < R; ++r) {
      float w[kLanes] = {};
      memcpy(w, rows[r] + k * int64_t{sizeof(float)},
             static_cast<size_t>(k_size - k) * sizeof(float));
      sums[r].add_product(values, load(w));
    }
  }
  for (int r = 0; r < R; ++r) {
    const float bias = job.bias != nullptr ? to_float(job.bias[n + r]) : -0.0f;
    const float y = static_cast<float>(sum_lanes(sums[r]) + bias);
    if (job.y_f32 != nullptr) {
      job.y_f32[t * job.y_stride + n + r] = y;
    } else {
      job.y_bf16[t * job.y_stride + n + r] = to_bf16(y);
    }
  }
}

void multiply_wide(const MatmulJob& job) {
  for (int64_t t = 0; t < job.rows; ++t) {
    int64_t n = job.n_begin;
    for (; n + kWideRows <= job.n_end; n += kWideRows) wide_tile<kWideRows>(job, t, n);
    for (; n < job.n_end; ++n) wide_tile<1>(job, t, n);
  }
}

}  // namespace
}  // namespace cedra::kernels

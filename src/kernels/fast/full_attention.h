// Attention of the vision tower at the fast levels (vision.md 6). Both products run through the
// level's own matrix product; probabilities go through it as the sum of two BF16
// numbers, which keeps 16 of their bits.
#pragma once

#include <math.h>

#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

// scores [N] of one row -> probabilities times their sum, as high[N] + low[N]. Returns 1 / sum.
float split_probabilities(const float* scores, int64_t n, float scale, bf16* high, bf16* low) {
  F16 top = splat(scores[0]);
  int64_t s = 0;
  for (; s + kLanes <= n; s += kLanes) top = max_lanes(top, load(scores + s));
  float maximum = max_of_lanes(top);
  for (; s < n; ++s) maximum = scores[s] > maximum ? scores[s] : maximum;
  D16 sum;
  for_lanes(n, [&](auto lanes, int64_t i) {
    const F16 p = exp_lanes((lanes.load(scores + i) - maximum) * scale);
    const F16 rounded = round_bf16_lanes(p);
    lanes.store(high + i, p);
    lanes.store(low + i, p - rounded);
    if (n - i >= kLanes) {
      sum.add(p);
    } else {
      float single[kLanes];
      store(single, p);
      sum.add(load_part(single, n - i));
    }
  });
  return static_cast<float>(1.0 / sum_lanes(sum));
}

template <void (*kMatmul)(const MatmulJob&)>
void fast_full_attend(const FullAttendJob& job) {
  const int64_t rows = job.row_end - job.row_begin;
  const int64_t n = job.rows;
  const int64_t dim = job.head_dim;
  float* scores = static_cast<float*>(job.scratch);                  // [rows, N]
  float* sums = scores + rows * n;                                   // [2 * rows, Dh]
  float* inverse = sums + 2 * rows * dim;                            // [rows]
  bf16* parts = reinterpret_cast<bf16*>(inverse + kFullAttendRows);  // [2 * rows, N]

  MatmulJob product;
  product.w = {MatrixFormat::kBf16, reinterpret_cast<const uint8_t*>(job.k), nullptr, n, dim};
  product.x = job.q + job.row_begin * job.q_stride;
  product.x_stride = job.q_stride;
  product.rows = rows;
  product.n_end = n;
  product.y_f32 = scores;
  product.y_stride = n;
  kMatmul(product);

  const float scale = 1.0f / sqrtf(static_cast<float>(dim));
  for (int64_t t = 0; t < rows; ++t) {
    inverse[t] =
        split_probabilities(scores + t * n, n, scale, parts + t * n, parts + (rows + t) * n);
  }

  product.w = {MatrixFormat::kBf16, reinterpret_cast<const uint8_t*>(job.v), nullptr, dim, n};
  product.x = parts;
  product.x_stride = n;
  product.rows = 2 * rows;
  product.n_end = dim;
  product.y_f32 = sums;
  product.y_stride = dim;
  kMatmul(product);
  for (int64_t t = 0; t < rows; ++t) {
    const float* high = sums + t * dim;
    const float* low = sums + (rows + t) * dim;
    bf16* out = job.out + (job.row_begin + t) * job.out_stride;
    for_lanes(dim, [&](auto lanes, int64_t d) {
      lanes.store(out + d, (lanes.load(high + d) + lanes.load(low + d)) * inverse[t]);
    });
  }
}

}  // namespace
}  // namespace cedra::kernels

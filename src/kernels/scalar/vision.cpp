// Operations of the vision tower (vision.md 6, 7): full attention inside one image, half-split
// rotation, SiLU gate, exact GELU, residual sum.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/scalar/scalar.h"

namespace cedra::kernels::scalar {

void full_attend(const FullAttendJob& job) {
  const int64_t dim = job.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  double* share = static_cast<double*>(job.scratch);  // [N]
  for (int64_t t = job.row_begin; t < job.row_end; ++t) {
    const bf16* q = job.q + t * job.q_stride;
    double maximum = -INFINITY;
    for (int64_t s = 0; s < job.rows; ++s) {
      const bf16* k = job.k + s * dim;
      double dot = 0;
      for (int64_t d = 0; d < dim; ++d) dot += static_cast<double>(to_float(q[d])) * to_float(k[d]);
      share[s] = dot * scale;
      maximum = std::max(maximum, share[s]);
    }
    double sum = 0;
    for (int64_t s = 0; s < job.rows; ++s) {
      share[s] = std::exp(share[s] - maximum);
      sum += share[s];
    }
    for (int64_t s = 0; s < job.rows; ++s) share[s] /= sum;
    bf16* out = job.out + t * job.out_stride;
    for (int64_t d = 0; d < dim; ++d) {
      const bf16* v = job.v + d * job.rows;
      double total = 0;
      for (int64_t s = 0; s < job.rows; ++s) total += share[s] * to_float(v[s]);
      out[d] = to_bf16_once(total);
    }
  }
}

void rope_halves(bf16* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_float(x[i]);
    const float b = to_float(x[i + half]);
    x[i] = to_bf16(a * cos[i] - b * sin[i]);
    x[i + half] = to_bf16(b * cos[i] + a * sin[i]);
  }
}

void silu_gate(const bf16* gate, const bf16* up, int64_t n, bf16* y) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = to_float(gate[i]);
    const float silu = round_bf16(static_cast<float>(g / (1.0 + std::exp(-g))));
    y[i] = to_bf16(silu * to_float(up[i]));
  }
}

void gelu(bf16* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = to_float(x[i]);
    x[i] = to_bf16_twice(value * 0.5 * (1 + std::erf(value / std::numbers::sqrt2)));
  }
}

void add_bf16(const bf16* x, int64_t n, bf16* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = to_bf16(to_float(y[i]) + to_float(x[i]));
}

}  // namespace cedra::kernels::scalar

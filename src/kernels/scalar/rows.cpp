// Operations on single rows: norm, hyper-connections, rotation, experts, Engram (model.md 4.2, 4.4,
// 4.8, 5.4).
#include <algorithm>
#include <cmath>

#include "kernels/scalar/scalar.h"

namespace cedra::kernels::scalar {

float exp_fp32(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

float sigmoid_fp32(float x) {
  return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x))));
}

namespace {

// One rounding of x / (1 + e^-x); rounding the sigmoid first would differ.
float silu_fp32(float x) {
  const double wide = x;
  return static_cast<float>(wide / (1.0 + std::exp(-wide)));
}

float softplus_fp32(float x) {
  if (x > 20.0f) return x;
  return static_cast<float>(std::log1p(std::exp(static_cast<double>(x))));
}

// In place: e^(x - max) / sum.
void softmax(float* x, int64_t n) {
  const float maximum = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = exp_fp32(x[i] - maximum);
    sum += x[i];
  }
  for (int64_t i = 0; i < n; ++i) x[i] /= static_cast<float>(sum);
}

// M[i][j] /= (sum over the row or column + eps); step 1 = along a row of C.
void normalise_rows(float* m, int64_t copies, float eps) {
  for (int64_t i = 0; i < copies; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < copies; ++j) sum += m[i * copies + j];
    for (int64_t j = 0; j < copies; ++j) m[i * copies + j] /= static_cast<float>(sum) + eps;
  }
}

void normalise_columns(float* m, int64_t copies, float eps) {
  for (int64_t j = 0; j < copies; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < copies; ++i) sum += m[i * copies + j];
    for (int64_t i = 0; i < copies; ++i) m[i * copies + j] /= static_cast<float>(sum) + eps;
  }
}

}  // namespace

float inverse_rms(const bf16* x, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = to_float(x[i]);
    sum += value * value;
  }
  const float mean_square = static_cast<float>(sum / static_cast<double>(n));
  return 1.0f / std::sqrt(mean_square + eps);
}

void rms_norm(const bf16* x, const bf16* w, int64_t n, float eps, bf16* y) {
  const float r = inverse_rms(x, n, eps);
  for (int64_t i = 0; i < n; ++i) y[i] = to_bf16(to_float(w[i]) * (to_float(x[i]) * r));
}

void collapse(const bf16* x, const float* pre, int64_t copies, int64_t dim, bf16* y) {
  for (int64_t i = 0; i < dim; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < copies; ++c) sum += pre[c] * to_float(x[c * dim + i]);
    y[i] = to_bf16_twice(sum);
  }
}

void expand(const bf16* a, const float* post, const float* comb, int64_t copies, int64_t dim,
            bf16* x) {
  for (int64_t d = 0; d < dim; ++d) {
    float old[kMaxCopies];
    for (int64_t i = 0; i < copies; ++i) old[i] = to_float(x[i * dim + d]);
    for (int64_t j = 0; j < copies; ++j) {
      double mixed = 0;
      for (int64_t i = 0; i < copies; ++i) mixed += comb[i * copies + j] * old[i];
      x[j * dim + d] = to_bf16(post[j] * to_float(a[d]) + static_cast<float>(mixed));
    }
  }
}

void copy_mean(const bf16* x, int64_t copies, int64_t dim, bf16* y) {
  for (int64_t i = 0; i < dim; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < copies; ++c) sum += to_float(x[c * dim + i]);
    y[i] = to_bf16_twice(sum / static_cast<double>(copies));
  }
}

void mixes(const MixesJob& job) {
  const int64_t copies = job.copies;
  auto logit = [&](int64_t k, float scale) {
    return job.dots[k] * job.inverse_rms * scale + job.base[k];
  };
  for (int64_t c = 0; c < copies; ++c) {
    job.pre[c] = sigmoid_fp32(logit(c, job.scale[0])) + job.eps;
    job.post[c] = 2.0f * sigmoid_fp32(logit(copies + c, job.scale[1]));
  }
  float* m = job.comb;
  for (int64_t i = 0; i < copies; ++i) {
    for (int64_t j = 0; j < copies; ++j) {
      m[i * copies + j] = logit(2 * copies + i * copies + j, job.scale[2]);
    }
    softmax(m + i * copies, copies);
    for (int64_t j = 0; j < copies; ++j) m[i * copies + j] += job.eps;
  }
  normalise_columns(m, copies, job.eps);
  for (int64_t iteration = 1; iteration < job.sinkhorn_iters; ++iteration) {
    normalise_rows(m, copies, job.eps);
    normalise_columns(m, copies, job.eps);
  }
}

void rope(bf16* x, const float* cos, const float* sin, int64_t pairs, bool inverse) {
  for (int64_t k = 0; k < pairs; ++k) {
    const float a = to_float(x[2 * k]);
    const float b = to_float(x[2 * k + 1]);
    const float s = inverse ? -sin[k] : sin[k];
    x[2 * k] = to_bf16(a * cos[k] - b * s);
    x[2 * k + 1] = to_bf16(a * s + b * cos[k]);
  }
}

void swiglu(const bf16* gate, const bf16* up, float limit, float weight, int64_t n, bf16* y) {
  for (int64_t i = 0; i < n; ++i) {
    float g = to_float(gate[i]);
    float v = to_float(up[i]);
    if (limit > 0) {
      g = std::min(g, limit);
      v = std::clamp(v, -limit, limit);
    }
    y[i] = to_bf16(weight * (silu_fp32(g) * v));
  }
}

void add_rows(const bf16* x, int64_t n, float* total) {
  for (int64_t i = 0; i < n; ++i) total[i] += to_float(x[i]);
}

void round_rows(const float* x, int64_t n, bf16* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = to_bf16(x[i]);
}

void router_scores(float* logits, int64_t n, RouterScore kind, float gate_temp) {
  for (int64_t i = 0; i < n; ++i) logits[i] /= gate_temp;
  switch (kind) {
    case RouterScore::kSqrtSoftplus:
      for (int64_t i = 0; i < n; ++i) logits[i] = std::sqrt(softplus_fp32(logits[i]));
      return;
    case RouterScore::kSigmoid:
      for (int64_t i = 0; i < n; ++i) logits[i] = sigmoid_fp32(logits[i]);
      return;
    case RouterScore::kSoftmax:
      softmax(logits, n);
      return;
  }
}

float engram_mix(bf16* x, const bf16* key, const bf16* value, const bf16* q_weight,
                 const bf16* k_weight, int64_t dim, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) {
    const float weight = to_float(q_weight[i]) * to_float(k_weight[i]);
    sum += (to_float(x[i]) * weight) * to_float(key[i]);
  }
  const float both = inverse_rms(x, dim, eps) * inverse_rms(key, dim, eps);
  const float root_dim = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const float dot = static_cast<float>(sum) * both * root_dim;
  const float root = std::sqrt(std::max(std::fabs(dot), 1e-6f));
  const float gate = sigmoid_fp32(std::copysign(root, dot));
  for (int64_t i = 0; i < dim; ++i) {
    x[i] = to_bf16(to_float(x[i]) + gate * to_float(value[i]));
  }
  return gate;
}

}  // namespace cedra::kernels::scalar

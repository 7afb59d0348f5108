// Row operations of the fast levels (model.md 4.2, 4.4, 4.8, 5.4). Sums are float64 over 16 lanes
// and rounded to FP32, as model.md 4.11 says; everything else is FP32.
#pragma once

#include <math.h>

#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

float fast_inverse_rms(const bf16* x, int64_t n, float eps) {
  D16 sum;
  for_lanes(n, [&](auto lanes, int64_t i) {
    const F16 v = lanes.load(x + i);
    sum.add_product(v, v);
  });
  const float mean_square = static_cast<float>(sum_lanes(sum) / static_cast<double>(n));
  return 1.0f / sqrtf(mean_square + eps);
}

void fast_rms_norm(const bf16* x, const bf16* w, int64_t n, float eps, bf16* y) {
  const float r = fast_inverse_rms(x, n, eps);
  for_lanes(n, [&](auto lanes, int64_t i) {
    lanes.store(y + i, lanes.load(w + i) * (lanes.load(x + i) * r));
  });
}

// C as a constant for the number of copies of the release, so that the loops over them unroll and
// their lanes stay in registers; 0 = any number.
template <int C>
CEDRA_INLINE void collapse_copies(const bf16* x, const float* pre, int64_t copies, int64_t dim,
                                  bf16* y) {
  const int64_t count = C > 0 ? C : copies;
  for_lanes(dim, [&](auto lanes, int64_t i) {
    D16 sum;
#pragma GCC unroll 4
    for (int64_t c = 0; c < count; ++c) sum.add(pre[c] * lanes.load(x + c * dim + i));
    lanes.store(y + i, sum.to_float());
  });
}

void fast_collapse(const bf16* x, const float* pre, int64_t copies, int64_t dim, bf16* y) {
  if (copies == 4) return collapse_copies<4>(x, pre, copies, dim, y);
  collapse_copies<0>(x, pre, copies, dim, y);
}

template <int C>
CEDRA_INLINE void expand_copies(const bf16* a, const float* post, const float* comb, int64_t copies,
                                int64_t dim, bf16* x) {
  const int64_t count = C > 0 ? C : copies;
  for_lanes(dim, [&](auto lanes, int64_t d) {
    F16 old[C > 0 ? C : kMaxCopies];
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; ++i) old[i] = lanes.load(x + i * dim + d);
    const F16 output = lanes.load(a + d);
    for (int64_t j = 0; j < count; ++j) {
      D16 mixed;
#pragma GCC unroll 4
      for (int64_t i = 0; i < count; ++i) mixed.add(comb[i * count + j] * old[i]);
      lanes.store(x + j * dim + d, post[j] * output + mixed.to_float());
    }
  });
}

void fast_expand(const bf16* a, const float* post, const float* comb, int64_t copies, int64_t dim,
                 bf16* x) {
  if (copies == 4) return expand_copies<4>(a, post, comb, copies, dim, x);
  expand_copies<0>(a, post, comb, copies, dim, x);
}

void fast_copy_mean(const bf16* x, int64_t copies, int64_t dim, bf16* y) {
  const float count = static_cast<float>(copies);
  for_lanes(dim, [&](auto lanes, int64_t i) {
    F16 sum = lanes.load(x + i);
    for (int64_t c = 1; c < copies; ++c) sum = sum + lanes.load(x + c * dim + i);
    lanes.store(y + i, sum / count);
  });
}

void fast_rope(bf16* x, const float* cosines, const float* sines, int64_t pairs, bool inverse) {
  const float sign = inverse ? -1.0f : 1.0f;
  for_lanes(pairs, [&](auto lanes, int64_t k) {
    // A pair is one 32-bit word: the even element is its lower half.
    U16 words = as_bits(lanes.load(reinterpret_cast<const float*>(x + 2 * k)));
    const F16 a = as_float(words << 16);
    const F16 b = as_float(words & 0xFFFF0000u);
    const F16 c = lanes.load(cosines + k);
    const F16 s = lanes.load(sines + k) * sign;
    const U16 even = as_bits(round_bf16_lanes(a * c - b * s));
    const U16 odd = as_bits(round_bf16_lanes(a * s + b * c));
    lanes.store(reinterpret_cast<float*>(x + 2 * k), as_float((even >> 16) | odd));
  });
}

void fast_swiglu(const bf16* gate, const bf16* up, float limit, float weight, int64_t n, bf16* y) {
  const F16 top = splat(limit > 0 ? limit : INFINITY);
  for_lanes(n, [&](auto lanes, int64_t i) {
    const F16 g = min_lanes(lanes.load(gate + i), top);
    const F16 v = max_lanes(min_lanes(lanes.load(up + i), top), -top);
    const F16 silu = g / (1.0f + exp_lanes(-g));
    lanes.store(y + i, weight * (silu * v));
  });
}

void fast_add_rows(const bf16* x, int64_t n, float* total) {
  for_lanes(n, [&](auto lanes, int64_t i) {
    lanes.store(total + i, lanes.load(total + i) + lanes.load(x + i));
  });
}

void fast_round_rows(const float* x, int64_t n, bf16* y) {
  for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(x + i)); });
}

void fast_softmax(float* x, int64_t n) {
  float maximum = x[0];
  for (int64_t i = 1; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  for_lanes(n, [&](auto lanes, int64_t i) {
    lanes.store(x + i, exp_lanes(lanes.load(x + i) - maximum));
  });
  F16 sum = {};
  for_lanes(n, [&](auto lanes, int64_t i) { sum = sum + lanes.load(x + i); });
  const float total = sum_lanes(sum);
  for_lanes(n, [&](auto lanes, int64_t i) { lanes.store(x + i, lanes.load(x + i) / total); });
}

void fast_router_scores(float* logits, int64_t n, RouterScore kind, float gate_temp) {
  for_lanes(n, [&](auto lanes, int64_t i) {
    F16 v = lanes.load(logits + i) / gate_temp;
    if (kind == RouterScore::kSqrtSoftplus) v = sqrt_lanes(softplus_lanes(v));
    if (kind == RouterScore::kSigmoid) v = sigmoid_lanes(v);
    lanes.store(logits + i, v);
  });
  if (kind == RouterScore::kSoftmax) fast_softmax(logits, n);
}

float fast_engram_mix(bf16* x, const bf16* key, const bf16* value, const bf16* q_weight,
                      const bf16* k_weight, int64_t dim, float eps) {
  D16 sum;
  for_lanes(dim, [&](auto lanes, int64_t i) {
    const F16 weight = lanes.load(q_weight + i) * lanes.load(k_weight + i);
    sum.add((lanes.load(x + i) * weight) * lanes.load(key + i));
  });
  const float both = fast_inverse_rms(x, dim, eps) * fast_inverse_rms(key, dim, eps);
  const float root_dim = static_cast<float>(1.0 / sqrt(static_cast<double>(dim)));
  const float dot = static_cast<float>(sum_lanes(sum)) * both * root_dim;
  const float size = fabsf(dot) > 1e-6f ? fabsf(dot) : 1e-6f;
  const float gate = sigmoid_one(copysignf(sqrtf(size), dot));
  for_lanes(dim, [&](auto lanes, int64_t i) {
    lanes.store(x + i, lanes.load(x + i) + gate * lanes.load(value + i));
  });
  return gate;
}

// ---- vision tower (vision.md 6)

void fast_rope_halves(bf16* x, const float* cosines, const float* sines, int64_t half) {
  for_lanes(half, [&](auto lanes, int64_t i) {
    const F16 a = lanes.load(x + i);
    const F16 b = lanes.load(x + i + half);
    const F16 c = lanes.load(cosines + i);
    const F16 s = lanes.load(sines + i);
    lanes.store(x + i, a * c - b * s);
    lanes.store(x + i + half, b * c + a * s);
  });
}

void fast_silu_gate(const bf16* gate, const bf16* up, int64_t n, bf16* y) {
  for_lanes(n, [&](auto lanes, int64_t i) {
    const F16 g = lanes.load(gate + i);
    lanes.store(y + i, round_bf16_lanes(g / (1.0f + exp_lanes(-g))) * lanes.load(up + i));
  });
}

void fast_add_bf16(const bf16* x, int64_t n, bf16* y) {
  for_lanes(
      n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(y + i) + lanes.load(x + i)); });
}

}  // namespace
}  // namespace cedra::kernels

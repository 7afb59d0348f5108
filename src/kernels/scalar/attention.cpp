// Sparse attention with a sink, index scores, compressor pooling (model.md 4.5 to 4.7).
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/scalar/scalar.h"
#include "numerics/formats.h"

namespace cedra::kernels::scalar {
namespace {

constexpr int64_t kBlock = 64;  // entries between two updates of the running maximum
constexpr int64_t kStrip = 32;  // value dims summed at a time
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

double dot(const bf16* a, const bf16* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(to_float(a[i])) * to_float(b[i]);
  return sum;
}

// fl32(e^(a - b)) with the difference not rounded.
float exp_of_difference(float a, float b) {
  return static_cast<float>(std::exp(static_cast<double>(a) - b));
}

// One head. total: [head_dim] floats.
void attend_head(const AttendJob& job, int64_t head, float* total) {
  const int64_t dim = job.head_dim;
  const bf16* q = job.q + head * dim;
  float maximum = -1e30f;
  float denominator = 0;
  std::fill(total, total + dim, 0.0f);
  for (int64_t begin = 0; begin < job.entries; begin += kBlock) {
    const int64_t count = std::min(kBlock, job.entries - begin);
    const uint8_t* present = job.present + begin;
    const bf16* keys = job.keys + begin * dim;
    float score[kBlock];
    float new_maximum = maximum;
    for (int64_t e = 0; e < count; ++e) {
      score[e] = present[e] != 0 ? static_cast<float>(dot(q, keys + e * dim, dim)) * job.scale
                                 : kMinusInfinity;
      new_maximum = std::max(new_maximum, score[e]);
    }
    const float decay = exp_fp32(maximum - new_maximum);
    double sum = 0;
    for (int64_t e = 0; e < count; ++e) {
      const float p = exp_of_difference(score[e], new_maximum);
      sum += p;
      score[e] = round_bf16(p);  // the value product takes BF16 probabilities, the sum FP32 ones
    }
    denominator = denominator * decay + static_cast<float>(sum);
    for (int64_t strip = 0; strip < dim; strip += kStrip) {
      const int64_t width = std::min(kStrip, dim - strip);
      double value[kStrip] = {};
      for (int64_t e = 0; e < count; ++e) {
        if (present[e] == 0) continue;
        const bf16* key = keys + e * dim + strip;
        for (int64_t d = 0; d < width; ++d) {
          value[d] += static_cast<double>(score[e]) * to_float(key[d]);
        }
      }
      for (int64_t d = 0; d < width; ++d) {
        total[strip + d] = total[strip + d] * decay + static_cast<float>(value[d]);
      }
    }
    maximum = new_maximum;
  }
  // Without any entry maximum is still -1e30: the exponential is infinite and the quotient zero.
  denominator += exp_fp32(job.sink[head] - maximum);
  bf16* out = job.out + head * dim;
  for (int64_t d = 0; d < dim; ++d) out[d] = to_bf16(total[d] / denominator);
}

}  // namespace

void attend(const AttendJob& job) {
  for (int64_t head = job.h_begin; head < job.h_end; ++head) attend_head(job, head, job.scratch);
}

void index_scores(const IndexJob& job) {
  const int64_t dim = job.dim;
  for (int64_t j = 0; j < job.n; ++j) {
    const uint8_t* codes = job.codes + j * (dim / 2);
    const uint8_t* scales = job.scales + j * (dim / kScaleBlock);
    bf16 key[kMaxIndexDim];
    unpack_index(codes, scales, dim, key);
    double total = 0;
    for (int64_t h = 0; h < job.heads; ++h) {
      const double sum = dot(job.q + h * dim, key, dim);
      const float relu = std::max(to_float(to_bf16_twice(sum)), 0.0f);
      total += round_bf16(relu * job.head_weight[h]);
    }
    job.scores[j] = to_float(to_bf16_twice(total));
  }
}

void pool_group(const float* const* kv, const float* const* score, int64_t ratio, int64_t dim,
                bf16* y) {
  for (int64_t d = 0; d < dim; ++d) {
    float maximum = score[0][d];
    for (int64_t m = 1; m < ratio; ++m) maximum = std::max(maximum, score[m][d]);
    double sum = 0;
    for (int64_t m = 0; m < ratio; ++m) sum += exp_fp32(score[m][d] - maximum);
    double pool = 0;
    for (int64_t m = 0; m < ratio; ++m) {
      const float share = exp_fp32(score[m][d] - maximum) / static_cast<float>(sum);
      pool += kv[m][d] * share;
    }
    y[d] = to_bf16_twice(pool);
  }
}

}  // namespace cedra::kernels::scalar

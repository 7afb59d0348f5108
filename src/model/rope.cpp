#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cedra::model {
namespace {

// The (fractional) pair index that turns `rotations` times over the original context.
double yarn_dimension(double rotations, double theta, int64_t rope_dim, int64_t original_length) {
  const double turns = static_cast<double>(original_length) / (rotations * 2 * std::numbers::pi);
  return static_cast<double>(rope_dim) * std::log(turns) / (2 * std::log(theta));
}

}  // namespace

std::vector<float> rope_frequencies(double theta, int64_t rope_dim) {
  std::vector<float> frequencies(static_cast<size_t>(rope_dim / 2));
  for (size_t k = 0; k < frequencies.size(); ++k) {
    const double exponent = 2 * static_cast<double>(k) / static_cast<double>(rope_dim);
    frequencies[k] = 1.0f / static_cast<float>(std::pow(theta, exponent));
  }
  return frequencies;
}

std::vector<float> yarn_frequencies(double theta, int64_t rope_dim, const RopeScaling& scaling) {
  std::vector<float> frequencies = rope_frequencies(theta, rope_dim);
  const int64_t length = scaling.original_max_position_embeddings;
  const double low =
      std::max(std::floor(yarn_dimension(scaling.beta_fast, theta, rope_dim, length)), 0.0);
  // The bound is rope_dim - 1, not rope_dim / 2 - 1.
  double high = std::min(std::ceil(yarn_dimension(scaling.beta_slow, theta, rope_dim, length)),
                         static_cast<double>(rope_dim - 1));
  if (low == high) high += 0.001;
  const float low32 = static_cast<float>(low);
  const float span = static_cast<float>(high - low);
  const float factor = static_cast<float>(scaling.factor);
  for (size_t k = 0; k < frequencies.size(); ++k) {
    const float ramp = std::clamp((static_cast<float>(k) - low32) / span, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    frequencies[k] = (frequencies[k] / factor) * (1.0f - keep) + frequencies[k] * keep;
  }
  return frequencies;
}

void rope_angles(const std::vector<float>& frequencies, int64_t position, float* cos, float* sin) {
  for (size_t k = 0; k < frequencies.size(); ++k) {
    const float angle = static_cast<float>(position) * frequencies[k];  // an FP32 product
    cos[k] = static_cast<float>(std::cos(static_cast<double>(angle)));
    sin[k] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

}  // namespace cedra::model

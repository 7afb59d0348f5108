// Random operands for the kernel tests: odd sizes, unaligned bytes, poisoned outputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "numerics/formats.h"

namespace cedra::kernels::testing {

inline const Ops& oracle() { return *available_ops().front(); }

// Tests over every level that this machine runs, the oracle included.
class LevelTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Ops& ops() const { return *available_ops()[GetParam()]; }
};
inline auto every_level() { return ::testing::Range<size_t>(0, available_ops().size()); }
inline std::string level_name(const ::testing::TestParamInfo<size_t>& level) {
  return std::string(available_ops()[level.param]->name);
}

using Random = std::mt19937_64;

// Bell-shaped values with a spread of magnitudes, rounded to BF16.
inline std::vector<bf16> random_bf16(Random& random, int64_t n, double spread = 1.0) {
  std::normal_distribution<double> normal;
  std::vector<bf16> values(static_cast<size_t>(n));
  for (bf16& value : values) {
    value = to_bf16_twice(normal(random) * std::exp(spread * normal(random)));
  }
  return values;
}

inline std::vector<float> random_floats(Random& random, int64_t n, double scale = 1.0) {
  std::normal_distribution<double> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = static_cast<float>(scale * normal(random));
  return values;
}

// Bytes that start one past an aligned address, like tensors in a mapped file.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(int64_t n) : storage_(static_cast<size_t>(n) + 65) {}
  uint8_t* data() { return storage_.data() + 1; }
  const uint8_t* data() const { return storage_.data() + 1; }

 private:
  std::vector<uint8_t> storage_;
};

// A matrix with its own bytes. Scale bytes are drawn from [least, greatest].
class RandomMatrix {
 public:
  RandomMatrix(Random& random, MatrixFormat format, int64_t rows, int64_t cols, int least = 100,
               int greatest = 132)
      : view_{format, nullptr, nullptr, rows, cols} {
    std::uniform_int_distribution<int> byte(0, 255);
    std::uniform_int_distribution<int> scale(least, greatest);
    const int64_t elements = rows * cols;
    int64_t n_scales = 0;
    switch (format) {
      case MatrixFormat::kFp8Tile32:
        codes_ = Bytes(elements);
        for (int64_t i = 0; i < elements; ++i) {
          const int code = byte(random);
          codes_.data()[i] = static_cast<uint8_t>((code & 0x7F) == 0x7F ? code - 1 : code);
        }
        n_scales = (rows + 31) / 32 * (cols / 32);
        break;
      case MatrixFormat::kFp4Row32:
        codes_ = Bytes(elements / 2);
        for (int64_t i = 0; i < elements / 2; ++i) {
          codes_.data()[i] = static_cast<uint8_t>(byte(random));
        }
        n_scales = rows * (cols / 32);
        break;
      case MatrixFormat::kBf16: {
        const std::vector<bf16> values = random_bf16(random, elements);
        codes_ = Bytes(2 * elements);
        std::memcpy(codes_.data(), values.data(), static_cast<size_t>(2 * elements));
        break;
      }
      case MatrixFormat::kF32: {
        const std::vector<float> values = random_floats(random, elements);
        codes_ = Bytes(4 * elements);
        std::memcpy(codes_.data(), values.data(), static_cast<size_t>(4 * elements));
        break;
      }
    }
    scales_ = Bytes(n_scales);
    for (int64_t i = 0; i < n_scales; ++i) {
      scales_.data()[i] = static_cast<uint8_t>(scale(random));
    }
    view_.data = codes_.data();
    view_.scales = n_scales > 0 ? scales_.data() : nullptr;
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  const Matrix& view() const { return view_; }

 private:
  Bytes codes_, scales_;
  Matrix view_;
};

inline constexpr float kPoison = -7.25e33f;

// y[T, N] of the whole product; `rows` may be less than x has.
inline std::vector<float> product(const Ops& ops, const Matrix& w, const std::vector<bf16>& x,
                                  int64_t rows, SumRule rule = SumRule::kWhole) {
  std::vector<float> y(static_cast<size_t>(rows * w.rows), kPoison);
  MatmulJob job;
  job.w = w;
  job.x = x.data();
  job.x_stride = w.cols;
  job.rows = rows;
  job.n_begin = 0;
  job.n_end = w.rows;
  job.rule = rule;
  job.y_f32 = y.data();
  job.y_stride = w.rows;
  ops.matmul(job);
  return y;
}

// Root mean square of the difference over that of the reference.
inline double relative_rms(std::span<const float> got, std::span<const float> want) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    size += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / size);
}

inline std::vector<float> widen(const std::vector<bf16>& values) {
  std::vector<float> wide;
  wide.reserve(values.size());
  for (const bf16 value : values) wide.push_back(to_float(value));
  return wide;
}

// Distance in units of the last place of FP32; NaN never equals anything.
inline int64_t ulp_distance(float a, float b) {
  auto ordered = [](float x) {
    const int64_t bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? INT64_C(-0x80000000) - bits : bits;
  };
  if (std::isnan(a) || std::isnan(b)) return INT64_MAX;
  return std::abs(ordered(a) - ordered(b));
}

}  // namespace cedra::kernels::testing

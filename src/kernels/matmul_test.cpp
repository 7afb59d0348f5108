// Matrix products of every level: accuracy against the oracle's double sums, and the rule that the
// bits of an output depend on its row of x and its row of w alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "kernels/test_data.h"

namespace cedra::kernels {
namespace {

using namespace testing;

constexpr std::array kFormats = {MatrixFormat::kFp8Tile32, MatrixFormat::kFp4Row32,
                                 MatrixFormat::kBf16, MatrixFormat::kF32};

bool scaled(MatrixFormat format) {
  return format == MatrixFormat::kFp8Tile32 || format == MatrixFormat::kFp4Row32;
}

class Matmul : public LevelTest {};
INSTANTIATE_TEST_SUITE_P(Levels, Matmul, every_level(), level_name);

TEST(Levels, OracleIsFirstAndNamesAreFound) {
  ASSERT_FALSE(available_ops().empty());
  EXPECT_EQ(available_ops().front()->name, "oracle");
  EXPECT_EQ(find_ops("oracle"), available_ops().front());
  EXPECT_EQ(find_ops(""), available_ops().back());
  EXPECT_EQ(find_ops("no such level"), nullptr);
}

// Written out once more, so that the oracle itself is tested: double over 32-blocks, FP32 between.
TEST(Oracle, AddsBlocksOf32InFp32) {
  Random random(1);
  const RandomMatrix w(random, MatrixFormat::kFp8Tile32, 33, 96);
  const std::vector<bf16> x = random_bf16(random, 96);
  const std::vector<float> y = product(oracle(), w.view(), x, 1, SumRule::kBlocks32);
  for (int64_t n = 0; n < 33; ++n) {
    float total = 0;
    for (int64_t block = 0; block < 3; ++block) {
      double sum = 0;
      const double scale = decode_e8m0(w.view().scales[n / 32 * 3 + block]);
      for (int64_t k = 32 * block; k < 32 * block + 32; ++k) {
        sum += static_cast<double>(to_float(x[static_cast<size_t>(k)])) *
               decode_e4m3(w.view().data[n * 96 + k]) * scale;
      }
      total += static_cast<float>(sum);
    }
    EXPECT_EQ(y[static_cast<size_t>(n)], total) << n;
  }
}

TEST_P(Matmul, MatchesDoubleSums) {
  Random random(2);
  for (const MatrixFormat format : kFormats) {
    for (const int64_t cols : {32, 64, 96, 160, 512, 1024, 2304, 5120}) {
      const int64_t odd = scaled(format) ? 0 : 7;
      const RandomMatrix w(random, format, 37, cols + odd);
      for (const int64_t rows : {1, 3, 11}) {
        const std::vector<bf16> x = random_bf16(random, rows * (cols + odd), 0.5);
        const double error =
            relative_rms(product(ops(), w.view(), x, rows), product(oracle(), w.view(), x, rows));
        EXPECT_LE(error, 1e-6) << static_cast<int>(format) << " K " << cols + odd << " T " << rows;
      }
    }
  }
}

TEST_P(Matmul, AnyK) {
  Random random(3);
  for (const MatrixFormat format : {MatrixFormat::kBf16, MatrixFormat::kF32}) {
    for (int64_t cols = 1; cols < 70; ++cols) {
      const RandomMatrix w(random, format, 6, cols);
      const std::vector<bf16> x = random_bf16(random, 7 * cols);
      EXPECT_LE(relative_rms(product(ops(), w.view(), x, 7), product(oracle(), w.view(), x, 7)),
                1e-6)
          << cols;
    }
  }
}

// The heart of batch invariance: every row alone equals the row in a batch.
TEST_P(Matmul, RowBitsDoNotDependOnTheNumberOfRows) {
  Random random(4);
  for (const MatrixFormat format : kFormats) {
    const int64_t cols = scaled(format) ? 1312 : 1321;  // more than one pass of K, odd tail
    const RandomMatrix w(random, format, 45, cols);
    const int64_t most = 257;
    const std::vector<bf16> x = random_bf16(random, most * cols);
    std::vector<float> alone;
    for (int64_t t = 0; t < most; ++t) {
      const std::vector<bf16> row(x.begin() + t * cols, x.begin() + (t + 1) * cols);
      const std::vector<float> y = product(ops(), w.view(), row, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    std::vector<int64_t> counts = {64, 100, 257};
    for (int64_t t = 2; t <= 40; ++t) counts.push_back(t);
    for (const int64_t rows : counts) {
      const std::vector<float> y = product(ops(), w.view(), x, rows);
      ASSERT_TRUE(std::equal(y.begin(), y.end(), alone.begin()))
          << static_cast<int>(format) << " T " << rows;
    }
  }
}

TEST_P(Matmul, AnyRangeOfOutputsAndNothingElseIsWritten) {
  Random random(5);
  for (const MatrixFormat format : kFormats) {
    const int64_t cols = 96, n_outputs = 71;
    const RandomMatrix w(random, format, n_outputs, cols);
    for (const int64_t rows : {1, 2, 9}) {
      const std::vector<bf16> x = random_bf16(random, rows * cols);
      const std::vector<float> whole = product(ops(), w.view(), x, rows);
      for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
               {0, 1}, {1, 2}, {3, 40}, {31, 33}, {5, 5}, {33, 71}, {70, 71}, {0, 71}}) {
        const int64_t stride = n_outputs + 3;
        std::vector<float> y(static_cast<size_t>(rows * stride), kPoison);
        std::vector<bf16> y16(static_cast<size_t>(rows * stride), bf16{0xBEEF});
        MatmulJob job;
        job.w = w.view();
        job.x = x.data();
        job.x_stride = cols;
        job.rows = rows;
        job.n_begin = begin;
        job.n_end = end;
        job.y_stride = stride;
        job.y_f32 = y.data();
        ops().matmul(job);
        job.y_f32 = nullptr;
        job.y_bf16 = y16.data();
        ops().matmul(job);
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t n = 0; n < stride; ++n) {
            const auto at = static_cast<size_t>(t * stride + n);
            const bool inside = n >= begin && n < end;
            const float value = inside ? whole[static_cast<size_t>(t * n_outputs + n)] : kPoison;
            ASSERT_EQ(y[at], value);
            ASSERT_EQ(y16[at].bits, inside ? to_bf16(value).bits : 0xBEEF);
          }
        }
      }
    }
  }
}

// Strided x, unaligned x and y.
// A bias joins the sum before the one rounding to BF16.
TEST_P(Matmul, Bias) {
  Random random(11);
  for (const MatrixFormat format : kFormats) {
    const int64_t cols = 96, n_outputs = 71;
    const RandomMatrix w(random, format, n_outputs, cols);
    const std::vector<bf16> bias = random_bf16(random, n_outputs);
    for (const int64_t rows : {1, 2, 5, 40}) {
      const std::vector<bf16> x = random_bf16(random, rows * cols);
      const std::vector<float> plain = product(ops(), w.view(), x, rows);
      std::vector<float> y(plain.size(), kPoison);
      std::vector<bf16> y16(plain.size());
      MatmulJob job;
      job.w = w.view();
      job.x = x.data();
      job.x_stride = cols;
      job.rows = rows;
      job.bias = bias.data();
      job.y_stride = n_outputs;
      for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 33}, {33, 71}}) {
        job.n_begin = begin;
        job.n_end = end;
        job.y_bf16 = nullptr;
        job.y_f32 = y.data();
        ops().matmul(job);
        job.y_f32 = nullptr;
        job.y_bf16 = y16.data();
        ops().matmul(job);
      }
      for (size_t i = 0; i < y.size(); ++i) {
        const float b = to_float(bias[i % static_cast<size_t>(n_outputs)]);
        // Levels with float64 sums add it there.
        const float slack = 0x1p-22f * (std::fabs(plain[i]) + std::fabs(b));
        ASSERT_NEAR(y[i], plain[i] + b, slack) << static_cast<int>(format) << " T " << rows;
        ASSERT_EQ(y16[i].bits, to_bf16(y[i]).bits);
      }
    }
  }
}

TEST_P(Matmul, PointersMayBeUnaligned) {
  Random random(6);
  for (const MatrixFormat format : kFormats) {
    const int64_t cols = 192, rows = 8, stride = 211;
    const RandomMatrix w(random, format, 10, cols);
    const std::vector<bf16> x = random_bf16(random, rows * cols);
    const std::vector<float> expected = product(ops(), w.view(), x, rows);
    for (const int64_t shift : {1, 3, 16, 31}) {
      std::vector<bf16> spread(static_cast<size_t>(rows * stride + shift), bf16{0x7FC0});
      for (int64_t t = 0; t < rows; ++t) {
        std::copy_n(x.begin() + t * cols, cols, spread.begin() + shift + t * stride);
      }
      std::vector<float> y(static_cast<size_t>(rows * 10 + shift));
      MatmulJob job;
      job.w = w.view();
      job.x = spread.data() + shift;
      job.x_stride = stride;
      job.rows = rows;
      job.n_end = 10;
      job.y_f32 = y.data() + shift;
      job.y_stride = 10;
      ops().matmul(job);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), y.begin() + shift));
    }
  }
}

// Every code of the small formats against one scale after another.
TEST_P(Matmul, EveryCodeAndScale) {
  for (const MatrixFormat format : {MatrixFormat::kFp8Tile32, MatrixFormat::kFp4Row32}) {
    const bool fp8 = format == MatrixFormat::kFp8Tile32;
    const int n_codes = fp8 ? 256 : 16;
    // Row r has code r in column 0 and zeros elsewhere.
    const int64_t rows = n_codes;
    Bytes codes(rows * 32), scales(rows);
    for (int code = 0; code < n_codes; ++code) {
      const bool nan = fp8 && (code & 0x7F) == 0x7F;
      codes.data()[code * (fp8 ? 32 : 16)] = static_cast<uint8_t>(nan ? 0 : code);
    }
    Matrix w{format, codes.data(), scales.data(), rows, 32};
    for (const int scale : {1, 40, 63, 64, 100, 127, 150, 190, 191, 230, 244}) {
      std::fill_n(scales.data(), rows, static_cast<uint8_t>(scale));
      std::vector<bf16> x(2 * 32);
      x[0] = x[32] = to_bf16(scale < 60 ? 0x1p40f : 1.0f);
      EXPECT_EQ(product(ops(), w, x, 2), product(oracle(), w, x, 2)) << scale;
    }
  }
}

// One extreme scale in a row must not disturb its neighbours, at any number of rows.
TEST_P(Matmul, ExtremeScales) {
  Random random(7);
  for (const MatrixFormat format : {MatrixFormat::kFp8Tile32, MatrixFormat::kFp4Row32}) {
    for (const auto& [least, greatest] :
         std::vector<std::pair<int, int>>{{1, 20}, {50, 70}, {180, 200}, {1, 230}, {220, 235}}) {
      const RandomMatrix w(random, format, 70, 128, least, greatest);
      std::vector<bf16> x = random_bf16(random, 9 * 128);
      const float size = greatest < 60 ? 0x1p60f : greatest > 210 ? 0x1p-20f : 1.0f;
      for (bf16& value : x) value = to_bf16(to_float(value) * size);
      const std::vector<float> want = product(oracle(), w.view(), x, 9);
      const std::vector<float> got = product(ops(), w.view(), x, 9);
      EXPECT_LE(relative_rms(got, want), 1e-6) << least << " to " << greatest;
      const std::vector<float> first = product(ops(), w.view(), x, 1);
      EXPECT_TRUE(std::equal(first.begin(), first.end(), got.begin()));
    }
  }
}

TEST_P(Matmul, ZeroRowsAndSignedZeros) {
  Random random(8);
  const RandomMatrix w(random, MatrixFormat::kFp4Row32, 5, 64);
  const std::vector<bf16> x(2 * 64);
  for (const float value : product(ops(), w.view(), x, 2)) EXPECT_EQ(value, 0.0f);
  EXPECT_TRUE(product(ops(), w.view(), x, 0).empty());
}

// Long K: the panel buffer holds few rows or none.
TEST_P(Matmul, LongK) {
  Random random(9);
  for (const int64_t cols : {20480, 40960, 163840}) {
    const RandomMatrix w(random, MatrixFormat::kFp4Row32, 9, cols);
    const std::vector<bf16> x = random_bf16(random, 6 * cols, 0.2);
    const std::vector<float> got = product(ops(), w.view(), x, 6);
    // Far beyond any row of the model the FP32 sums drift a little more.
    const double limit = cols > 40960 ? 2e-6 : 1e-6;
    EXPECT_LE(relative_rms(got, product(oracle(), w.view(), x, 6)), limit) << cols;
    const std::vector<float> first = product(ops(), w.view(), x, 1);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), got.begin()));
  }
}

}  // namespace
}  // namespace cedra::kernels

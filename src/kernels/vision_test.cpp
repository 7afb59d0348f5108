// The vision tower's operations: the oracle against its formulas, the other levels against it.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/test_data.h"

namespace cedra::kernels {
namespace {

using namespace testing;

class VisionOps : public LevelTest {};
INSTANTIATE_TEST_SUITE_P(Levels, VisionOps, every_level(), level_name);

double distance(const std::vector<bf16>& got, const std::vector<bf16>& want) {
  return relative_rms(widen(got), widen(want));
}

// q, k and v of one head of `dim`, and the whole result at a level, in pieces of 32 rows and less.
struct Head {
  int64_t rows, dim;
  std::vector<bf16> q, k, v;

  Head(Random& random, int64_t n, int64_t d)
      : rows(n),
        dim(d),
        q(random_bf16(random, n * (d + 3))),
        k(random_bf16(random, n * d)),
        v(random_bf16(random, n * d)) {}

  std::vector<bf16> attend(const Ops& ops, int64_t piece = kFullAttendRows) const {
    std::vector<bf16> out(static_cast<size_t>(rows * (dim + 1)), bf16{0});
    std::vector<double> scratch(static_cast<size_t>(full_attend_scratch_bytes(rows, dim) / 8 + 1),
                                NAN);
    FullAttendJob job;
    job.q = q.data();
    job.q_stride = dim + 3;
    job.k = k.data();
    job.v = v.data();
    job.rows = rows;
    job.head_dim = dim;
    job.out = out.data();
    job.out_stride = dim + 1;
    job.scratch = scratch.data();
    for (int64_t begin = 0; begin < rows; begin += piece) {
      job.row_begin = begin;
      job.row_end = std::min(begin + piece, rows);
      ops.full_attend(job);
    }
    return out;
  }
};

TEST(VisionOracle, AttentionByItsFormula) {
  Random random(1);
  const Head head(random, 5, 8);
  const std::vector<bf16> out = head.attend(oracle());
  for (int64_t t = 0; t < 5; ++t) {
    std::vector<double> share(5);
    double sum = 0;
    for (int64_t s = 0; s < 5; ++s) {
      double dot = 0;
      for (int64_t d = 0; d < 8; ++d) {
        dot += static_cast<double>(to_float(head.q[static_cast<size_t>(t * 11 + d)])) *
               to_float(head.k[static_cast<size_t>(s * 8 + d)]);
      }
      share[static_cast<size_t>(s)] = std::exp(dot / std::sqrt(8.0));
      sum += share[static_cast<size_t>(s)];
    }
    for (int64_t d = 0; d < 8; ++d) {
      double total = 0;
      for (int64_t s = 0; s < 5; ++s) {
        total +=
            share[static_cast<size_t>(s)] / sum * to_float(head.v[static_cast<size_t>(d * 5 + s)]);
      }
      EXPECT_NEAR(to_float(out[static_cast<size_t>(t * 9 + d)]), total, std::fabs(total) * 0x1p-8);
    }
  }
}

TEST_P(VisionOps, AttentionForAnySizeAndPiece) {
  Random random(2);
  for (const auto& [rows, dim] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 16}, {2, 4}, {7, 20}, {33, 64}, {110, 64}, {200, 72}}) {
    const Head head(random, rows, dim);
    const std::vector<bf16> want = head.attend(oracle());
    const std::vector<bf16> got = head.attend(ops());
    EXPECT_LE(distance(got, want), 5e-4) << rows << " x " << dim;
    // A row's bits do not depend on its neighbours.
    for (const int64_t piece : {1, 5, 31}) {
      const std::vector<bf16> again = head.attend(ops(), piece);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(again[i].bits, got[i].bits) << piece;
    }
  }
}

TEST_P(VisionOps, AttentionOfLargeScores) {
  Random random(3);
  Head head(random, 40, 16);
  for (bf16& value : head.q) value = to_bf16(100 * to_float(value));
  EXPECT_LE(distance(head.attend(ops()), head.attend(oracle())), 5e-4);
}

TEST_P(VisionOps, HalvesRotate) {
  Random random(4);
  for (const int64_t half : {2, 16, 32, 33}) {
    std::vector<float> c, s;
    for (int64_t i = 0; i < half; ++i) {
      c.push_back(static_cast<float>(std::cos(0.3 * static_cast<double>(i))));
      s.push_back(static_cast<float>(std::sin(0.3 * static_cast<double>(i))));
    }
    const std::vector<bf16> x = random_bf16(random, 2 * half);
    std::vector<bf16> y = x;
    ops().rope_halves(y.data(), c.data(), s.data(), half);
    for (int64_t i = 0; i < half; ++i) {
      const auto at = static_cast<size_t>(i), pair = static_cast<size_t>(i + half);
      const float a = to_float(x[at]), b = to_float(x[pair]);
      EXPECT_EQ(y[at].bits, to_bf16(a * c[at] - b * s[at]).bits);
      EXPECT_EQ(y[pair].bits, to_bf16(b * c[at] + a * s[at]).bits);
    }
  }
}

TEST_P(VisionOps, GateResidualAndGelu) {
  Random random(5);
  for (const int64_t n : {1, 16, 37, 500}) {
    std::vector<bf16> gate = random_bf16(random, n), up = random_bf16(random, n);
    if (n == 37) gate[3] = to_bf16(-300);
    std::vector<bf16> got(static_cast<size_t>(n)), want = got;
    ops().silu_gate(gate.data(), up.data(), n, got.data());
    oracle().silu_gate(gate.data(), up.data(), n, want.data());
    EXPECT_LE(distance(got, want), 1e-3);
    got = want = gate;
    ops().add_bf16(up.data(), n, got.data());
    oracle().add_bf16(up.data(), n, want.data());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].bits, want[i].bits);
  }
  std::vector<bf16> x = {to_bf16(0), to_bf16(1), to_bf16(-1), to_bf16(6), to_bf16(-40)};
  ops().gelu(x.data(), 5);
  const float want[] = {0, 0.8413447f, -0.1586553f, 6, 0};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(to_float(x[i]), round_bf16(want[i])) << i;
}

// Values between two BF16 steps whose FP32 neighbour lies on a tie.
TEST(Bf16, OneRoundingOfADouble) {
  const double above = 1.0 + 0x1p-8 + 0x1p-40;  // just over the tie of 1 and 1 + 2^-7
  EXPECT_EQ(to_float(to_bf16_twice(above)), 1.0f);
  EXPECT_EQ(to_float(to_bf16_once(above)), 1.0f + 0x1p-7f);
  EXPECT_EQ(to_float(to_bf16_once(-above)), -1.0f - 0x1p-7f);
  EXPECT_EQ(to_float(to_bf16_once(1.0 + 0x1p-8)), 1.0f);
  EXPECT_EQ(to_float(to_bf16_once(1.0 + 3 * 0x1p-8)), 1.0f + 0x1p-6f);
  EXPECT_EQ(to_bf16_once(0.0).bits, 0);
}

}  // namespace
}  // namespace cedra::kernels

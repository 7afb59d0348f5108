// Every operation but the matrix products, at every level, against the oracle: quantisers bit for
// bit, the rest within the error of FP32 sums (one BF16 step where a result lies near a boundary).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/test_data.h"

namespace cedra::kernels {
namespace {

using namespace testing;

class RowOps : public LevelTest {};
INSTANTIATE_TEST_SUITE_P(Levels, RowOps, every_level(), level_name);

const std::vector<int64_t> kLengths = {1, 2, 15, 16, 17, 31, 33, 64, 100, 512, 5120, 5121};

// BF16 results of FP32 sums: equal but for a few in a thousand, and those off by one step.
void expect_close(const std::vector<bf16>& got, const std::vector<bf16>& want,
                  double share = 0.005) {
  ASSERT_EQ(got.size(), want.size());
  int64_t different = 0;
  double largest = 0;
  for (const bf16 value : want) largest = std::max(largest, std::fabs(double{to_float(value)}));
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].bits == want[i].bits) continue;
    ++different;
    const double a = to_float(got[i]), b = to_float(want[i]);
    // Sums may cancel: then the step of the terms counts, not that of the result.
    ASSERT_LE(std::fabs(a - b), std::max(std::fabs(b) * 0x1p-7, largest * 0x1p-18))
        << i << ": " << a << " for " << b;
  }
  EXPECT_LE(different, 1 + static_cast<int64_t>(share * static_cast<double>(got.size())));
}

void expect_equal(const std::vector<bf16>& got, const std::vector<bf16>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].bits, want[i].bits) << i;
}

// ---- quantisers --------------------------------------------------------------------------------

// Groups of every magnitude, zeros, subnormals, the ends of the range, values on ties.
std::vector<bf16> quantiser_input(Random& random, int64_t groups, int64_t group) {
  std::vector<bf16> x = random_bf16(random, groups * group);
  std::uniform_int_distribution<int> exponent(-130, 118);
  std::uniform_int_distribution<int> ties(0, 64);
  for (int64_t g = 0; g < groups; ++g) {
    const float size = std::ldexp(1.0f, exponent(random));
    for (int64_t i = g * group; i < (g + 1) * group; ++i) {
      bf16& value = x[static_cast<size_t>(i)];
      switch (g % 5) {
        case 0:
          value = to_bf16(to_float(value) * size);
          break;
        case 1:
          value = to_bf16(static_cast<float>(ties(random) - 32) * 0.25f);
          break;
        case 2:
          value = {static_cast<uint16_t>(i % 2 == 0 ? 0x8000 : 0)};
          break;
        case 3:
          value = to_bf16(static_cast<float>(ties(random) - 32) * 0x1p-9f);
          break;
        default:
          break;
      }
    }
  }
  return x;
}

TEST_P(RowOps, QuantizeQ8IsExact) {
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    const std::vector<bf16> x = quantiser_input(random, 25, 32);
    const auto n = static_cast<int64_t>(x.size());
    std::vector<bf16> got(x.size()), want(x.size());
    ops().quantize_q8(x.data(), got.data(), n);
    oracle().quantize_q8(x.data(), want.data(), n);
    expect_equal(got, want);
    std::vector<bf16> in_place = x;
    ops().quantize_q8(in_place.data(), in_place.data(), n);
    expect_equal(in_place, want);
    std::vector<bf16> again(x.size());
    ops().quantize_q8(want.data(), again.data(), n);
    expect_equal(again, want);  // rounding is idempotent
  }
}

TEST_P(RowOps, Q8CoversEveryBf16) {
  // Each value next to a fixed group maximum of 448, so that the scale is 1.
  std::vector<bf16> x(32), got(32), want(32);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (((bits >> 7) & 0xFF) == 0xFF) continue;
    x[0] = to_bf16(448.0f);
    x[7] = {static_cast<uint16_t>(bits)};
    ops().quantize_q8(x.data(), got.data(), 32);
    oracle().quantize_q8(x.data(), want.data(), 32);
    ASSERT_EQ(got[7].bits, want[7].bits) << bits;
    ASSERT_EQ(got[0].bits, want[0].bits) << bits;
  }
}

TEST_P(RowOps, RecordsAreExact) {
  Random random(12);
  for (int round = 0; round < 20; ++round) {
    const std::vector<bf16> x = quantiser_input(random, 16, 32);
    const int64_t n = 512;
    auto check = [&](auto pack, auto pack_oracle, auto unpack, auto unpack_oracle) {
      Bytes codes(n), scales(n), codes_oracle(n), scales_oracle(n);
      pack(x.data(), n, codes.data(), scales.data());
      pack_oracle(x.data(), n, codes_oracle.data(), scales_oracle.data());
      ASSERT_EQ(std::memcmp(codes.data(), codes_oracle.data(), n), 0);
      ASSERT_EQ(std::memcmp(scales.data(), scales_oracle.data(), n), 0);
      std::vector<bf16> got(n), want(n);
      unpack(codes.data(), scales.data(), n, got.data());
      unpack_oracle(codes.data(), scales.data(), n, want.data());
      expect_equal(got, want);
    };
    const Ops& o = oracle();
    check(ops().pack_fp8, o.pack_fp8, ops().unpack_fp8, o.unpack_fp8);
    check(ops().pack_latent, o.pack_latent, ops().unpack_latent, o.unpack_latent);
    check(ops().pack_index, o.pack_index, ops().unpack_index, o.unpack_index);
  }
}

TEST_P(RowOps, UnpackKnowsEveryCodeAndScale) {
  uint8_t codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>((i & 0x7F) == 0x7F ? 0 : i);
  std::vector<bf16> got(256), want(256);
  for (int scale = 0; scale < 248; ++scale) {
    uint8_t scales[16];
    std::fill_n(scales, 16, static_cast<uint8_t>(scale));
    ops().unpack_fp8(codes, scales, 256, got.data());
    oracle().unpack_fp8(codes, scales, 256, want.data());
    expect_equal(got, want);
    if (scale < 0x7F) {
      ops().unpack_latent(codes, scales, 256, got.data());
      oracle().unpack_latent(codes, scales, 256, want.data());
      expect_equal(got, want);
    }
    ops().unpack_index(codes, scales, 256, got.data());
    oracle().unpack_index(codes, scales, 256, want.data());
    expect_equal(got, want);
  }
}

// ---- rows --------------------------------------------------------------------------------------

TEST_P(RowOps, InverseRmsAndNorm) {
  Random random(13);
  for (const int64_t n : kLengths) {
    const std::vector<bf16> x = random_bf16(random, n), w = random_bf16(random, n, 0.1);
    const float got = ops().inverse_rms(x.data(), n, 1e-20f);
    EXPECT_NEAR(got / oracle().inverse_rms(x.data(), n, 1e-20f), 1.0, 1e-6) << n;
    std::vector<bf16> y(static_cast<size_t>(n)), want(y);
    ops().rms_norm(x.data(), w.data(), n, 1e-20f, y.data());
    oracle().rms_norm(x.data(), w.data(), n, 1e-20f, want.data());
    expect_close(y, want);
    std::vector<bf16> in_place = x;
    ops().rms_norm(in_place.data(), w.data(), n, 1e-20f, in_place.data());
    expect_equal(in_place, y);
  }
}

TEST_P(RowOps, NormOfTinyAndZeroRows) {
  // Squares of 1e-31 vanish in FP32; epsilon alone is left.
  const std::vector<bf16> tiny(33, to_bf16(1e-31f)), zero(33), w(33, to_bf16(1.0f));
  for (const std::vector<bf16>& x : {tiny, zero}) {
    std::vector<bf16> y(33), want(33);
    ops().rms_norm(x.data(), w.data(), 33, 1e-20f, y.data());
    oracle().rms_norm(x.data(), w.data(), 33, 1e-20f, want.data());
    expect_equal(y, want);
  }
}

TEST_P(RowOps, CollapseExpandMean) {
  Random random(14);
  for (const int64_t copies : {1, 2, 3, 4, 8}) {
    for (const int64_t dim : {1, 16, 31, 320, 515}) {
      const std::vector<bf16> x = random_bf16(random, copies * dim), a = random_bf16(random, dim);
      const std::vector<float> pre = random_floats(random, copies);
      const std::vector<float> comb = random_floats(random, copies * copies);
      std::vector<bf16> y(static_cast<size_t>(dim)), want(y);
      ops().collapse(x.data(), pre.data(), copies, dim, y.data());
      oracle().collapse(x.data(), pre.data(), copies, dim, want.data());
      expect_close(y, want);
      ops().copy_mean(x.data(), copies, dim, y.data());
      oracle().copy_mean(x.data(), copies, dim, want.data());
      expect_close(y, want);
      std::vector<bf16> stream = x, stream_oracle = x;
      ops().expand(a.data(), pre.data(), comb.data(), copies, dim, stream.data());
      oracle().expand(a.data(), pre.data(), comb.data(), copies, dim, stream_oracle.data());
      expect_close(stream, stream_oracle);
    }
  }
}

TEST_P(RowOps, Mixes) {
  Random random(15);
  for (const int64_t copies : {1, 2, 4, 8}) {
    const int64_t n = (2 + copies) * copies;
    const std::vector<float> dots = random_floats(random, n, 60), base = random_floats(random, n);
    const float scale[3] = {0.5f, 1.5f, 2.0f};
    auto run = [&](const Ops& level) {
      std::vector<float> out(static_cast<size_t>(n), kPoison);
      MixesJob job;
      job.dots = dots.data();
      job.inverse_rms = 0.03f;
      job.scale = scale;
      job.base = base.data();
      job.copies = copies;
      job.sinkhorn_iters = 20;
      job.eps = 1e-6f;
      job.pre = out.data();
      job.post = job.pre + copies;
      job.comb = job.post + copies;
      level.mixes(job);
      return out;
    };
    const std::vector<float> got = run(ops()), want = run(oracle());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
    for (int64_t j = 0; j < copies; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < copies; ++i) {
        sum += got[static_cast<size_t>(2 * copies + i * copies + j)];
      }
      EXPECT_NEAR(sum, 1.0f, 1e-5);  // the last step is along columns
    }
  }
}

TEST_P(RowOps, RopeIsExactAndInverts) {
  Random random(16);
  for (const int64_t pairs : {1, 7, 16, 32, 33}) {
    const std::vector<bf16> x = random_bf16(random, 2 * pairs);
    std::vector<float> c, s;
    for (int64_t k = 0; k < pairs; ++k) {
      c.push_back(static_cast<float>(std::cos(0.37 * static_cast<double>(k))));
      s.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(k))));
    }
    for (const bool inverse : {false, true}) {
      std::vector<bf16> got = x, want = x;
      ops().rope(got.data(), c.data(), s.data(), pairs, inverse);
      oracle().rope(want.data(), c.data(), s.data(), pairs, inverse);
      expect_equal(got, want);
    }
  }
}

TEST_P(RowOps, SwigluAddRound) {
  Random random(17);
  for (const int64_t n : kLengths) {
    std::vector<bf16> gate = random_bf16(random, n), up = random_bf16(random, n);
    for (bf16& value : gate) value = to_bf16(8 * to_float(value));
    std::vector<bf16> y(static_cast<size_t>(n)), want(y);
    for (const float limit : {0.0f, 10.0f, 1.0f}) {
      ops().swiglu(gate.data(), up.data(), limit, 0.37f, n, y.data());
      oracle().swiglu(gate.data(), up.data(), limit, 0.37f, n, want.data());
      expect_close(y, want);
    }
    std::vector<float> total = random_floats(random, n), total_oracle = total;
    ops().add_rows(gate.data(), n, total.data());
    oracle().add_rows(gate.data(), n, total_oracle.data());
    EXPECT_EQ(total, total_oracle);
    ops().round_rows(total.data(), n, y.data());
    oracle().round_rows(total.data(), n, want.data());
    expect_equal(y, want);
  }
}

// The logistic function through router_scores; exp and log1p through the square of the other kind.
TEST_P(RowOps, ScalarFunctionsAreWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -110.0f; v < 110.0f; v += 0.0137f) x.push_back(v);
  x.insert(x.end(), {0.0f, -0.0f, 1e-30f, -1e-30f, 20.0f, 20.00001f, 19.9999f, -87.4f, -103.9f});
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> sigmoid = x, root = x;
  ops().router_scores(sigmoid.data(), n, RouterScore::kSigmoid, 1.0f);
  ops().router_scores(root.data(), n, RouterScore::kSqrtSoftplus, 1.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = std::exp(-static_cast<double>(x[i]));
    EXPECT_LE(ulp_distance(sigmoid[i], static_cast<float>(1 / (1 + e))), 2) << x[i];
    if (x[i] < -87) continue;  // softplus is subnormal: the root shows its few digits
    const double softplus = x[i] > 20 ? x[i] : std::log1p(1 / e);
    EXPECT_LE(ulp_distance(root[i], static_cast<float>(std::sqrt(softplus))), 2) << x[i];
  }
}

TEST_P(RowOps, RouterScores) {
  Random random(18);
  for (const int64_t n : {1, 6, 16, 33, 256}) {
    for (const RouterScore kind :
         {RouterScore::kSqrtSoftplus, RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      std::vector<float> got = random_floats(random, n, 8), want = got;
      ops().router_scores(got.data(), n, kind, 1.5f);
      oracle().router_scores(want.data(), n, kind, 1.5f);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(ulp_distance(got[i], want[i]), 4) << n;
    }
  }
}

TEST_P(RowOps, EngramMix) {
  Random random(19);
  for (const int64_t dim : {64, 320, 333, 5120}) {
    const std::vector<bf16> x = random_bf16(random, dim), key = random_bf16(random, dim),
                            value = random_bf16(random, dim),
                            q_weight = random_bf16(random, dim, 0.1),
                            k_weight = random_bf16(random, dim, 0.1);
    std::vector<bf16> got = x, want = x;
    const float gate = ops().engram_mix(got.data(), key.data(), value.data(), q_weight.data(),
                                        k_weight.data(), dim, 1e-20f);
    const float gate_oracle = oracle().engram_mix(want.data(), key.data(), value.data(),
                                                  q_weight.data(), k_weight.data(), dim, 1e-20f);
    EXPECT_NEAR(gate, gate_oracle, 1e-5);
    expect_close(got, want, 0.01);
  }
}

// ---- attention ---------------------------------------------------------------------------------

struct AttendCase {
  int64_t heads, head_dim, entries;
  double missing;
};

class Attend : public LevelTest {
 protected:
  // Runs heads [begin, end); the rest of the output keeps its poison.
  static std::vector<bf16> run(const Ops& level, const AttendCase& c, const std::vector<bf16>& q,
                               const std::vector<bf16>& keys, const std::vector<uint8_t>& present,
                               const std::vector<float>& sink, int64_t begin, int64_t end) {
    std::vector<bf16> out(q.size(), bf16{0xBEEF});
    std::vector<float> scratch(static_cast<size_t>(attend_scratch_floats(c.head_dim)),
                               std::numeric_limits<float>::quiet_NaN());
    AttendJob job;
    job.q = q.data();
    job.keys = keys.data();
    job.present = present.data();
    job.entries = c.entries;
    job.head_dim = c.head_dim;
    job.h_begin = begin;
    job.h_end = end;
    job.sink = sink.data();
    job.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
    job.out = out.data();
    job.scratch = scratch.data();
    level.attend(job);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, Attend, every_level(), level_name);

TEST_P(Attend, MatchesTheOracleForAnyHeadRange) {
  Random random(20);
  for (const AttendCase& c : std::vector<AttendCase>{{8, 64, 64, 0},
                                                     {7, 192, 200, 0.3},
                                                     {1, 512, 640, 0.1},
                                                     {12, 128, 65, 0.9},
                                                     {3, 80, 1, 0},
                                                     {5, 33, 130, 0.5},
                                                     {64, 512, 640, 0.02}}) {
    const std::vector<bf16> q = random_bf16(random, c.heads * c.head_dim, 0.3);
    std::vector<bf16> keys = random_bf16(random, c.entries * c.head_dim, 0.3);
    std::bernoulli_distribution missing(c.missing);
    std::vector<uint8_t> present;
    for (int64_t e = 0; e < c.entries; ++e) {
      present.push_back(missing(random) ? 0 : 1);
      if (present.back() != 0) continue;
      // Whatever a missing row holds must not matter.
      std::fill_n(keys.begin() + e * c.head_dim, c.head_dim, bf16{0x7FC0});
    }
    const std::vector<float> sink = random_floats(random, c.heads);
    const std::vector<bf16> got = run(ops(), c, q, keys, present, sink, 0, c.heads);
    const std::vector<bf16> want = run(oracle(), c, q, keys, present, sink, 0, c.heads);
    expect_close(got, want, 0.02);
    for (int64_t h = 0; h < std::min<int64_t>(c.heads, 12); ++h) {
      const std::vector<bf16> one = run(ops(), c, q, keys, present, sink, h, h + 1);
      for (int64_t i = 0; i < c.heads * c.head_dim; ++i) {
        const bool mine = i / c.head_dim == h;
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(one[at].bits, mine ? got[at].bits : 0xBEEF) << h;
      }
    }
  }
}

TEST_P(Attend, NoEntriesGiveZeros) {
  Random random(21);
  const AttendCase c = {3, 64, 70, 0};
  const std::vector<bf16> q = random_bf16(random, 3 * 64), keys(70 * 64, bf16{0x7FC0});
  const std::vector<float> sink = {-5, 0, 5};
  for (const int64_t entries : {int64_t{0}, c.entries}) {
    AttendCase shorter = c;
    shorter.entries = entries;
    const std::vector<uint8_t> present(70, 0);
    for (const bf16 value : run(ops(), shorter, q, keys, present, sink, 0, 3)) {
      EXPECT_EQ(to_float(value), 0.0f);
    }
  }
}

// Scores far apart: the running maximum rises by hundreds between blocks.
TEST_P(Attend, LargeScoresDoNotOverflow) {
  Random random(22);
  const AttendCase c = {2, 64, 200, 0};
  const std::vector<bf16> q = random_bf16(random, 2 * 64, 0);
  std::vector<bf16> keys = random_bf16(random, 200 * 64, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = to_bf16(to_float(keys[i]) * static_cast<float>(1 + i / 640));
  }
  const std::vector<uint8_t> present(200, 1);
  const std::vector<float> sink = {0, 300};
  expect_close(run(ops(), c, q, keys, present, sink, 0, 2),
               run(oracle(), c, q, keys, present, sink, 0, 2), 0.02);
}

TEST_P(RowOps, IndexScores) {
  Random random(23);
  for (const int64_t heads : {1, 3, 8, 9, 32}) {
    for (const int64_t dim : {32, 64, 128}) {
      const int64_t n = 53;
      const std::vector<bf16> raw = random_bf16(random, n * dim);
      Bytes codes(n * dim / 2), scales(n * dim / 32);
      oracle().pack_index(raw.data(), n * dim, codes.data(), scales.data());
      const std::vector<bf16> q = random_bf16(random, heads * dim, 0.3);
      std::vector<float> weight = random_floats(random, heads);
      for (float& value : weight) value = round_bf16(value);
      auto run = [&](const Ops& level, int64_t first, int64_t count) {
        std::vector<float> scores(static_cast<size_t>(count + 1), kPoison);
        IndexJob job;
        job.q = q.data();
        job.head_weight = weight.data();
        job.heads = heads;
        job.dim = dim;
        job.codes = codes.data() + first * dim / 2;
        job.scales = scales.data() + first * dim / 32;
        job.n = count;
        job.scores = scores.data();
        level.index_scores(job);
        EXPECT_EQ(scores.back(), kPoison);
        scores.pop_back();
        return scores;
      };
      const std::vector<float> got = run(ops(), 0, n), want = run(oracle(), 0, n);
      double largest = 0;
      for (const float value : want) largest = std::max(largest, std::fabs(double{value}));
      int different = 0;
      for (size_t j = 0; j < got.size(); ++j) {
        different += got[j] != want[j];
        ASSERT_NEAR(got[j], want[j], largest * 0x1p-7) << j;
        ASSERT_EQ(got[j], round_bf16(got[j]));
      }
      EXPECT_LE(different, 3);
      for (const int64_t first : {1, 20, 52}) {
        const std::vector<float> part = run(ops(), first, n - first);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), got.begin() + first));
      }
    }
  }
}

TEST_P(RowOps, PoolGroup) {
  Random random(24);
  for (const int64_t ratio : {1, 2, 4}) {
    for (const int64_t dim : {1, 17, 512}) {
      const std::vector<float> kv = random_floats(random, ratio * dim);
      const std::vector<float> score = random_floats(random, ratio * dim, 4);
      std::vector<const float*> kv_rows, score_rows;
      for (int64_t m = 0; m < ratio; ++m) {
        kv_rows.push_back(kv.data() + m * dim);
        score_rows.push_back(score.data() + m * dim);
      }
      std::vector<bf16> got(static_cast<size_t>(dim)), want(got);
      ops().pool_group(kv_rows.data(), score_rows.data(), ratio, dim, got.data());
      oracle().pool_group(kv_rows.data(), score_rows.data(), ratio, dim, want.data());
      expect_close(got, want);
    }
  }
}

}  // namespace
}  // namespace cedra::kernels

// Sparse attention, index scores and pooling of the fast levels (model.md 4.5 to 4.7).
//
// Rows of BF16 are read 32 at a time as 16 words: the even elements are the words shifted up, the
// odd ones the words with the lower half cleared. Queries and running sums are kept split the same
// way, so nothing is shuffled until the result is stored.
#pragma once

#include "kernels/fast/quantize.h"
#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

#ifdef __AVX512F__
constexpr int kScoreHeads = 4;  // tile of q.k: 16 sums
constexpr int kScoreKeys = 4;
constexpr int kValueHeads = 8;  // tile of p.v: 8 heads x 32 dims, 16 sums
constexpr int kIndexHeads = 8;
#else
constexpr int kScoreHeads = 4;  // sixteen registers of eight lanes
constexpr int kScoreKeys = 1;
constexpr int kValueHeads = 2;
constexpr int kIndexHeads = 4;
#endif
constexpr int64_t kHeadGroup = 8;  // heads that share one pass over a block of keys
constexpr int64_t kBlock = 64;     // entries between two updates of the running maximum
constexpr int64_t kChunk = 32;     // elements of a row read at a time
constexpr float kLowest = -__builtin_inff();

struct EvenOdd {
  F16 even, odd;
};

CEDRA_INLINE EvenOdd split_words(U16 words) {
  return {as_float(words << 16), as_float(words & 0xFFFF0000u)};
}
CEDRA_INLINE EvenOdd load_chunk(const bf16* p) { return split_words(load_words(p)); }
CEDRA_INLINE EvenOdd load_chunk_part(const bf16* p, int64_t count) {
  bf16 row[kChunk] = {};
  memcpy(row, p, static_cast<size_t>(count) * sizeof(bf16));
  return load_chunk(row);
}

// State of up to eight heads inside AttendJob::scratch.
struct HeadGroup {
  int64_t chunks;  // of a row, the last may be short
  int64_t dim;
  float* query;  // [8][chunks][even 16, odd 16]
  float* total;  // same
  float* score;  // [8][64]
  float* share;  // [64][8], probabilities rounded to BF16
  float maximum[kHeadGroup];
  float denominator[kHeadGroup];
  float decay[kHeadGroup];
};

// score[h0 .. h0 + Heads)[e0 .. e0 + Keys) = q.k * scale; only the first `keep` keys are stored.
template <int Heads, int Keys>
void score_tile(const HeadGroup& group, int64_t h0, const bf16* const* keys, int64_t e0,
                int64_t keep, float scale) {
  F16 sum[Heads][Keys] = {};
  const int64_t row = group.chunks * kChunk;
  auto step = [&](int64_t c, auto&& load_key) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int e = 0; e < Keys; ++e) {
      const EvenOdd key = load_key(keys[e] + c * kChunk);
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) {
        const float* q = group.query + (h0 + h) * row + c * kChunk;
        sum[h][e] = fma(load(q), key.even, sum[h][e]);
        sum[h][e] = fma(load(q + kLanes), key.odd, sum[h][e]);
      }
    }
  };
  const int64_t whole = group.dim / kChunk;
  for (int64_t c = 0; c < whole; ++c) step(c, [](const bf16* p) { return load_chunk(p); });
  if (whole < group.chunks) {
    const int64_t left = group.dim - whole * kChunk;
    step(whole, [left](const bf16* p) { return load_chunk_part(p, left); });
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h) {
#pragma GCC unroll 4
    for (int e = 0; e < Keys; ++e) {
      const float value = sum_lanes(sum[h][e]) * scale;
      if (e < keep) group.score[(h0 + h) * kBlock + e0 + e] = value;
    }
  }
}

// total[h0 .. h0 + Heads) = total * decay + sum over the block of share * key, for one chunk.
template <int Heads, class LoadKey>
CEDRA_INLINE void value_chunk(const HeadGroup& group, int64_t h0, const bf16* const* keys,
                              int64_t count, int64_t c, LoadKey load_key) {
  F16 even[Heads] = {};
  F16 odd[Heads] = {};
  for (int64_t e = 0; e < count; ++e) {
    const EvenOdd key = load_key(keys[e] + c * kChunk);
    const float* share = group.share + e * kHeadGroup + h0;
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) {
      const F16 p = splat(share[h]);
      even[h] = fma(p, key.even, even[h]);
      odd[h] = fma(p, key.odd, odd[h]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h) {
    float* total = group.total + ((h0 + h) * group.chunks + c) * kChunk;
    const F16 decay = splat(group.decay[h0 + h]);
    store(total, fma(load(total), decay, even[h]));
    store(total + kLanes, fma(load(total + kLanes), decay, odd[h]));
  }
}

template <int Heads>
void add_values(const HeadGroup& group, int64_t h0, const bf16* const* keys, int64_t count) {
  const int64_t whole = group.dim / kChunk;
  for (int64_t c = 0; c < whole; ++c) {
    value_chunk<Heads>(group, h0, keys, count, c, [](const bf16* p) { return load_chunk(p); });
  }
  if (whole < group.chunks) {
    const int64_t left = group.dim - whole * kChunk;
    value_chunk<Heads>(group, h0, keys, count, whole,
                       [left](const bf16* p) { return load_chunk_part(p, left); });
  }
}

// Turns the scores of one head into probabilities and updates its statistics.
CEDRA_INLINE void softmax_block(HeadGroup& group, int64_t h, int64_t count) {
  float* score = group.score + h * kBlock;
  for (int64_t e = count; e < kBlock; ++e) score[e] = kLowest;
  F16 top = load(score);
  for (int64_t e = kLanes; e < kBlock; e += kLanes) top = max_lanes(top, load(score + e));
  const float block_maximum = max_of_lanes(top);
  const float old = group.maximum[h];
  const float maximum = block_maximum > old ? block_maximum : old;
  F16 sum = {};
  for (int64_t e = 0; e < kBlock; e += kLanes) {
    const F16 p = exp_lanes(load(score + e) - maximum);
    sum = sum + p;
    float rounded[kLanes];
    store(rounded, round_bf16_lanes(p));
    for (int64_t i = 0; i < kLanes; ++i) group.share[(e + i) * kHeadGroup + h] = rounded[i];
  }
  group.decay[h] = exp_one(old - maximum);
  group.denominator[h] = group.denominator[h] * group.decay[h] + sum_lanes(sum);
  group.maximum[h] = maximum;
}

// heads [h0, h0 + count) of the job; padded heads have a zero query and are not stored.
void attend_group(const AttendJob& job, HeadGroup& group, int64_t h0, int64_t count) {
  const int64_t row = group.chunks * kChunk;
  const int64_t padded = (count + kScoreHeads - 1) / kScoreHeads * kScoreHeads;
  for (int64_t h = 0; h < kHeadGroup; ++h) {
    group.maximum[h] = -1e30f;
    group.denominator[h] = 0;
    for (int64_t c = 0; c < group.chunks; ++c) {
      EvenOdd q = {};
      if (h < count) {
        const int64_t left = group.dim - c * kChunk;
        q = load_chunk_part(job.q + (h0 + h) * group.dim + c * kChunk,
                            left < kChunk ? left : kChunk);
      }
      store(group.query + h * row + c * kChunk, q.even);
      store(group.query + h * row + c * kChunk + kLanes, q.odd);
      store(group.total + h * row + c * kChunk, F16{});
      store(group.total + h * row + c * kChunk + kLanes, F16{});
    }
  }
  for (int64_t begin = 0; begin < job.entries; begin += kBlock) {
    const bf16* keys[kBlock + kScoreKeys];
    int64_t n_keys = 0;
    const int64_t end = begin + kBlock < job.entries ? begin + kBlock : job.entries;
    for (int64_t e = begin; e < end; ++e) {
      if (job.present[e] != 0) keys[n_keys++] = job.keys + e * group.dim;
    }
    if (n_keys == 0) continue;  // changes neither maximum nor sums
    for (int i = 0; i < kScoreKeys; ++i) keys[n_keys + i] = keys[n_keys - 1];
    for (int64_t e = 0; e < n_keys; e += kScoreKeys) {
      for (int64_t h = 0; h < padded; h += kScoreHeads) {
        score_tile<kScoreHeads, kScoreKeys>(group, h, keys + e, e, n_keys - e, job.scale);
      }
    }
    for (int64_t i = 0; i < padded; ++i) softmax_block(group, i, n_keys);
    int64_t h = 0;
    for (; h + kValueHeads <= padded; h += kValueHeads) {
      add_values<kValueHeads>(group, h, keys, n_keys);
    }
    for (; h < padded; h += kScoreHeads) add_values<kScoreHeads>(group, h, keys, n_keys);
  }
  for (int64_t h = 0; h < count; ++h) {
    const F16 denominator =
        splat(group.denominator[h] + exp_one(job.sink[h0 + h] - group.maximum[h]));
    for (int64_t c = 0; c < group.chunks; ++c) {
      const float* total = group.total + h * row + c * kChunk;
      const U16 even = as_bits(round_bf16_lanes(load(total) / denominator));
      const U16 odd = as_bits(round_bf16_lanes(load(total + kLanes) / denominator));
      const U16 words = (even >> 16) | odd;
      const int64_t left = group.dim - c * kChunk;
      memcpy(job.out + (h0 + h) * group.dim + c * kChunk, &words,
             static_cast<size_t>(left < kChunk ? left : kChunk) * sizeof(bf16));
    }
  }
}

void fast_attend(const AttendJob& job) {
  HeadGroup group;
  group.dim = job.head_dim;
  group.chunks = (job.head_dim + kChunk - 1) / kChunk;
  group.query = job.scratch;
  group.total = group.query + kHeadGroup * group.chunks * kChunk;
  group.score = group.total + kHeadGroup * group.chunks * kChunk;
  group.share = group.score + kHeadGroup * kBlock;
  for (int64_t h = job.h_begin; h < job.h_end; h += kHeadGroup) {
    const int64_t left = job.h_end - h;
    attend_group(job, group, h, left < kHeadGroup ? left : kHeadGroup);
  }
}

// Values of 16 keys, one key per lane: [dim][16]. Lanes at and after `count` are zero.
void transpose_keys(const IndexJob& job, int64_t first, int64_t count, float* keys) {
  const F16 table = e2m1_table();
  F16 scale = {};
  for (int64_t column = 0; column < job.dim; column += 8) {
    uint32_t words[kLanes] = {};
    if (column % kScaleBlock == 0) {
      float scales[kLanes] = {};
      for (int64_t i = 0; i < count; ++i) {
        scales[i] =
            scale_of_byte(job.scales[(first + i) * (job.dim / kScaleBlock) + column / kScaleBlock]);
      }
      scale = load(scales);
    }
    for (int64_t i = 0; i < count; ++i) {
      memcpy(&words[i], job.codes + ((first + i) * job.dim + column) / 2, sizeof words[i]);
    }
    U16 lanes = load_words(words);
    for (int nibble = 0; nibble < 8; ++nibble) {
      store(keys + (column + nibble) * kLanes, look_up(table, lanes) * scale);
      lanes = lanes >> 4;
    }
  }
}

// Adds the terms of heads [h0, h0 + Heads) in order.
template <int Heads>
CEDRA_INLINE F16 index_heads(const IndexJob& job, const float* query, const float* keys, int64_t h0,
                             F16 total) {
  F16 dot[Heads] = {};
  for (int64_t k = 0; k < job.dim; ++k) {
    const F16 key = load(keys + k * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) dot[h] = fma(splat(query[h * job.dim + k]), key, dot[h]);
  }
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h) {
    const F16 relu = max_lanes(round_bf16_lanes(dot[h]), F16{});
    total = total + round_bf16_lanes(relu * job.head_weight[h0 + h]);
  }
  return total;
}

constexpr int64_t kQueryFloats = 8192;  // 64 heads of 128

void fast_index_scores(const IndexJob& job) {
  alignas(64) float keys[kMaxIndexDim * kLanes];
  alignas(64) float query[kQueryFloats];
  static_assert(kQueryFloats >= kIndexHeads * kMaxIndexDim);
  const auto widen = [&](int64_t h, int64_t heads) {
    for (int64_t i = 0; i < heads * job.dim; i += kLanes) {
      store(query + i, load(job.q + h * job.dim + i));
    }
  };
  const bool all_fit = job.heads * job.dim <= kQueryFloats;  // else a group of heads at a time
  if (all_fit) widen(0, job.heads);
  for (int64_t first = 0; first < job.n; first += kLanes) {
    const int64_t left = job.n - first;
    const int64_t count = left < kLanes ? left : kLanes;
    transpose_keys(job, first, count, keys);
    F16 total = {};
    for (int64_t h = 0; h < job.heads;) {
      const int64_t heads = job.heads - h < kIndexHeads ? 1 : kIndexHeads;
      if (!all_fit) widen(h, heads);
      const float* q = all_fit ? query + h * job.dim : query;
      total = heads == 1 ? index_heads<1>(job, q, keys, h, total)
                         : index_heads<kIndexHeads>(job, q, keys, h, total);
      h += heads;
    }
    store_part(job.scores + first, round_bf16_lanes(total), count);
  }
}

void fast_pool_group(const float* const* kv, const float* const* score, int64_t ratio, int64_t dim,
                     bf16* y) {
  for_lanes(dim, [&](auto lanes, int64_t d) {
    F16 maximum = lanes.load(score[0] + d);
    for (int64_t m = 1; m < ratio; ++m) maximum = max_lanes(maximum, lanes.load(score[m] + d));
    F16 sum = {};
    for (int64_t m = 0; m < ratio; ++m) {
      sum = sum + exp_lanes(lanes.load(score[m] + d) - maximum);
    }
    F16 pool = {};
    for (int64_t m = 0; m < ratio; ++m) {
      const F16 share = exp_lanes(lanes.load(score[m] + d) - maximum) / sum;
      pool = pool + lanes.load(kv[m] + d) * share;
    }
    lanes.store(y + d, pool);
  });
}

}  // namespace
}  // namespace cedra::kernels

// The matrix product of the fast levels, written over an Isa (registers, tile sizes) and a Weights
// (one tensor format as registers); see avx512/weights.h and avx2/weights.h.
//
// The order of a sum: K is walked in blocks of 32, a block in Isa::kRegs registers; each register
// is one multiply-add into the lanes of the output's only accumulator; at the end the lanes are
// added in halves, quarters, and so on. The tile does not enter: a row of x gives the same bits
// alone and among hundreds, for any range of outputs.
//
// Two forms, same bits: up to Isa::kDotRows rows decode weights in registers (the weights are read
// once, memory is the limit); more rows decode a panel of weight rows once into a buffer on the
// stack (Isa::kPanelBytes) and run a register tile over it.
#pragma once

#include "kernels/fast/vec.h"
#include "kernels/scalar/scalar.h"

namespace cedra::kernels {
namespace {

constexpr int64_t kBlockK = 32;
constexpr int kTileN = 4;           // weight rows of a register tile
constexpr int64_t kPanelRows = 32;  // most weight rows in a panel
constexpr int64_t kBlocksPerPass =
    32;  // of K, over a tile of x: both stay in the first-level cache

CEDRA_INLINE void store_outputs(const MatmulJob& job, int64_t t, int64_t n, int64_t count,
                                __m128 values) {
  const int64_t at = t * job.y_stride + n;
  if (job.bias != nullptr) {
    float bias[kTileN] = {};
    for (int64_t i = 0; i < (count < kTileN ? count : kTileN); ++i) {
      bias[i] = to_float(job.bias[n + i]);
    }
    values = _mm_add_ps(values, _mm_loadu_ps(bias));
  }
  if (job.y_f32 != nullptr) {
    if (count >= kTileN) {
      _mm_storeu_ps(job.y_f32 + at, values);
      return;
    }
    float single[kTileN];
    _mm_storeu_ps(single, values);
    for (int64_t i = 0; i < count; ++i) job.y_f32[at + i] = single[i];
    return;
  }
  const __m128i bits = _mm_castps_si128(values);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i rounded =
      _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7FFF)), odd), 16);
  const __m128i words = _mm_packus_epi32(rounded, rounded);
  if (count >= kTileN) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(job.y_bf16 + at), words);
    return;
  }
  bf16 single[8];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(single), words);
  for (int64_t i = 0; i < count; ++i) job.y_bf16[at + i] = single[i];
}

// The last, short block of rows whose K is no multiple of 32, zeros behind it.
struct TailX {
  alignas(64) bf16 values[kBlockK];
  CEDRA_INLINE TailX(const bf16* x, int64_t count) {
    memset(values, 0, sizeof values);
    memcpy(values, x, static_cast<size_t>(count) * sizeof(bf16));
  }
};
template <class Weights>
struct TailWeights {
  alignas(64) uint8_t bytes[Weights::kBytesPerBlock];
  CEDRA_INLINE TailWeights(const typename Weights::Row& row, int64_t block, int64_t count) {
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, row.codes + block * Weights::kBytesPerBlock,
           static_cast<size_t>(count * Weights::kBytesPerBlock / kBlockK));
  }
  CEDRA_INLINE typename Weights::Row row() const { return {bytes, nullptr}; }
};

// ---- few rows: weights decoded in registers ----------------------------------------------------

// R weight rows from n times T activation rows from t, the whole of K.
template <class Isa, class Weights, int R, int T>
void dot_tile(const MatmulJob& job, int64_t t, int64_t n) {
  const Weights weights;
  typename Weights::Row rows[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) rows[r] = Weights::row(job.w, n + r);
  const bf16* x[T];
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) x[i] = job.x + (t + i) * job.x_stride;
  typename Isa::Sum sum[T * R];
#pragma GCC unroll 16
  for (int i = 0; i < T * R; ++i) sum[i] = Isa::zero();

  // The tile reads R streams; the prefetch walks through the next R rows as one, which is how they
  // lie in memory.
  const uint8_t* ahead = Weights::row(job.w, n + R).codes;
  const int64_t blocks = job.w.cols / kBlockK;
  int64_t k = 0;
  if constexpr (Weights::kPairs) {
    for (; k + 2 <= blocks; k += 2) {
#pragma GCC unroll 8
      for (int line = 0; line < 2 * R * Weights::kBytesPerBlock; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T0);
      }
      ahead += 2 * R * Weights::kBytesPerBlock;
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        typename Isa::Block first, second;
        weights.decode_pair(rows[r], k, first, second);
#pragma GCC unroll 4
        for (int i = 0; i < T; ++i) {
          const bf16* at = x[i] + k * kBlockK;
          sum[i * R + r] = Isa::multiply_add(sum[i * R + r], Isa::load_x(at), first);
          sum[i * R + r] = Isa::multiply_add(sum[i * R + r], Isa::load_x(at + kBlockK), second);
        }
      }
    }
  }
  for (; k < blocks; ++k) {
#pragma GCC unroll 8
    for (int line = 0; line < R * Weights::kBytesPerBlock; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T0);
    }
    ahead += R * Weights::kBytesPerBlock;
    typename Isa::Block values[T];
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) values[i] = Isa::load_x(x[i] + k * kBlockK);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const typename Isa::Block w = weights.decode(rows[r], k);
#pragma GCC unroll 4
      for (int i = 0; i < T; ++i) sum[i * R + r] = Isa::multiply_add(sum[i * R + r], values[i], w);
    }
  }
  if constexpr (Weights::kAnyK) {
    if (const int64_t left = job.w.cols % kBlockK; left != 0) {
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const TailWeights<Weights> tail(rows[r], blocks, left);
        const typename Isa::Block w = weights.decode(tail.row(), 0);
#pragma GCC unroll 4
        for (int i = 0; i < T; ++i) {
          const TailX values(x[i] + blocks * kBlockK, left);
          sum[i * R + r] = Isa::multiply_add(sum[i * R + r], Isa::load_x(values.values), w);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) {
    const typename Isa::Sum* s = sum + i * R;
    store_outputs(
        job, t + i, n, R,
        Isa::sum_lanes_of_four(s[0], R > 1 ? s[1 % R] : Isa::zero(), R > 2 ? s[2 % R] : Isa::zero(),
                               R > 3 ? s[3 % R] : Isa::zero()));
  }
}

template <class Isa, class Weights, int T>
void dot_rows(const MatmulJob& job, int64_t t) {
  constexpr int kRows = Isa::dot_tile_n(T);
  int64_t n = job.n_begin;
  for (; n + kRows <= job.n_end; n += kRows) dot_tile<Isa, Weights, kRows, T>(job, t, n);
  for (; n < job.n_end; ++n) dot_tile<Isa, Weights, 1, T>(job, t, n);
}

template <class Isa, class Weights, int T>
CEDRA_INLINE void dot_last_rows(const MatmulJob& job, int64_t t) {
  if constexpr (T > 0) {
    if (job.rows - t == T) {
      dot_rows<Isa, Weights, T>(job, t);
    } else {
      dot_last_rows<Isa, Weights, T - 1>(job, t);
    }
  }
}

template <class Isa, class Weights>
void dot_form(const MatmulJob& job) {
  int64_t t = 0;
  for (; t + Isa::kDotRows <= job.rows; t += Isa::kDotRows) {
    dot_rows<Isa, Weights, Isa::kDotRows>(job, t);
  }
  dot_last_rows<Isa, Weights, Isa::kDotRows - 1>(job, t);
}

// ---- many rows: a decoded panel and a register tile --------------------------------------------

template <class Isa>
struct Panel {
  typename Isa::PanelWord* words;  // [rows][width]
  int64_t width;                   // K rounded up to a block; zeros after K
  int64_t rows;                    // rounded up to a tile; the rows that are too many hold zeros
  int64_t n;                       // first output
  int64_t count;                   // outputs

  CEDRA_INLINE typename Isa::PanelWord* at(int64_t row, int64_t block) const {
    return words + row * width + block * kBlockK;
  }
};

template <class Isa, class Weights>
void decode_panel(const Matrix& w, const Panel<Isa>& panel) {
  const Weights weights;
  const int64_t blocks = w.cols / kBlockK;
  for (int64_t r = 0; r < panel.count; ++r) {
    const typename Weights::Row row = Weights::row(w, panel.n + r);
    int64_t k = 0;
    if constexpr (Weights::kPairs) {
      for (; k + 2 <= blocks; k += 2) {
        typename Isa::Block first, second;
        weights.decode_pair(row, k, first, second);
        Isa::store_panel(panel.at(r, k), first);
        Isa::store_panel(panel.at(r, k + 1), second);
      }
    }
    for (; k < blocks; ++k) Isa::store_panel(panel.at(r, k), weights.decode(row, k));
    if constexpr (Weights::kAnyK) {
      if (const int64_t left = w.cols % kBlockK; left != 0) {
        const TailWeights<Weights> tail(row, blocks, left);
        Isa::store_panel(panel.at(r, blocks), weights.decode(tail.row(), 0));
      }
    }
  }
  memset(panel.words + panel.count * panel.width, 0,
         static_cast<size_t>((panel.rows - panel.count) * panel.width) * sizeof *panel.words);
}

// sums[T][kTileN] += `blocks` blocks of x, rows x_stride apart, times four panel rows.
template <class Isa, int T>
void panel_tile(const bf16* x, int64_t x_stride, const typename Isa::PanelWord* words,
                int64_t width, int64_t blocks, typename Isa::Sum* sums) {
  typename Isa::Sum sum[T * kTileN];
#pragma GCC unroll 24
  for (int i = 0; i < T * kTileN; ++i) sum[i] = sums[i];
  for (int64_t k = 0; k < blocks * kBlockK; k += kBlockK / Isa::kRegs) {
    typename Isa::Reg w[kTileN];
#pragma GCC unroll 4
    for (int r = 0; r < kTileN; ++r) w[r] = Isa::load_panel(words + r * width + k);
#pragma GCC unroll 6
    for (int i = 0; i < T; ++i) {
      const typename Isa::Reg v = Isa::load_x_reg(x + i * x_stride + k);
#pragma GCC unroll 4
      for (int r = 0; r < kTileN; ++r) {
        sum[i * kTileN + r] = Isa::multiply_add_reg(sum[i * kTileN + r], v, w[r]);
      }
    }
  }
#pragma GCC unroll 24
  for (int i = 0; i < T * kTileN; ++i) sums[i] = sum[i];
}

// T activation rows from t times the whole panel.
template <class Isa, int T>
void panel_rows(const MatmulJob& job, const Panel<Isa>& panel, int64_t t) {
  alignas(64) typename Isa::Sum sums[kPanelRows / kTileN][T * kTileN];
  const int64_t tiles = panel.rows / kTileN;
  for (int64_t g = 0; g < tiles; ++g) {
    for (int i = 0; i < T * kTileN; ++i) sums[g][i] = Isa::zero();
  }
  const bf16* x = job.x + t * job.x_stride;
  const int64_t blocks = job.w.cols / kBlockK;
  for (int64_t k = 0; k < blocks; k += kBlocksPerPass) {
    const int64_t some = blocks - k < kBlocksPerPass ? blocks - k : kBlocksPerPass;
    for (int64_t g = 0; g < tiles; ++g) {
      panel_tile<Isa, T>(x + k * kBlockK, job.x_stride, panel.at(g * kTileN, k), panel.width, some,
                         sums[g]);
    }
  }
  if (const int64_t left = job.w.cols % kBlockK; left != 0) {
    alignas(64) bf16 tail[T * kBlockK] = {};
    for (int i = 0; i < T; ++i) {
      memcpy(tail + i * kBlockK, x + i * job.x_stride + blocks * kBlockK,
             static_cast<size_t>(left) * sizeof(bf16));
    }
    for (int64_t g = 0; g < tiles; ++g) {
      panel_tile<Isa, T>(tail, kBlockK, panel.at(g * kTileN, blocks), panel.width, 1, sums[g]);
    }
  }
  for (int64_t g = 0; g < tiles; ++g) {
    for (int i = 0; i < T; ++i) {
      const typename Isa::Sum* s = sums[g] + i * kTileN;
      store_outputs(job, t + i, panel.n + g * kTileN, panel.count - g * kTileN,
                    Isa::sum_lanes_of_four(s[0], s[1], s[2], s[3]));
    }
  }
}

template <class Isa, int T>
CEDRA_INLINE void panel_last_rows(const MatmulJob& job, const Panel<Isa>& panel, int64_t t) {
  if constexpr (T > 0) {
    if (job.rows - t == T) {
      panel_rows<Isa, T>(job, panel, t);
    } else {
      panel_last_rows<Isa, T - 1>(job, panel, t);
    }
  }
}

template <class Isa, class Weights>
__attribute__((noinline)) void panel_form(const MatmulJob& job, int64_t most_rows) {
  alignas(64) typename Isa::PanelWord words[Isa::kPanelBytes / sizeof(typename Isa::PanelWord)];
  Panel<Isa> panel;
  panel.words = words;
  panel.width = (job.w.cols + kBlockK - 1) / kBlockK * kBlockK;
  for (int64_t n = job.n_begin; n < job.n_end; n += most_rows) {
    panel.n = n;
    panel.count = job.n_end - n < most_rows ? job.n_end - n : most_rows;
    panel.rows = (panel.count + kTileN - 1) / kTileN * kTileN;
    decode_panel<Isa, Weights>(job.w, panel);
    int64_t t = 0;
    for (; t + Isa::kTileT <= job.rows; t += Isa::kTileT) {
      panel_rows<Isa, Isa::kTileT>(job, panel, t);
    }
    panel_last_rows<Isa, Isa::kTileT - 1>(job, panel, t);
  }
}

template <class Isa, class Weights>
void multiply(const MatmulJob& job) {
  const int64_t width = (job.w.cols + kBlockK - 1) / kBlockK * kBlockK;
  const int64_t row_bytes =
      (width > 0 ? width : 1) * static_cast<int64_t>(sizeof(typename Isa::PanelWord));
  int64_t most_rows = Isa::kPanelBytes / row_bytes / kTileN * kTileN;
  if (most_rows > kPanelRows) most_rows = kPanelRows;
  if (job.rows <= Isa::kDotRows || most_rows < kTileN) {
    dot_form<Isa, Weights>(job);
  } else {
    panel_form<Isa, Weights>(job, most_rows);
  }
}

// ---- rows with extreme scales ------------------------------------------------------------------

// A scale is folded into the weights, which needs room in their exponent, and products of
// subnormals may be flushed. Rows with a scale outside this range therefore take the oracle's
// double sum, at any number of rows: the choice depends on the weights alone. Checkpoints as they
// are trained have no such rows.
constexpr uint8_t kLeastScale = 64;      // 2^-63: products with a Q8 activation stay normal
constexpr uint8_t kGreatestScale = 190;  // 2^63

CEDRA_INLINE bool ordinary(const uint8_t* scales, int64_t count) {
  constexpr uint8_t kRange = kGreatestScale - kLeastScale;
  int64_t i = 0;
  // Every FP4 row is looked at before it is multiplied, which must cost little beside that.
  __m256i most = _mm256_setzero_si256();
  for (; i + 32 <= count; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales + i));
    most = _mm256_max_epu8(
        most, _mm256_sub_epi8(bytes, _mm256_set1_epi8(static_cast<char>(kLeastScale))));
  }
  const __m256i range = _mm256_set1_epi8(static_cast<char>(kRange));
  bool good = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(most, range), range)) == -1;
  for (; i < count; ++i) {
    good = good & (static_cast<uint8_t>(scales[i] - kLeastScale) <= kRange);
  }
  return good;
}

void multiply_exactly(MatmulJob job, int64_t begin, int64_t end) {
  job.n_begin = begin;
  job.n_end = end;
  job.rule = SumRule::kWhole;
  scalar::matmul(job);
}

// Runs of ordinary rows go to `multiply`, the others to the oracle. `rows_per_scale` weight rows
// share a row of scales.
template <class Multiply>
CEDRA_INLINE void multiply_scaled(const MatmulJob& job, int64_t rows_per_scale, Multiply multiply) {
  const int64_t blocks = job.w.cols / kBlockK;
  MatmulJob run = job;
  run.n_end = run.n_begin;
  for (int64_t n = job.n_begin; n < job.n_end;) {
    int64_t next = (n / rows_per_scale + 1) * rows_per_scale;
    next = next < job.n_end ? next : job.n_end;
    if (ordinary(job.w.scales + n / rows_per_scale * blocks, blocks)) {
      run.n_end = next;
    } else {
      if (run.n_begin < run.n_end) multiply(run);
      multiply_exactly(job, n, next);
      run.n_begin = run.n_end = next;
    }
    n = next;
  }
  if (run.n_begin < run.n_end) multiply(run);
}

// ---- formats that both levels read the same way ------------------------------------------------

// Bytes and scales of one weight row; formats without scales leave the second empty.
struct WeightRow {
  const uint8_t* codes;
  const uint8_t* scales;
};
// The row from block `block` on: the blocks behind it are then at constant offsets.
template <class Weights>
CEDRA_INLINE WeightRow row_at(const WeightRow& row, int64_t block) {
  const uint8_t* codes = row.codes + block * Weights::kBytesPerBlock;
  if constexpr (Weights::kAnyK) return {codes, nullptr};
  return {codes, row.scales + block};
}
CEDRA_INLINE WeightRow fp4_row(const Matrix& w, int64_t n) {
  return {w.data + n * (w.cols / 2), w.scales + n * (w.cols / kBlockK)};
}
CEDRA_INLINE WeightRow fp8_row(const Matrix& w, int64_t n) {
  return {w.data + n * w.cols, w.scales + (n / kBlockK) * (w.cols / kBlockK)};
}
CEDRA_INLINE WeightRow plain_row(const Matrix& w, int64_t n, int64_t element_bytes) {
  return {w.data + element_bytes * n * w.cols, nullptr};
}

}  // namespace
}  // namespace cedra::kernels

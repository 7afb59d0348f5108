// Matrix products in FP32 fused multiply-adds. An output is the sum of eight lanes; a lane adds its
// values of block after block of 32 in the order of weights.h. Products of BF16 values are exact.
#pragma once

#include "kernels/avx2/weights.h"

namespace cedra::kernels {
namespace {

constexpr int64_t kDotRows = 4;            // most activation rows of one pass of the dot form
constexpr int64_t kDotFloats = 32 * 1024;  // activations of such a pass
constexpr int64_t kChunkBlocks = 8;        // panel form: blocks of K at a time
constexpr int64_t kChunkK = kChunkBlocks * kBlockK;
constexpr int64_t kGroupRows = 24;  // activation rows in the first-level cache
constexpr int64_t kPanelOutputs = 64;
constexpr int64_t kPassRows = 96;  // activation rows whose sums stay in the second-level cache

CEDRA_INLINE __m128 sum_lanes_of_four(__m256 a, __m256 b, __m256 c, __m256 d) {
  // (i, i+4): four lanes of a then of b.
  __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  ab = _mm256_add_ps(ab, _mm256_permute_ps(ab, 0x4E));  // (i, i+2)
  cd = _mm256_add_ps(cd, _mm256_permute_ps(cd, 0x4E));
  ab = _mm256_add_ps(ab, _mm256_permute_ps(ab, 0xB1));  // (i, i+1)
  cd = _mm256_add_ps(cd, _mm256_permute_ps(cd, 0xB1));
  const __m128 sum_a = _mm256_castps256_ps128(ab), sum_b = _mm256_extractf128_ps(ab, 1);
  const __m128 sum_c = _mm256_castps256_ps128(cd), sum_d = _mm256_extractf128_ps(cd, 1);
  return _mm_movelh_ps(_mm_unpacklo_ps(sum_a, sum_b), _mm_unpacklo_ps(sum_c, sum_d));
}

// 32 FP32 values from one block, in the order of the sums.
CEDRA_INLINE void store_floats(float* p, const Words& words) {
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    _mm256_store_ps(p + 16 * i, even_words(words.v[i]));
    _mm256_store_ps(p + 16 * i + 8, odd_words(words.v[i]));
  }
}

// 32 activations as the format orders its weights.
template <class Weights>
CEDRA_INLINE Words arranged(const bf16* x) {
  if constexpr (Weights::kNatural)
    return {{load_32(x), load_32(x + 16)}};
  else
    return Weights::arrange(x);
}

// Block `block` of R rows of `cols` values; zeros behind their ends.
template <class Weights, int R>
CEDRA_INLINE void decode_any(const typename Weights::Row* rows, int64_t block, int64_t cols,
                             Words* out) {
  if constexpr (Weights::kAnyK) {
    if ((block + 1) * kBlockK > cols) {
      for (int r = 0; r < R; ++r) {
        const TailWeights<Weights> tail(rows[r], block, cols - block * kBlockK);
        const typename Weights::Row row = tail.row();
        Weights::template decode<1>(&row, 0, out + r);
      }
      return;
    }
  }
  Weights::template decode<R>(rows, block, out);
}

// fn(i, words) for blocks [block, block + count) of a row of activations; zeros behind its end.
template <class Weights, class Fn>
CEDRA_INLINE void for_arranged(const bf16* x, int64_t block, int64_t count, int64_t cols, Fn fn) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t k = (block + i) * kBlockK;
    if (k + kBlockK <= cols) {
      fn(i, arranged<Weights>(x + k));
    } else {
      const TailX tail(x + k, cols - k);
      fn(i, arranged<Weights>(tail.values));
    }
  }
}

template <class Weights>
void arrange_floats(const bf16* x, int64_t block, int64_t count, int64_t cols, float* out) {
  for_arranged<Weights>(x, block, count, cols, [&](int64_t i, const Words& words) {
    store_floats(out + i * kBlockK, words);
  });
}

CEDRA_INLINE int64_t blocks_of(const Matrix& w) { return (w.cols + kBlockK - 1) / kBlockK; }

// ---- few rows: weights decoded in registers ----------------------------------------------------

// sums[T][R] += blocks [block, block + count) of R weight rows times T rows of arranged
// activations, x_stride apart. S rows are decoded together; they share a row of scales.
template <class Weights, int R, int S, int T>
CEDRA_INLINE void dot_blocks(const Matrix& w, int64_t n, int64_t block, int64_t count,
                             const float* x, int64_t x_stride, __m256* sums) {
  typename Weights::Row rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) rows[r] = row_at<Weights>(Weights::row(w, n + r), block);
  __m256 sum[T * R];
#pragma GCC unroll 16
  for (int i = 0; i < T * R; ++i) sum[i] = sums[i];
  // The tile reads R streams; the prefetch walks through the next R rows as one, which is how they
  // lie in memory.
  const uint8_t* ahead = Weights::row(w, n + R).codes + R * block * Weights::kBytesPerBlock;
  const auto step = [&](int64_t k, int64_t cols) __attribute__((always_inline)) {
    const float* at = x + k * kBlockK;
#pragma GCC unroll 4
    for (int r = 0; r < R; r += S) {
      Words words[S];
      decode_any<Weights, S>(rows + r, k, cols, words);
      // Class by class, so that neighbouring multiplications do not wait for each other.
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        __m256 v[S];
#pragma GCC unroll 4
        for (int s = 0; s < S; ++s) {
          v[s] = i % 2 == 0 ? even_words(words[s].v[i / 2]) : odd_words(words[s].v[i / 2]);
        }
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
          const __m256 activations = _mm256_load_ps(at + t * x_stride + 8 * i);
#pragma GCC unroll 4
          for (int s = 0; s < S; ++s) {
            sum[t * R + r + s] = _mm256_fmadd_ps(v[s], activations, sum[t * R + r + s]);
          }
        }
      }
    }
  };
  const int64_t left = w.cols - block * kBlockK;
  const int64_t whole = count * kBlockK > left ? count - 1 : count;
  for (int64_t k = 0; k < whole; ++k) {
#pragma GCC unroll 8
    for (int line = 0; line < R * Weights::kBytesPerBlock; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T0);
    }
    ahead += R * Weights::kBytesPerBlock;
    step(k, (k + 1) * kBlockK);
  }
  if (whole < count) step(whole, left);
#pragma GCC unroll 16
  for (int i = 0; i < T * R; ++i) sums[i] = sum[i];
}

template <class Weights, int R, int S, int T>
__attribute__((noinline)) void dot_tile(const MatmulJob& job, int64_t t, int64_t n, const float* x,
                                        int64_t x_stride) {
  __m256 sums[T * R];
#pragma GCC unroll 16
  for (int i = 0; i < T * R; ++i) sums[i] = _mm256_setzero_ps();
  dot_blocks<Weights, R, S, T>(job.w, n, 0, blocks_of(job.w), x, x_stride, sums);
  const __m256 zero = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) {
    const __m256* s = sums + i * R;
    store_outputs(job, t + i, n, R,
                  sum_lanes_of_four(s[0], R > 1 ? s[1 % R] : zero, R > 2 ? s[2 % R] : zero,
                                    R > 3 ? s[3 % R] : zero));
  }
}

// T rows from t over all outputs of the job.
template <class Weights, int T>
void dot_rows(const MatmulJob& job, int64_t t, float* scratch) {
  // Sums and decoded weights share sixteen registers.
  constexpr int kRows = T <= 3 ? 4 : 3;
  constexpr int kTogether = T <= 2 ? 2 : 1;
  const int64_t blocks = blocks_of(job.w);
  const int64_t stride = blocks * kBlockK;
  for (int i = 0; i < T; ++i) {
    arrange_floats<Weights>(job.x + (t + i) * job.x_stride, 0, blocks, job.w.cols,
                            scratch + i * stride);
  }
  int64_t n = job.n_begin;
  // Rows that are decoded together lie in one tile of scales.
  for (; n < job.n_end && n % kTogether != 0; ++n) {
    dot_tile<Weights, 1, 1, T>(job, t, n, scratch, stride);
  }
  for (; n + kRows <= job.n_end; n += kRows) {
    dot_tile<Weights, kRows, kTogether, T>(job, t, n, scratch, stride);
  }
  for (; n < job.n_end; ++n) dot_tile<Weights, 1, 1, T>(job, t, n, scratch, stride);
}

// One row at a time, K in pieces that fit the scratch: only for rows longer than any of the model.
template <class Weights>
void dot_long(const MatmulJob& job, float* scratch) {
  const int64_t blocks = blocks_of(job.w);
  constexpr int64_t kPiece = kDotFloats / kBlockK;
  for (int64_t t = 0; t < job.rows; ++t) {
    for (int64_t n = job.n_begin; n < job.n_end; ++n) {
      __m256 sum = _mm256_setzero_ps();
      for (int64_t block = 0; block < blocks; block += kPiece) {
        const int64_t count = blocks - block < kPiece ? blocks - block : kPiece;
        arrange_floats<Weights>(job.x + t * job.x_stride, block, count, job.w.cols, scratch);
        dot_blocks<Weights, 1, 1, 1>(job.w, n, block, count, scratch, 0, &sum);
      }
      const __m256 zero = _mm256_setzero_ps();
      store_outputs(job, t, n, 1, sum_lanes_of_four(sum, zero, zero, zero));
    }
  }
}

template <class Weights>
__attribute__((noinline)) void dot_form(const MatmulJob& job) {
  alignas(64) float scratch[kDotFloats];
  const int64_t stride = blocks_of(job.w) * kBlockK;
  int64_t most = stride > 0 ? kDotFloats / stride : kDotRows;
  if (most == 0) return dot_long<Weights>(job, scratch);
  if (most > kDotRows) most = kDotRows;
  for (int64_t t = 0; t < job.rows;) {
    // Passes of equal size: six rows are three and three, not four and two.
    const int64_t left = job.rows - t;
    const int64_t passes = (left + most - 1) / most;
    const int64_t count = (left + passes - 1) / passes;
    switch (count) {
      case 1:
        dot_rows<Weights, 1>(job, t, scratch);
        break;
      case 2:
        dot_rows<Weights, 2>(job, t, scratch);
        break;
      case 3:
        dot_rows<Weights, 3>(job, t, scratch);
        break;
      default:
        dot_rows<Weights, 4>(job, t, scratch);
        break;
    }
    t += count;
  }
}

// ---- many rows: a decoded panel and a register tile --------------------------------------------

// Everything of a pass that lies in the caches: 280 KiB.
struct PanelScratch {
  alignas(64) float panel[kPanelOutputs * kChunkK];    // [row][K of the chunk]
  alignas(64) float x[kGroupRows * kChunkK];           // same
  alignas(64) __m256 sums[kPassRows * kPanelOutputs];  // [group of four outputs][row][4]
};

// sums[T][4] += `count` blocks of T activation rows times four panel rows.
template <int T>
CEDRA_INLINE void panel_tile(const float* x, const float* w, int64_t count, __m256* sums) {
  __m256 sum[T * kTileN];
#pragma GCC unroll 12
  for (int i = 0; i < T * kTileN; ++i) sum[i] = sums[i];
  for (int64_t k = 0; k < count * kBlockK; k += 16) {
#pragma GCC unroll 2
    for (int64_t at = k; at < k + 16; at += 8) {
      __m256 v[T];
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) v[t] = _mm256_load_ps(x + t * kChunkK + at);
#pragma GCC unroll 4
      for (int r = 0; r < kTileN; ++r) {
        __m256 weight = _mm256_load_ps(w + r * kChunkK + at);
        // In a register: g++ would read it from memory again for every row, and the loads of this
        // loop would cost more than its multiplications.
        __asm__("" : "+x"(weight));
#pragma GCC unroll 3
        for (int t = 0; t < T; ++t) {
          sum[t * kTileN + r] = _mm256_fmadd_ps(v[t], weight, sum[t * kTileN + r]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < T * kTileN; ++i) sums[i] = sum[i];
}

// `rows` activation rows of the scratch times the panel; `sums` are those of the first row.
void panel_group(const PanelScratch& scratch, int64_t rows, int64_t tiles, int64_t count,
                 __m256* sums) {
  for (int64_t g = 0; g < tiles; ++g) {
    const float* w = scratch.panel + g * kTileN * kChunkK;
    __m256* out = sums + g * kPassRows * kTileN;
    const float* x = scratch.x;
    int64_t t = 0;
    // Four rows are two and two: twelve or eight sums keep the multipliers busy, four do not.
    for (; rows - t == 3 || rows - t > 4; t += 3) {
      panel_tile<3>(x + t * kChunkK, w, count, out + t * kTileN);
    }
    for (; rows - t >= 2; t += 2) panel_tile<2>(x + t * kChunkK, w, count, out + t * kTileN);
    if (t < rows) panel_tile<1>(x + t * kChunkK, w, count, out + t * kTileN);
  }
}

template <class Weights>
void decode_panel(const Matrix& w, int64_t n, int64_t rows, int64_t block, int64_t count,
                  float* panel) {
  for (int64_t r = 0; r < rows; ++r) {
    const typename Weights::Row row = Weights::row(w, n + r);
    // The next chunk of this row, while this one is multiplied.
    const uint8_t* ahead = row.codes + (block + kChunkBlocks) * Weights::kBytesPerBlock;
    for (int64_t i = 0; i < count; ++i) {
      if (i * Weights::kBytesPerBlock % 64 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead + i * Weights::kBytesPerBlock),
                     _MM_HINT_T1);
      }
      Words words;
      decode_any<Weights, 1>(&row, block + i, w.cols, &words);
      store_floats(panel + r * kChunkK + i * kBlockK, words);
    }
  }
}

template <class Weights>
__attribute__((noinline)) void panel_form(const MatmulJob& job) {
  PanelScratch scratch;
  const int64_t blocks = blocks_of(job.w);
  for (int64_t n = job.n_begin; n < job.n_end; n += kPanelOutputs) {
    const int64_t outputs = job.n_end - n < kPanelOutputs ? job.n_end - n : kPanelOutputs;
    const int64_t tiles = (outputs + kTileN - 1) / kTileN;
    memset(scratch.panel + outputs * kChunkK, 0,
           static_cast<size_t>((tiles * kTileN - outputs) * kChunkK) * sizeof(float));
    for (int64_t pass = 0; pass < job.rows; pass += kPassRows) {
      const int64_t rows = job.rows - pass < kPassRows ? job.rows - pass : kPassRows;
      for (int64_t g = 0; g < tiles; ++g) {
        for (int64_t i = 0; i < rows * kTileN; ++i) {
          scratch.sums[g * kPassRows * kTileN + i] = _mm256_setzero_ps();
        }
      }
      for (int64_t block = 0; block < blocks; block += kChunkBlocks) {
        const int64_t count = blocks - block < kChunkBlocks ? blocks - block : kChunkBlocks;
        decode_panel<Weights>(job.w, n, outputs, block, count, scratch.panel);
        for (int64_t t = 0; t < rows; t += kGroupRows) {
          const int64_t some = rows - t < kGroupRows ? rows - t : kGroupRows;
          for (int64_t i = 0; i < some; ++i) {
            arrange_floats<Weights>(job.x + (pass + t + i) * job.x_stride, block, count, job.w.cols,
                                    scratch.x + i * kChunkK);
          }
          panel_group(scratch, some, tiles, count, scratch.sums + t * kTileN);
        }
      }
      for (int64_t g = 0; g < tiles; ++g) {
        for (int64_t t = 0; t < rows; ++t) {
          const __m256* s = scratch.sums + (g * kPassRows + t) * kTileN;
          store_outputs(job, pass + t, n + g * kTileN, outputs - g * kTileN,
                        sum_lanes_of_four(s[0], s[1], s[2], s[3]));
        }
      }
    }
  }
}

template <class Weights>
void multiply_floats(const MatmulJob& job) {
  if (job.rows <= Weights::kMostDotRows) {
    dot_form<Weights>(job);
  } else {
    panel_form<Weights>(job);
  }
}

}  // namespace
}  // namespace cedra::kernels

// Matrix products of the AVX-512 level.
//
// The order of a sum: K is walked in steps of 32; a step is one vdpbf16ps, whose 16 lanes each add
// the products of elements 2l and 2l+1 to their running FP32 sum; at the end the lanes are added as
// (i, i+8), (i, i+4), (i, i+2), (i, i+1). One accumulator per output, whatever the tile: so a row
// of x gives the same bits alone and among hundreds, for any range of outputs.
//
// Two forms, same bits: up to kDotRows rows decode weights in registers (the weights are read once,
// memory is the limit); more rows decode a panel of weight rows once into a buffer on the stack and
// run a register tile over it.
//
// vdpbf16ps treats subnormals as zero, and a scale can be folded into a BF16 weight only while its
// exponent field has room. Rows with a scale outside [kLeastScale, kGreatestScale] therefore take
// the oracle's double sum, at every number of rows: the choice depends on the weights alone.
// Checkpoints as they are trained have no such rows.
#include "kernels/avx512/matmul.h"

#include "kernels/avx512/weights.h"
#include "kernels/scalar/scalar.h"

namespace cedra::kernels {
namespace {

constexpr uint8_t kLeastScale = 64;      // 2^-63: products with a Q8 activation stay normal
constexpr uint8_t kGreatestScale = 190;  // 2^63

constexpr int kTileN = 4;  // weight rows of a register tile
constexpr int kTileT = 6;  // activation rows of a panel tile: 24 sums, 4 weights, 1 activation
constexpr int64_t kDotRows = 4;  // most rows of the dot form
constexpr int64_t kPanelRows = 32;
constexpr int64_t kPanelWords =
    128 * 1024;                      // BF16 weights in the panel: 256 KiB, half of a small L2
constexpr int64_t kPanelSteps = 32;  // steps of K per pass over a tile of x: fits L1

CEDRA_INLINE __m512 dot_step(__m512 sum, __m512i x, __m512i w) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

// Four results, each the lane sum of one register.
CEDRA_INLINE __m128 sum_lanes_of_four(__m512 a, __m512 b, __m512 c, __m512 d) {
  // (i, i+8): eight lanes of a then of b.
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  // (i, i+4): four lanes of a, b, c, d.
  __m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4E));  // (i, i+2)
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xB1));  // (i, i+1)
  const __m512i first_of_each = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_each, s));
}

CEDRA_INLINE void store_outputs(const MatmulJob& job, int64_t t, int64_t n, int count,
                                __m128 values) {
  const __mmask8 mask = static_cast<__mmask8>((1u << count) - 1);
  const int64_t at = t * job.y_stride + n;
  if (job.y_f32 != nullptr) {
    _mm_mask_storeu_ps(job.y_f32 + at, mask, values);
    return;
  }
  const __m128i bits = _mm_castps_si128(values);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7FFF)), odd);
  _mm_mask_cvtepi32_storeu_epi16(job.y_bf16 + at, mask, _mm_srli_epi32(rounded, 16));
}

template <int R>
CEDRA_INLINE void reduce_and_store(const MatmulJob& job, int64_t t, int64_t n, const __m512* sum,
                                   int64_t stride) {
  const __m512 zero = _mm512_setzero_ps();
  store_outputs(
      job, t, n, R,
      sum_lanes_of_four(sum[0], R > 1 ? sum[1 % R * stride] : zero,
                        R > 2 ? sum[2 % R * stride] : zero, R > 3 ? sum[3 % R * stride] : zero));
}

CEDRA_INLINE __mmask32 tail_mask(int64_t k) {
  return static_cast<__mmask32>((uint64_t{1} << (k % kStep)) - 1);
}

// ---- few rows: weights decoded in registers ----------------------------------------------------

// R weight rows from n times T activation rows from t, the whole of K.
template <class Weights, int R, int T>
void dot_tile(const MatmulJob& job, int64_t t, int64_t n) {
  const Weights weights;
  typename Weights::Row rows[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) rows[r] = Weights::row(job.w, n + r);
  const bf16* x[T];
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) x[i] = job.x + (t + i) * job.x_stride;
  __m512 sum[T * R];
#pragma GCC unroll 16
  for (int i = 0; i < T * R; ++i) sum[i] = _mm512_setzero_ps();

  // The tile reads R streams; the prefetch walks through the next R rows as one, which is how they
  // lie in memory.
  const char* ahead = reinterpret_cast<const char*>(job.w.data) +
                      (n + R) * (Weights::kBytesPerStep * job.w.cols / kStep);
  const int64_t steps = job.w.cols / kStep;
  for (int64_t k = 0; k < steps; ++k) {
#pragma GCC unroll 4
    for (int line = 0; line < R * Weights::kBytesPerStep; line += 64) {
      _mm_prefetch(ahead + line, _MM_HINT_T0);
    }
    ahead += R * Weights::kBytesPerStep;
    __m512i values[T];
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) values[i] = _mm512_loadu_si512(x[i] + k * kStep);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512i w = weights.decode(rows[r], k);
#pragma GCC unroll 4
      for (int i = 0; i < T; ++i) sum[i * R + r] = dot_step(sum[i * R + r], values[i], w);
    }
  }
  if constexpr (requires { &Weights::decode_tail; }) {
    if (job.w.cols % kStep != 0) {
      const __mmask32 mask = tail_mask(job.w.cols);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m512i w = weights.decode_tail(rows[r], steps, mask);
#pragma GCC unroll 4
        for (int i = 0; i < T; ++i) {
          const __m512i v = _mm512_maskz_loadu_epi16(mask, x[i] + steps * kStep);
          sum[i * R + r] = dot_step(sum[i * R + r], v, w);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) reduce_and_store<R>(job, t + i, n, sum + i * R, 1);
}

template <class Weights, int T>
void dot_rows(const MatmulJob& job, int64_t t) {
  int64_t n = job.n_begin;
  for (; n + kTileN <= job.n_end; n += kTileN) dot_tile<Weights, kTileN, T>(job, t, n);
  for (; n < job.n_end; ++n) dot_tile<Weights, 1, T>(job, t, n);
}

template <class Weights>
void dot_form(const MatmulJob& job) {
  for (int64_t t = 0; t < job.rows; t += kDotRows) {
    switch (job.rows - t) {
      case 1:
        dot_rows<Weights, 1>(job, t);
        break;
      case 2:
        dot_rows<Weights, 2>(job, t);
        break;
      case 3:
        dot_rows<Weights, 3>(job, t);
        break;
      default:
        dot_rows<Weights, 4>(job, t);
    }
  }
}

// ---- many rows: a decoded panel and a register tile --------------------------------------------

// Weight rows [n, n + count) as BF16 [count][width], zeros after K.
template <class Weights>
void decode_panel(const Matrix& w, int64_t n, int64_t count, int64_t width, uint16_t* panel) {
  const Weights weights;
  for (int64_t r = 0; r < count; ++r) {
    const typename Weights::Row row = Weights::row(w, n + r);
    uint16_t* out = panel + r * width;
    for (int64_t k = 0; k < w.cols / kStep; ++k) {
      _mm512_store_si512(out + k * kStep, weights.decode(row, k));
    }
    if constexpr (requires { &Weights::decode_tail; }) {
      if (w.cols % kStep != 0) {
        const int64_t k = w.cols / kStep;
        _mm512_store_si512(out + k * kStep, weights.decode_tail(row, k, tail_mask(w.cols)));
      }
    }
  }
}

// sum[T][kTileN] += steps of x times the panel rows. x rows are x_stride apart.
template <int T>
void panel_tile(const bf16* x, int64_t x_stride, const uint16_t* panel, int64_t width,
                int64_t steps, __m512* sums) {
  __m512 sum[T * kTileN];
#pragma GCC unroll 24
  for (int i = 0; i < T * kTileN; ++i) sum[i] = sums[i];
  for (int64_t k = 0; k < steps; ++k) {
    __m512i w[kTileN];
#pragma GCC unroll 4
    for (int r = 0; r < kTileN; ++r) w[r] = _mm512_load_si512(panel + r * width + k * kStep);
#pragma GCC unroll 6
    for (int i = 0; i < T; ++i) {
      const __m512i v = _mm512_loadu_si512(x + i * x_stride + k * kStep);
#pragma GCC unroll 4
      for (int r = 0; r < kTileN; ++r) {
        sum[i * kTileN + r] = dot_step(sum[i * kTileN + r], v, w[r]);
      }
    }
  }
#pragma GCC unroll 24
  for (int i = 0; i < T * kTileN; ++i) sums[i] = sum[i];
}

struct Panel {
  const uint16_t* words;
  int64_t width;  // K rounded up to a step
  int64_t rows;   // rounded up to a tile; the rows that are too many hold zeros
  int64_t n;      // first output
  int64_t count;  // outputs
};

// T activation rows from t times the whole panel.
template <int T>
void panel_rows(const MatmulJob& job, const Panel& panel, int64_t t) {
  alignas(64) __m512 sums[kPanelRows / kTileN][T * kTileN];
  const int64_t tiles = panel.rows / kTileN;
  for (int64_t g = 0; g < tiles; ++g) {
    for (int i = 0; i < T * kTileN; ++i) sums[g][i] = _mm512_setzero_ps();
  }
  const bf16* x = job.x + t * job.x_stride;
  const int64_t steps = job.w.cols / kStep;
  for (int64_t k = 0; k < steps; k += kPanelSteps) {
    const int64_t some = steps - k < kPanelSteps ? steps - k : kPanelSteps;
    for (int64_t g = 0; g < tiles; ++g) {
      panel_tile<T>(x + k * kStep, job.x_stride, panel.words + g * kTileN * panel.width + k * kStep,
                    panel.width, some, sums[g]);
    }
  }
  if (job.w.cols % kStep != 0) {
    alignas(64) bf16 tail[T * kStep];
    for (int i = 0; i < T; ++i) {
      _mm512_store_si512(
          tail + i * kStep,
          _mm512_maskz_loadu_epi16(tail_mask(job.w.cols), x + i * job.x_stride + steps * kStep));
    }
    for (int64_t g = 0; g < tiles; ++g) {
      panel_tile<T>(tail, kStep, panel.words + g * kTileN * panel.width + steps * kStep,
                    panel.width, 1, sums[g]);
    }
  }
  for (int64_t g = 0; g < tiles; ++g) {
    const int64_t left = panel.count - g * kTileN;
    for (int i = 0; i < T; ++i) {
      const __m512* s = sums[g] + i * kTileN;
      store_outputs(job, t + i, panel.n + g * kTileN,
                    static_cast<int>(left < kTileN ? left : kTileN),
                    sum_lanes_of_four(s[0], s[1], s[2], s[3]));
    }
  }
}

template <class Weights>
__attribute__((noinline)) void panel_form(const MatmulJob& job, int64_t panel_rows_limit) {
  alignas(64) uint16_t words[kPanelWords];
  Panel panel;
  panel.words = words;
  panel.width = (job.w.cols + kStep - 1) / kStep * kStep;
  for (int64_t n = job.n_begin; n < job.n_end; n += panel_rows_limit) {
    panel.n = n;
    panel.count = job.n_end - n < panel_rows_limit ? job.n_end - n : panel_rows_limit;
    panel.rows = (panel.count + kTileN - 1) / kTileN * kTileN;
    decode_panel<Weights>(job.w, n, panel.count, panel.width, words);
    memset(words + panel.count * panel.width, 0,
           static_cast<size_t>((panel.rows - panel.count) * panel.width) * sizeof words[0]);
    int64_t t = 0;
    for (; t + kTileT <= job.rows; t += kTileT) panel_rows<kTileT>(job, panel, t);
    switch (job.rows - t) {
      case 1:
        panel_rows<1>(job, panel, t);
        break;
      case 2:
        panel_rows<2>(job, panel, t);
        break;
      case 3:
        panel_rows<3>(job, panel, t);
        break;
      case 4:
        panel_rows<4>(job, panel, t);
        break;
      case 5:
        panel_rows<5>(job, panel, t);
        break;
      default:
        break;
    }
  }
}

template <class Weights>
void multiply(const MatmulJob& job) {
  const int64_t width = (job.w.cols + kStep - 1) / kStep * kStep;
  int64_t panel_rows_limit = kPanelWords / (width > 0 ? width : 1) / kTileN * kTileN;
  if (panel_rows_limit > kPanelRows) panel_rows_limit = kPanelRows;
  if (job.rows <= kDotRows || panel_rows_limit < kTileN) {
    dot_form<Weights>(job);
  } else {
    panel_form<Weights>(job, panel_rows_limit);
  }
}

// ---- rows with extreme scales ------------------------------------------------------------------

bool ordinary(const uint8_t* scales, int64_t count) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) {
    good = good && scales[i] >= kLeastScale && scales[i] <= kGreatestScale;
  }
  return good;
}

void multiply_exactly(MatmulJob job, int64_t begin, int64_t end) {
  job.n_begin = begin;
  job.n_end = end;
  job.rule = SumRule::kWhole;
  scalar::matmul(job);
}

// Runs of ordinary rows go to multiply(), the others to the oracle. `rows_per_scale` weight rows
// share a row of scales.
template <class Weights>
void multiply_scaled(const MatmulJob& job, int64_t rows_per_scale) {
  const int64_t blocks = job.w.cols / kStep;
  MatmulJob run = job;
  run.n_end = run.n_begin;
  for (int64_t n = job.n_begin; n < job.n_end;) {
    int64_t next = (n / rows_per_scale + 1) * rows_per_scale;
    next = next < job.n_end ? next : job.n_end;
    if (ordinary(job.w.scales + n / rows_per_scale * blocks, blocks)) {
      run.n_end = next;
    } else {
      if (run.n_begin < run.n_end) multiply<Weights>(run);
      multiply_exactly(job, n, next);
      run.n_begin = run.n_end = next;
    }
    n = next;
  }
  if (run.n_begin < run.n_end) multiply<Weights>(run);
}

// ---- FP32 weights ------------------------------------------------------------------------------

// Lane = k mod 16, fused multiply-adds in order of k, lanes added as above.
template <int R, int T>
void float_tile(const MatmulJob& job, int64_t t, int64_t n) {
  F16 sum[T * R] = {};
  const uint8_t* w[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) w[r] = job.w.data + 4 * (n + r) * job.w.cols;
  const bf16* x = job.x + t * job.x_stride;
  for_lanes(job.w.cols, [&](auto lanes, int64_t k) {
    F16 weights[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) weights[r] = lanes.load(reinterpret_cast<const float*>(w[r]) + k);
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) {
      const F16 v = lanes.load(x + i * job.x_stride + k);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[i * R + r] = fma(v, weights[r], sum[i * R + r]);
    }
  });
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) {
    reduce_and_store<R>(job, t + i, n, reinterpret_cast<const __m512*>(sum + i * R), 1);
  }
}

template <int T>
void float_rows(const MatmulJob& job, int64_t t) {
  int64_t n = job.n_begin;
  for (; n + kTileN <= job.n_end; n += kTileN) float_tile<kTileN, T>(job, t, n);
  for (; n < job.n_end; ++n) float_tile<1, T>(job, t, n);
}

void multiply_float(const MatmulJob& job) {
  int64_t t = 0;
  for (; t + 4 <= job.rows; t += 4) float_rows<4>(job, t);
  for (; t < job.rows; ++t) float_rows<1>(job, t);
}

}  // namespace

void avx512::matmul(const MatmulJob& job) {
  switch (job.w.format) {
    case MatrixFormat::kFp8Tile32:
      multiply_scaled<Fp8Weights>(job, kStep);
      return;
    case MatrixFormat::kFp4Row32:
      multiply_scaled<Fp4Weights>(job, 1);
      return;
    case MatrixFormat::kBf16:
      multiply<Bf16Weights>(job);
      return;
    case MatrixFormat::kF32:
      multiply_float(job);
      return;
  }
}

}  // namespace cedra::kernels

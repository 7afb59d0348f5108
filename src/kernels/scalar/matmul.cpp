// Oracle matrix product: weights decoded to double, exact products, double sums.
#include <algorithm>
#include <cstring>

#include "kernels/scalar/scalar.h"
#include "numerics/formats.h"

namespace cedra::kernels::scalar {
namespace {

// A tile of activation rows is widened once per kTileN weight rows, a weight row once per kTileT
// activation rows; both are pure copies, so the sums do not see the tiling.
constexpr int64_t kTileT = 16;
constexpr int64_t kTileN = 16;
constexpr int64_t kChunk = 512;  // values of K at a time; a multiple of kScaleBlock

// w[n, k_begin .. k_begin + count) in double; exact.
void decode_row(const Matrix& w, int64_t n, int64_t k_begin, int64_t count, double* out) {
  switch (w.format) {
    case MatrixFormat::kFp8Tile32: {
      const uint8_t* codes = w.data + n * w.cols + k_begin;
      const uint8_t* scales = w.scales + (n / kScaleBlock) * ((w.cols + 31) / kScaleBlock);
      for (int64_t k = 0; k < count; ++k) {
        out[k] = static_cast<double>(decode_e4m3(codes[k])) *
                 decode_e8m0(scales[(k_begin + k) / kScaleBlock]);
      }
      return;
    }
    case MatrixFormat::kFp4Row32: {
      const uint8_t* codes = w.data + (n * w.cols + k_begin) / 2;
      const uint8_t* scales = w.scales + n * (w.cols / kScaleBlock);
      for (int64_t k = 0; k < count; ++k) {
        const int nibble = (codes[k / 2] >> (4 * (k & 1))) & 15;
        out[k] = static_cast<double>(kE2m1Values[nibble]) *
                 decode_e8m0(scales[(k_begin + k) / kScaleBlock]);
      }
      return;
    }
    case MatrixFormat::kBf16: {
      const uint8_t* row = w.data + 2 * (n * w.cols + k_begin);
      for (int64_t k = 0; k < count; ++k) {
        bf16 value;
        std::memcpy(&value, row + 2 * k, sizeof value);
        out[k] = to_float(value);
      }
      return;
    }
    case MatrixFormat::kF32: {
      const uint8_t* row = w.data + 4 * (n * w.cols + k_begin);
      for (int64_t k = 0; k < count; ++k) {
        float value;
        std::memcpy(&value, row + 4 * k, sizeof value);
        out[k] = value;
      }
      return;
    }
  }
}

// Four partial sums, so that the compiler may use its two-wide vectors; the order is fixed.
double dot(const double* x, const double* w, int64_t count) {
  double s[4] = {0, 0, 0, 0};
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    for (int lane = 0; lane < 4; ++lane) s[lane] += x[k + lane] * w[k + lane];
  }
  for (; k < count; ++k) s[0] += x[k] * w[k];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

void store(const MatmulJob& job, int64_t t, int64_t n, float value) {
  if (job.y_bf16 != nullptr) {
    job.y_bf16[t * job.y_stride + n] = to_bf16(value);
  } else {
    job.y_f32[t * job.y_stride + n] = value;
  }
}

void multiply_tile(const MatmulJob& job, int64_t t_begin, int64_t n_begin, int64_t tile_t,
                   int64_t tile_n) {
  double whole[kTileN][kTileT] = {};
  float blocked[kTileN][kTileT] = {};
  alignas(64) double x[kTileT][kChunk];
  alignas(64) double w[kChunk];
  for (int64_t k = 0; k < job.w.cols; k += kChunk) {
    const int64_t count = std::min(kChunk, job.w.cols - k);
    for (int64_t t = 0; t < tile_t; ++t) {
      const bf16* row = job.x + (t_begin + t) * job.x_stride + k;
      for (int64_t i = 0; i < count; ++i) x[t][i] = to_float(row[i]);
    }
    for (int64_t n = 0; n < tile_n; ++n) {
      decode_row(job.w, n_begin + n, k, count, w);
      for (int64_t t = 0; t < tile_t; ++t) {
        if (job.rule == SumRule::kWhole) {
          whole[n][t] += dot(x[t], w, count);
          continue;
        }
        for (int64_t block = 0; block < count; block += kScaleBlock) {
          const int64_t width = std::min(kScaleBlock, count - block);
          blocked[n][t] += static_cast<float>(dot(x[t] + block, w + block, width));
        }
      }
    }
  }
  for (int64_t t = 0; t < tile_t; ++t) {
    for (int64_t n = 0; n < tile_n; ++n) {
      // Without a bias a sum of -0 stays -0.
      const float bias = job.bias != nullptr ? to_float(job.bias[n_begin + n]) : -0.0f;
      const float value = job.rule == SumRule::kWhole ? static_cast<float>(whole[n][t] + bias)
                                                      : blocked[n][t] + bias;
      store(job, t_begin + t, n_begin + n, value);
    }
  }
}

}  // namespace

void matmul(const MatmulJob& job) {
  for (int64_t t = 0; t < job.rows; t += kTileT) {
    const int64_t tile_t = std::min(kTileT, job.rows - t);
    for (int64_t n = job.n_begin; n < job.n_end; n += kTileN) {
      multiply_tile(job, t, n, tile_t, std::min(kTileN, job.n_end - n));
    }
  }
}

}  // namespace cedra::kernels::scalar

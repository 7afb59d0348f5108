// Matrix products in AMX tiles: 16 x 16 sums, 32 values of K per tdpbf16ps.
//
// The order of a sum is the instruction's: K in blocks of 32, inside a block the even and the odd
// products one after another in two FP32 sums that are then added to the output's. It is the same
// whichever operand is the left one, so both forms below give the same bits:
//   few rows:  w (16 rows of n) times x transposed; weights are decoded into tiles, x is turned
//   once; many rows: x (16 rows of t, read in place) times a panel of w, decoded and turned once.
// Matrices with K beyond kMostK take the first form, one row of x at a time (x needs no turning
// then).
#include "kernels/amx/matmul.h"

#include "kernels/amx/tiles.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/weights.h"
#include "kernels/fast/full_attention.h"

namespace cedra::kernels {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kPair = 2 * kTileRows;  // two tiles side by side: two chains of sums
constexpr int64_t kFewRows = kTileRows;   // most rows of x in the first form
constexpr int64_t kMostK = 8192;          // of x turned: 256 KiB of stack
constexpr int64_t kDecodeBlocks = 8;      // blocks of K decoded at a time in the first form
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPanelTileBytes = 1024 * 1024;  // half of the second-level cache of such machines

// Tiles 0..3: sums; 4, 5: left operands; 6, 7: right operands (pairs of K in rows).
CEDRA_INLINE void configure(int64_t left0, int64_t left1, int64_t right_columns) {
  TileConfig config;
  const int64_t bytes = 4 * right_columns;
  config.set(0, left0, bytes);
  config.set(1, left0, bytes);
  config.set(2, left1, bytes);
  config.set(3, left1, bytes);
  config.set(4, left0, 64);
  config.set(5, left1, 64);
  config.set(6, kTileRows, bytes);
  config.set(7, kTileRows, bytes);
  load_config(config);
}

// ---- few rows ----------------------------------------------------------------------------------

// x as the right operand: rows of pairs of K, `stride` bytes apart, one dword per row of x.
struct TurnedX {
  const uint8_t* pairs;
  int64_t stride;
  int64_t rows;
  const uint8_t* tail;  // the last, short block, zeros behind it; same stride
};

CEDRA_INLINE void store_sums(const MatmulJob& job, const float* sums, int64_t t, int64_t t_rows,
                             int64_t n, int64_t n_rows) {
  // sums[n][16 of t]
  for (int64_t i = 0; i < t_rows; ++i) {
    float row[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) row[r] = sums[r * kTileRows + i];
    if (job.bias != nullptr) {
      for (int64_t r = 0; r < n_rows; ++r) row[r] += to_float(job.bias[n + r]);
    }
    const int64_t at = (t + i) * job.y_stride + n;
    if (n_rows == kTileRows) {
      if (job.y_f32 != nullptr) {
        store(job.y_f32 + at, load(row));
      } else {
        store(job.y_bf16 + at, load(row));
      }
    } else if (job.y_f32 != nullptr) {
      store_part(job.y_f32 + at, load(row), n_rows);
    } else {
      store_part(job.y_bf16 + at, load(row), n_rows);
    }
  }
}

// Weights of 32 rows and a chunk of K: [32 rows][kDecodeBlocks][32 weights].
struct Decoded {
  alignas(64) uint16_t words[kPair * kDecodeBlocks * kBlockK];

  CEDRA_INLINE uint16_t* row(int64_t r) { return words + r * kDecodeBlocks * kBlockK; }
};
constexpr int64_t kDecodedRowBytes = kDecodeBlocks * 64;

// Block k of a chunk: one half (16 rows of n) of the products. Half 0 also loads the x tile.
template <int Half>
CEDRA_INLINE void few_rows_block(const Decoded& chunk, int64_t k, const uint8_t* x,
                                 int64_t stride) {
  const uint16_t* left = chunk.words + k * kBlockK;
  if constexpr (Half == 0) {
    tile_load<6>(x, stride);
    tile_load<4>(left, kDecodedRowBytes);
    tile_dot<0, 4, 6>();
  } else {
    tile_load<5>(left + kTileRows * kDecodeBlocks * kBlockK, kDecodedRowBytes);
    tile_dot<2, 5, 6>();
  }
}

template <class Weights>
CEDRA_INLINE void decode_chunk(const Weights& weights, const WeightRow& row, uint16_t* out) {
#pragma GCC unroll 8
  for (int64_t j = 0; j < kDecodeBlocks; j += 2) {
    __m512i first, second;
    if constexpr (Weights::kPairs) {
      weights.decode_pair(row, j, first, second);
    } else {
      first = weights.decode(row, j);
      second = weights.decode(row, j + 1);
    }
    _mm512_store_si512(out + j * kBlockK, first);
    _mm512_store_si512(out + (j + 1) * kBlockK, second);
  }
}

// The products of a chunk are issued between the rows of the next chunk's decoding: a tile product
// takes some fifty cycles until the next may add to the same sums.
template <class Weights>
void few_rows(const MatmulJob& job, const TurnedX& x, int64_t t) {
  const Weights weights;
  Decoded chunks[2];
  alignas(64) float sums[2][kTileRows * kTileRows];
  configure(kTileRows, kTileRows, x.rows);
  const int64_t blocks = job.w.cols / kBlockK;
  const int64_t left = job.w.cols % kBlockK;
  const int64_t x_block = kTileRows * x.stride;
  static_assert(kPair == 4 * kDecodeBlocks);  // two rows are decoded per product
  for (int64_t n = job.n_begin; n < job.n_end; n += kPair) {
    const int64_t count = job.n_end - n < kPair ? job.n_end - n : kPair;
    if (count < kPair) memset(chunks, 0, sizeof chunks);
    typename Weights::Row rows[kPair];
    for (int64_t r = 0; r < count; ++r) rows[r] = Weights::row(job.w, n + r);
    // Rows lie one after another: the prefetch walks through the next group as one stream.
    const uint8_t* ahead = Weights::row(job.w, n + count).codes;
    tile_zero<0>();
    tile_zero<2>();
    int64_t previous = 0;  // blocks in the other chunk
    for (int64_t k = 0; k < blocks || previous > 0; k += kDecodeBlocks) {
      Decoded& current = chunks[k / kDecodeBlocks % 2];
      const Decoded& other = chunks[1 - k / kDecodeBlocks % 2];
      const uint8_t* x_other = x.pairs + (k - kDecodeBlocks) * x_block;
      const int64_t left_blocks = blocks - k > 0 ? blocks - k : 0;
      const int64_t some = left_blocks < kDecodeBlocks ? left_blocks : kDecodeBlocks;
      const int64_t bytes = some * Weights::kBytesPerBlock;
      for (int64_t r = 0; r < kPair; r += 2) {
        for (int64_t i = r; i < r + 2 && i < count; ++i) {
          for (int64_t line = 0; line < bytes; line += 64) {
            _mm_prefetch(reinterpret_cast<const char*>(ahead + line), _MM_HINT_T1);
          }
          ahead += bytes;
          uint16_t* out = current.row(i);
          const typename Weights::Row at = row_at<Weights>(rows[i], k);
          if (some == kDecodeBlocks) {
            decode_chunk(weights, at, out);
          } else {
            for (int64_t j = 0; j < some; ++j) {
              _mm512_store_si512(out + j * kBlockK, weights.decode(at, j));
            }
          }
        }
        const int64_t block = r / 4;
        if (block >= previous) continue;
        if (r % 4 == 0) {
          few_rows_block<0>(other, block, x_other + block * x_block, x.stride);
        } else {
          few_rows_block<1>(other, block, x_other + block * x_block, x.stride);
        }
      }
      previous = some;
    }
    if constexpr (Weights::kAnyK) {
      if (left != 0) {
        for (int64_t r = 0; r < count; ++r) {
          const TailWeights<Weights> tail(rows[r], blocks, left);
          _mm512_store_si512(chunks[0].row(r), weights.decode(tail.row(), 0));
        }
        few_rows_block<0>(chunks[0], 0, x.tail, x.stride);
        few_rows_block<1>(chunks[0], 0, x.tail, x.stride);
      }
    }
    tile_store<0>(sums[0], 64);
    tile_store<2>(sums[1], 64);
    store_sums(job, sums[0], t, x.rows, n, count < kTileRows ? count : kTileRows);
    if (count > kTileRows) {
      store_sums(job, sums[1], t, x.rows, n + kTileRows, count - kTileRows);
    }
  }
}

// One row of x is its own transpose.
template <class Weights>
void single_row(const MatmulJob& job, int64_t t) {
  const bf16* x = job.x + t * job.x_stride;
  const int64_t whole = job.w.cols / kBlockK * kBlockK;
  const TailX tail(x + whole, job.w.cols - whole);
  few_rows<Weights>(
      job,
      {reinterpret_cast<const uint8_t*>(x), 4, 1, reinterpret_cast<const uint8_t*>(tail.values)},
      t);
}

template <class Weights>
__attribute__((noinline)) void turned_rows(const MatmulJob& job) {
  alignas(64) uint32_t pairs[kMostK / 2 * kTileRows];  // [K/2][16]
  const int64_t n_pairs = (job.w.cols + 1) / 2;
  const int64_t padded = (n_pairs + kTileRows - 1) / kTileRows * kTileRows;
  for (int64_t i = n_pairs * kTileRows; i < padded * kTileRows; ++i) pairs[i] = 0;
  for (int64_t t = 0; t < job.rows; ++t) {
    const bf16* x = job.x + t * job.x_stride;
    for (int64_t p = 0; p < job.w.cols / 2; ++p) {
      memcpy(&pairs[p * kTileRows + t], x + 2 * p, sizeof pairs[0]);
    }
    if (job.w.cols % 2 != 0) pairs[(n_pairs - 1) * kTileRows + t] = x[job.w.cols - 1].bits;
  }
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(pairs);
  few_rows<Weights>(job, {bytes, 64, job.rows, bytes + job.w.cols / kBlockK * kTileBytes}, 0);
}

// ---- many rows ---------------------------------------------------------------------------------

// Sixteen registers as rows of a 16 x 16 dword matrix; stores its transpose.
CEDRA_INLINE void store_transposed(const __m512i* rows, uint8_t* out) {
  __m512i a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
  // b[4g + c]: dword c of each 128-bit lane, of rows 4g .. 4g + 3.
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    b[4 * g] = _mm512_unpacklo_epi64(a[4 * g], a[4 * g + 2]);
    b[4 * g + 1] = _mm512_unpackhi_epi64(a[4 * g], a[4 * g + 2]);
    b[4 * g + 2] = _mm512_unpacklo_epi64(a[4 * g + 1], a[4 * g + 3]);
    b[4 * g + 3] = _mm512_unpackhi_epi64(a[4 * g + 1], a[4 * g + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);   // lanes 0, 2 of both
    const __m512i high01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xDD);  // lanes 1, 3
    const __m512i low23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xDD);
    _mm512_store_si512(out + 64 * c, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_store_si512(out + 64 * (4 + c), _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_store_si512(out + 64 * (8 + c), _mm512_shuffle_i32x4(low01, low23, 0xDD));
    _mm512_store_si512(out + 64 * (12 + c), _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}

// Weight rows [n, n + count), count <= 32, as right operands: [block of K][2 tiles].
template <class Weights>
void decode_turned(const Matrix& w, int64_t n, int64_t count, uint8_t* panel) {
  const Weights weights;
  typename Weights::Row rows[kPair];
  for (int64_t r = 0; r < count; ++r) rows[r] = Weights::row(w, n + r);
  const int64_t blocks = w.cols / kBlockK;
  const int64_t left = w.cols % kBlockK;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t first = half * kTileRows;
    for (int64_t k = 0; k < blocks + (left != 0 ? 1 : 0); ++k) {
      __m512i block[kTileRows];
      for (int64_t r = 0; r < kTileRows; ++r) {
        block[r] = _mm512_setzero_si512();
        if (first + r >= count) continue;
        if (k < blocks) {
          block[r] = weights.decode(row_at<Weights>(rows[first + r], k), 0);
        } else if constexpr (Weights::kAnyK) {
          const TailWeights<Weights> tail(rows[first + r], blocks, left);
          block[r] = weights.decode(tail.row(), 0);
        }
      }
      store_transposed(block, panel + (2 * k + half) * kTileBytes);
    }
  }
}

CEDRA_INLINE void store_tile_rows(const MatmulJob& job, const float* sums, int64_t t,
                                  int64_t t_rows, int64_t n, int64_t n_rows) {
  // sums[t][16 of n]
  for (int64_t i = 0; i < t_rows; ++i) {
    F16 row = load(sums + i * kTileRows);
    if (job.bias != nullptr && n_rows > 0) {
      row = row + load_part(job.bias + n, n_rows < kTileRows ? n_rows : kTileRows);
    }
    const int64_t at = (t + i) * job.y_stride + n;
    if (n_rows >= kTileRows) {
      if (job.y_f32 != nullptr) {
        store(job.y_f32 + at, row);
      } else {
        store(job.y_bf16 + at, row);
      }
    } else if (n_rows > 0) {
      if (job.y_f32 != nullptr) {
        store_part(job.y_f32 + at, row, n_rows);
      } else {
        store_part(job.y_bf16 + at, row, n_rows);
      }
    }
  }
}

// Up to 32 rows of x from t times the panel.
CEDRA_INLINE void panel_pair(const MatmulJob& job, const uint8_t* panel, int64_t t, int64_t t_rows,
                             int64_t n, int64_t n_rows) {
  const int64_t left1 = t_rows > kTileRows ? t_rows - kTileRows : 0;
  const bf16* x = job.x + t * job.x_stride;
  const int64_t stride = job.x_stride * static_cast<int64_t>(sizeof(bf16));
  const bf16* x1 = x + (left1 > 0 ? kTileRows * job.x_stride : 0);
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  auto multiply_block = [&](int64_t k, const bf16* x0_at, const bf16* x1_at, int64_t x_step)
                            __attribute__((always_inline)) {
                              const uint8_t* w = panel + 2 * k * kTileBytes;
                              tile_load<4>(x0_at, x_step);
                              tile_load<6>(w, 64);
                              tile_dot<0, 4, 6>();
                              tile_load<7>(w + kTileBytes, 64);
                              tile_dot<1, 4, 7>();
                              tile_load<5>(x1_at, x_step);
                              tile_dot<2, 5, 6>();
                              tile_dot<3, 5, 7>();
                            };
  const int64_t blocks = job.w.cols / kBlockK;
  for (int64_t k = 0; k < blocks; ++k) {
    multiply_block(k, x + k * kBlockK, x1 + k * kBlockK, stride);
  }
  if (const int64_t left = job.w.cols % kBlockK; left != 0) {
    alignas(64) bf16 tail[kPair * kBlockK] = {};
    for (int64_t i = 0; i < t_rows; ++i) {
      memcpy(tail + i * kBlockK, x + i * job.x_stride + blocks * kBlockK,
             static_cast<size_t>(left) * sizeof(bf16));
    }
    multiply_block(blocks, tail, tail + kTileRows * kBlockK, 64);
  }
  alignas(64) float sums[4][kTileRows * kTileRows];
  tile_store<0>(sums[0], 64);
  tile_store<1>(sums[1], 64);
  tile_store<2>(sums[2], 64);
  tile_store<3>(sums[3], 64);
  const int64_t left0 = t_rows < kTileRows ? t_rows : kTileRows;
  store_tile_rows(job, sums[0], t, left0, n, n_rows);
  store_tile_rows(job, sums[1], t, left0, n + kTileRows, n_rows - kTileRows);
  store_tile_rows(job, sums[2], t + kTileRows, left1, n, n_rows);
  store_tile_rows(job, sums[3], t + kTileRows, left1, n + kTileRows, n_rows - kTileRows);
}

template <class Weights>
__attribute__((noinline)) void many_rows(const MatmulJob& job) {
  alignas(64) uint8_t panel[kPanelTileBytes];  // [pair of tiles][block of K][2 tiles]
  const int64_t pair_bytes = (job.w.cols + kBlockK - 1) / kBlockK * 2 * kTileBytes;
  const int64_t most = kPanelTileBytes / pair_bytes * kPair;
  for (int64_t begin = job.n_begin; begin < job.n_end; begin += most) {
    const int64_t end = job.n_end - begin < most ? job.n_end : begin + most;
    for (int64_t n = begin; n < end; n += kPair) {
      decode_turned<Weights>(job.w, n, end - n < kPair ? end - n : kPair,
                             panel + (n - begin) / kPair * pair_bytes);
    }
    configure(kTileRows, kTileRows, kTileRows);
    for (int64_t t = 0; t < job.rows; t += kPair) {
      const int64_t left = job.rows - t < kPair ? job.rows - t : kPair;
      if (left < kPair) {
        // A second tile without rows repeats the first; its sums are not stored.
        const int64_t left0 = left < kTileRows ? left : kTileRows;
        configure(left0, left > kTileRows ? left - kTileRows : left0, kTileRows);
      }
      for (int64_t n = begin; n < end; n += kPair) {
        panel_pair(job, panel + (n - begin) / kPair * pair_bytes, t, left, n, end - n);
      }
    }
  }
}

template <class Weights>
void multiply_tiles(const MatmulJob& job) {
  if (job.rows == 0) return;
  if (job.rows == 1 || job.w.cols > kMostK) {
    for (int64_t t = 0; t < job.rows; ++t) single_row<Weights>(job, t);
  } else if (job.rows <= kFewRows) {
    turned_rows<Weights>(job);
  } else {
    many_rows<Weights>(job);
  }
  release_tiles();
}

}  // namespace

namespace amx {

void matmul(const MatmulJob& job) {
  switch (job.w.format) {
    case MatrixFormat::kFp8Tile32:
      multiply_scaled(job, kBlockK, multiply_tiles<Fp8Weights>);
      return;
    case MatrixFormat::kFp4Row32:
      multiply_scaled(job, 1, multiply_tiles<Fp4Weights>);
      return;
    case MatrixFormat::kBf16:
      multiply_tiles<Bf16Weights>(job);
      return;
    case MatrixFormat::kF32:
      avx512::matmul(job);
      return;
  }
}

const Ops& ops() {
  static const Ops kOps = [] {
    Ops table = avx512::ops();
    table.name = "amx";
    table.matmul = matmul;
    table.full_attend = fast_full_attend<matmul>;
    return table;
  }();
  return kOps;
}

}  // namespace amx
}  // namespace cedra::kernels

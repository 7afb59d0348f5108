// The table of operations that the forward pass is made of. scalar/ defines every one of them
// ("oracle": float64 sums, the exact arithmetic of spec model.md 4.11); avx2/ and avx512/ are the
// fast twins (exact BF16 operands, FP32 sums).
//
// Rules that every level keeps:
//  * every output element is reduced over K in ONE order that depends on K alone: not on the number
//    of rows, on the range [n_begin, n_end), on the thread, on alignment. A row's bits never depend
//    on its neighbours.
//  * BF16 roundings stand where model.md 4.10 puts them, at every level.
//  * no allocation, no locks, no global state. Pointers may be unaligned unless said.
//  * inputs are finite (the loader and debug checks see to that).
//
// Dims: T rows, N outputs, K inputs, D hidden, C residual copies, H heads, Dh head dim.
// C++20-clean: no std::expected here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "numerics/bfloat16.h"

namespace cedra::kernels {

enum class MatrixFormat : uint8_t {
  kFp8Tile32,  // E4M3 codes [N, K], E8M0 scales [ceil(N/32), ceil(K/32)] (model.md 3)
  kFp4Row32,   // E2M1 packed [N, K/2] (even element low), E8M0 scales [N, K/32]
  kBf16,       // [N, K]
  kF32,        // [N, K]
};

// A weight matrix as it lies in the mapped checkpoint; not owned. Row-major [rows = N, cols = K].
struct Matrix {
  MatrixFormat format = MatrixFormat::kBf16;
  const uint8_t* data = nullptr;
  const uint8_t* scales = nullptr;  // FP8 and FP4 only
  int64_t rows = 0;
  int64_t cols = 0;
};

// How the oracle adds up: one float64 sum over K, or exact sums of 32-blocks added one after
// another in FP32 (quantised linears, model.md 3.3 and 4.11). Fast levels ignore it.
enum class SumRule : uint8_t { kWhole, kBlocks32 };

// y[t, n] = sum_k x[t, k] * w[n, k] for n in [n_begin, n_end). Columns are absolute: y points at
// column 0 of row 0. K of FP8 and FP4 matrices is a multiple of 32; any K otherwise.
struct MatmulJob {
  Matrix w;
  const bf16* x = nullptr;  // [T, K], for quantised linears the values of quantize_q8
  int64_t x_stride = 0;     // elements between rows
  int64_t rows = 0;         // T
  int64_t n_begin = 0;
  int64_t n_end = 0;
  SumRule rule = SumRule::kWhole;
  const bf16* bias = nullptr;  // [N], joins the sum before its one rounding; null = none
  // Exactly one of the two is set.
  bf16* y_bf16 = nullptr;  // rounded FP32 -> BF16
  float* y_f32 = nullptr;
  int64_t y_stride = 0;  // elements between rows
};

// Attention of one query row over a gathered list of entries (model.md 4.7): blocks of 64 entries
// in list order with a running maximum, probabilities rounded to BF16 for the values, the sink only
// in the denominator. Missing entries keep their place in the list (it decides where blocks end). A
// list without any entry gives zeros.
struct AttendJob {
  const bf16* q = nullptr;           // [H, Dh] after RoPE
  const bf16* keys = nullptr;        // [entries, Dh], key and value; missing rows are never read
  const uint8_t* present = nullptr;  // [entries], 0 = missing
  int64_t entries = 0;
  int64_t head_dim = 0;
  int64_t h_begin = 0;  // heads [h_begin, h_end) are computed
  int64_t h_end = 0;
  const float* sink = nullptr;  // [H]
  float scale = 0;              // fl32(Dh^-1/2)
  bf16* out = nullptr;          // [H, Dh]
  float* scratch = nullptr;     // attend_scratch_floats(head_dim) floats, one per caller
};
// Room for eight heads: their queries and sums (head_dim rounded up to 32) and 64 scores each.
inline int64_t attend_scratch_floats(int64_t head_dim) {
  return 2 * 8 * ((head_dim + 31) / 32 * 32) + 2 * 8 * 64;
}

// Index scores of one query row against n consecutive packed keys (model.md 4.6):
// S_j = sum_h max(0, q_h . k_j) * weight_h with the three BF16 roundings of the reference, at every
// level: scores are compared with each other, and the selection must not depend on the level more
// than the sums force it to.
struct IndexJob {
  const bf16* q = nullptr;             // [heads, dim], FP4-rounded values
  const float* head_weight = nullptr;  // [heads], BF16 values widened
  int64_t heads = 0;
  int64_t dim = 0;                  // multiple of 32, at most kMaxIndexDim
  const uint8_t* codes = nullptr;   // [n, dim/2]
  const uint8_t* scales = nullptr;  // [n, dim/32]
  int64_t n = 0;
  float* scores = nullptr;  // [n], BF16 values widened
};

inline constexpr int64_t kMaxIndexDim = 512;

// Hyper-connection coefficients of one row from its raw dots (model.md 4.2).
struct MixesJob {
  const float* dots = nullptr;   // [(2+C)*C], sum z * fn
  float inverse_rms = 0;         // of the flattened stream row
  const float* scale = nullptr;  // [3]
  const float* base = nullptr;   // [(2+C)*C]
  int64_t copies = 0;            // C <= kMaxCopies
  int64_t sinkhorn_iters = 0;
  float eps = 0;          // hc_eps
  float* pre = nullptr;   // [C]
  float* post = nullptr;  // [C]
  float* comb = nullptr;  // [C, C], row = source copy
};
inline constexpr int64_t kMaxCopies = 8;

// Attention of the vision tower (vision.md 6) of one head: every row sees all rows of its image.
// Probabilities are not rounded; the result goes to BF16 once.
struct FullAttendJob {
  const bf16* q = nullptr;  // [N, Dh] after RoPE
  int64_t q_stride = 0;     // elements between rows
  const bf16* k = nullptr;  // [N, Dh], dense, after RoPE
  const bf16* v = nullptr;  // [Dh, N], dense: values turned
  int64_t rows = 0;         // N
  int64_t head_dim = 0;
  int64_t row_begin = 0;  // query rows [row_begin, row_end) are computed, at most kFullAttendRows
  int64_t row_end = 0;
  bf16* out = nullptr;  // [N, Dh]
  int64_t out_stride = 0;
  void* scratch =
      nullptr;  // full_attend_scratch_bytes(rows, head_dim), aligned to 64, one per caller
};
inline constexpr int64_t kFullAttendRows = 32;
// Scores in FP32, probabilities as two BF16 parts, their two value sums in FP32. The oracle needs
// one row of doubles.
inline int64_t full_attend_scratch_bytes(int64_t rows, int64_t head_dim) {
  return kFullAttendRows * (8 * rows + 8 * head_dim) + 8 * kFullAttendRows;
}

enum class RouterScore : uint8_t { kSqrtSoftplus, kSoftmax, kSigmoid };

struct Ops {
  std::string_view name;  // "oracle", "avx2", "avx512", "amx"

  // -- matrices
  void (*matmul)(const MatmulJob& job);

  // -- activation quantisers and packed records (model.md 3.2). n is a multiple of the group.
  // Q8: values code * scale, exact in BF16. y may alias x.
  void (*quantize_q8)(const bf16* x, bf16* y, int64_t n);
  // Window record: n E4M3 codes, n/32 E8M0 scales. Also the layout of an Engram table row.
  void (*pack_fp8)(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales);
  void (*unpack_fp8)(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y);
  // Compressed KV record (FQ4k): n/2 bytes of E2M1, n/16 E4M3 scales.
  void (*pack_latent)(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales);
  void (*unpack_latent)(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y);
  // Index key record (FQ4i): n/2 bytes of E2M1, n/32 E8M0 scales.
  void (*pack_index)(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales);
  void (*unpack_index)(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y);

  // -- rows
  // 1 / sqrt(mean(x^2) + eps), every step FP32.
  float (*inverse_rms)(const bf16* x, int64_t n, float eps);
  // y = bf(w * (x * r)); y may alias x.
  void (*rms_norm)(const bf16* x, const bf16* w, int64_t n, float eps, bf16* y);
  // y[D] = bf(sum_c pre[c] * x[c, :]), products rounded, added in order of c.
  void (*collapse)(const bf16* x, const float* pre, int64_t copies, int64_t dim, bf16* y);
  // x'[j, :] = bf(bf16 a * post[j] + sum_i comb[i][j] * x[i, :]); in place.
  void (*expand)(const bf16* a, const float* post, const float* comb, int64_t copies, int64_t dim,
                 bf16* x);
  // y[D] = bf(mean_c x[c, :]) (draft taps).
  void (*copy_mean)(const bf16* x, int64_t copies, int64_t dim, bf16* y);
  void (*mixes)(const MixesJob& job);
  // Adjacent pairs of x[0 .. 2*pairs) rotate by (cos, sin)[pairs]; inverse: sin is negated.
  void (*rope)(bf16* x, const float* cos, const float* sin, int64_t pairs, bool inverse);

  // -- attention
  void (*attend)(const AttendJob& job);
  void (*index_scores)(const IndexJob& job);
  // pool[d] = bf(sum_m kv[m, d] * softmax_m(score[m, d])); kv row m at kv[m], likewise score.
  void (*pool_group)(const float* const* kv, const float* const* score, int64_t ratio, int64_t dim,
                     bf16* y);

  // -- experts
  // y = bf(weight * (silu(min(gate, limit)) * clamp(up, -limit, limit))); limit 0 = off. The shared
  // expert passes weight 1, which changes no bit.
  void (*swiglu)(const bf16* gate, const bf16* up, float limit, float weight, int64_t n, bf16* y);
  void (*add_rows)(const bf16* x, int64_t n, float* total);  // total += x, FP32
  void (*round_rows)(const float* x, int64_t n, bf16* y);    // y = bf(x)
  // In place: router logits [n] -> scores (model.md 4.8.1); logits are divided by gate_temp first.
  void (*router_scores)(float* logits, int64_t n, RouterScore kind, float gate_temp);

  // -- Engram (model.md 5.4, step 3 and 4) of one row and copy: x[dim] += gate(x, key) * value.
  // q_weight * k_weight is taken per element in FP32. Returns the gate (for tests).
  float (*engram_mix)(bf16* x, const bf16* key, const bf16* value, const bf16* q_weight,
                      const bf16* k_weight, int64_t dim, float eps);

  // -- vision tower (vision.md 6, 7)
  void (*full_attend)(const FullAttendJob& job);
  // Halves of x[0 .. 2*half) rotate: element i with element i + half, by (cos, sin)[half].
  void (*rope_halves)(bf16* x, const float* cos, const float* sin, int64_t half);
  void (*silu_gate)(const bf16* gate, const bf16* up, int64_t n, bf16* y);  // bf(bf(silu(g)) * u)
  void (*gelu)(bf16* x, int64_t n);  // in place, bf(x/2 * (1 + erf(x / sqrt(2))))
  void (*add_bf16)(const bf16* x, int64_t n, bf16* y);  // y = bf(y + x)
};

// Levels that this build has and this machine can run, slowest first; [0] is always the oracle.
std::span<const Ops* const> available_ops();
// The fastest level, or the one called `name` ("" = fastest); nullptr if this machine lacks it.
const Ops* find_ops(std::string_view name);

}  // namespace cedra::kernels

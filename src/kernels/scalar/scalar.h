// The oracle level: every operation as the specification writes it, sums in double, each result
// double -> FP32 -> (where model.md 4.10 says so) BF16. Slow and plain on purpose: the fast levels
// are tested against it, and with it the engine reproduces the golden data bit for bit.
#pragma once

#include "kernels/ops.h"

namespace cedra::kernels::scalar {

// The table of this level, name "oracle".
const Ops& ops();

void matmul(const MatmulJob& job);

void quantize_q8(const bf16* x, bf16* y, int64_t n);
void pack_fp8(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales);
void unpack_fp8(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y);
void pack_latent(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales);
void unpack_latent(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y);
void pack_index(const bf16* x, int64_t n, uint8_t* codes, uint8_t* scales);
void unpack_index(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* y);

float inverse_rms(const bf16* x, int64_t n, float eps);
void rms_norm(const bf16* x, const bf16* w, int64_t n, float eps, bf16* y);
void collapse(const bf16* x, const float* pre, int64_t copies, int64_t dim, bf16* y);
void expand(const bf16* a, const float* post, const float* comb, int64_t copies, int64_t dim,
            bf16* x);
void copy_mean(const bf16* x, int64_t copies, int64_t dim, bf16* y);
void mixes(const MixesJob& job);
void rope(bf16* x, const float* cos, const float* sin, int64_t pairs, bool inverse);

void attend(const AttendJob& job);
void index_scores(const IndexJob& job);
void pool_group(const float* const* kv, const float* const* score, int64_t ratio, int64_t dim,
                bf16* y);

void swiglu(const bf16* gate, const bf16* up, float limit, float weight, int64_t n, bf16* y);
void add_rows(const bf16* x, int64_t n, float* total);
void round_rows(const float* x, int64_t n, bf16* y);
void router_scores(float* logits, int64_t n, RouterScore kind, float gate_temp);

float engram_mix(bf16* x, const bf16* key, const bf16* value, const bf16* q_weight,
                 const bf16* k_weight, int64_t dim, float eps);

void full_attend(const FullAttendJob& job);
void rope_halves(bf16* x, const float* cos, const float* sin, int64_t half);
void silu_gate(const bf16* gate, const bf16* up, int64_t n, bf16* y);
void gelu(bf16* x, int64_t n);
void add_bf16(const bf16* x, int64_t n, bf16* y);

// exp and the logistic function of an FP32 argument, rounded once to FP32 (model.md 4.11).
float exp_fp32(float x);
float sigmoid_fp32(float x);

}  // namespace cedra::kernels::scalar

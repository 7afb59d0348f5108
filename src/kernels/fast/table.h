// The operation table of a fast level: everything but the matrix product is the same source,
// compiled once per level.
#pragma once

#include "kernels/fast/attention.h"
#include "kernels/fast/full_attention.h"
#include "kernels/fast/quantize.h"
#include "kernels/fast/rows.h"
#include "kernels/scalar/scalar.h"

namespace cedra::kernels {
namespace {

template <void (*kMatmul)(const MatmulJob&)>
constexpr Ops fast_table(std::string_view name) {
  return {
      .name = name,
      .matmul = kMatmul,
      .quantize_q8 = fast_quantize_q8,
      .pack_fp8 = scalar::pack_fp8,
      .unpack_fp8 = fast_unpack_fp8,
      .pack_latent = scalar::pack_latent,
      .unpack_latent = fast_unpack_latent,
      .pack_index = scalar::pack_index,
      .unpack_index = fast_unpack_index,
      .inverse_rms = fast_inverse_rms,
      .rms_norm = fast_rms_norm,
      .collapse = fast_collapse,
      .expand = fast_expand,
      .copy_mean = fast_copy_mean,
      .mixes = scalar::mixes,
      .rope = fast_rope,
      .attend = fast_attend,
      .index_scores = fast_index_scores,
      .pool_group = fast_pool_group,
      .swiglu = fast_swiglu,
      .add_rows = fast_add_rows,
      .round_rows = fast_round_rows,
      .router_scores = fast_router_scores,
      .engram_mix = fast_engram_mix,
      .full_attend = fast_full_attend<kMatmul>,
      .rope_halves = fast_rope_halves,
      .silu_gate = fast_silu_gate,
      .gelu = scalar::gelu,
      .add_bf16 = fast_add_bf16,
  };
}

}  // namespace
}  // namespace cedra::kernels

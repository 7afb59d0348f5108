// The oracle's table.
#include "kernels/scalar/scalar.h"

namespace cedra::kernels::scalar {

const Ops& ops() {
  static constexpr Ops kOps = {
      .name = "oracle",
      .matmul = matmul,
      .quantize_q8 = quantize_q8,
      .pack_fp8 = pack_fp8,
      .unpack_fp8 = unpack_fp8,
      .pack_latent = pack_latent,
      .unpack_latent = unpack_latent,
      .pack_index = pack_index,
      .unpack_index = unpack_index,
      .inverse_rms = inverse_rms,
      .rms_norm = rms_norm,
      .collapse = collapse,
      .expand = expand,
      .copy_mean = copy_mean,
      .mixes = mixes,
      .rope = rope,
      .attend = attend,
      .index_scores = index_scores,
      .pool_group = pool_group,
      .swiglu = swiglu,
      .add_rows = add_rows,
      .round_rows = round_rows,
      .router_scores = router_scores,
      .engram_mix = engram_mix,
      .full_attend = full_attend,
      .rope_halves = rope_halves,
      .silu_gate = silu_gate,
      .gelu = gelu,
      .add_bf16 = add_bf16,
  };
  return kOps;
}

}  // namespace cedra::kernels::scalar

// Matrix products of the AVX-512 level: vdpbf16ps on BF16 weights (it rounds after each product and
// treats subnormals as zero), fused multiply-adds on FP32 weights.
#include "kernels/avx512/matmul.h"

#include "kernels/avx512/weights.h"
#include "kernels/fast/wide_matmul.h"

namespace cedra::kernels::avx512 {

void matmul(const MatmulJob& job) {
  switch (job.w.format) {
    case MatrixFormat::kFp8Tile32:
      multiply_scaled(job, kBlockK, multiply<Bf16Dot, Fp8Weights>);
      return;
    case MatrixFormat::kFp4Row32:
      multiply_scaled(job, 1, multiply<Bf16Dot, Fp4Weights>);
      return;
    case MatrixFormat::kBf16:
      multiply<Bf16Dot, Bf16Weights>(job);
      return;
    case MatrixFormat::kF32:
      multiply_wide(job);
      return;
  }
}

}  // namespace cedra::kernels::avx512

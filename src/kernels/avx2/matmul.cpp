// Matrix products of the AVX2 level: FP32 fused multiply-adds on exactly decoded weights.
#include "kernels/avx2/matmul.h"

#include "kernels/avx2/products.h"
#include "kernels/avx2/wide.h"

namespace cedra::kernels::avx2 {

void matmul(const MatmulJob& job) {
  switch (job.w.format) {
    case MatrixFormat::kFp8Tile32:
      multiply_scaled(job, kBlockK, multiply_floats<Fp8Weights>);
      return;
    case MatrixFormat::kFp4Row32:
      multiply_scaled(job, 1, multiply_floats<Fp4Weights>);
      return;
    case MatrixFormat::kBf16:
      multiply_floats<Bf16Weights>(job);
      return;
    case MatrixFormat::kF32:
      multiply_wide(job);
      return;
  }
}

}  // namespace cedra::kernels::avx2

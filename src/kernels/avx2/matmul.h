// The AVX2 level: AVX2, FMA, F16C and BMI2.
#pragma once

#include "kernels/ops.h"

namespace cedra::kernels::avx2 {

const Ops& ops();
void matmul(const MatmulJob& job);

}  // namespace cedra::kernels::avx2

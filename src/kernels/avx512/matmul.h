// The AVX-512 level: F, BW, VL, DQ, VBMI and BF16.
#pragma once

#include "kernels/ops.h"

namespace cedra::kernels::avx512 {

const Ops& ops();
void matmul(const MatmulJob& job);

}  // namespace cedra::kernels::avx512

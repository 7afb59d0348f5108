// The AMX level: the AVX-512 level with matrix products in tiles (AMX-TILE and AMX-BF16).
#pragma once

#include "kernels/ops.h"

namespace cedra::kernels::amx {

const Ops& ops();
void matmul(const MatmulJob& job);

}  // namespace cedra::kernels::amx

// The table of the AVX-512 level.
#include "kernels/avx512/matmul.h"
#include "kernels/fast/table.h"

namespace cedra::kernels::avx512 {

const Ops& ops() {
  static constexpr Ops kOps = fast_table<matmul>("avx512");
  return kOps;
}

}  // namespace cedra::kernels::avx512

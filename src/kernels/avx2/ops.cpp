// The table of the AVX2 level.
#include "kernels/avx2/matmul.h"
#include "kernels/fast/table.h"

namespace cedra::kernels::avx2 {

const Ops& ops() {
  static constexpr Ops kOps = fast_table<matmul>("avx2");
  return kOps;
}

}  // namespace cedra::kernels::avx2

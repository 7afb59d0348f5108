// The operations that measure_kernels() times, with their costs. Internal to bench/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/buffer.h"
#include "kernels/ops.h"
#include "parallel/team.h"

namespace cedra::bench {

struct Operation {
  std::string name, use;
  double bytes = 0;          // from memory, whatever the rows
  double bytes_per_row = 0;  // from memory
  double flops_per_row = 0;
  // One member's part of call number `call` of the operation on `rows` rows.
  std::function<void(int64_t rows, int64_t call, int member)> run;
};

// What the operations work on.
struct Workbench {
  const kernels::Ops& ops;
  int members = 1;
  const Buffer& weights;                      // finite in every format (fill_with_weights)
  std::vector<uint8_t> e8m0 = {}, e4m3 = {};  // scales, all of one value
  std::vector<bf16> x = {}, y = {}, z = {};   // activations
  std::vector<float> sums = {}, angles = {};
  std::vector<std::vector<float>> scratch = {};  // per member
  std::vector<bf16> keys = {};                   // a gathered list of entries
  std::vector<uint8_t> present = {};
};

std::unique_ptr<Workbench> make_workbench(const kernels::Ops& ops, int members, int64_t max_rows,
                                          const Buffer& weights);

// They refer to the workbench.
std::vector<Operation> make_operations(Workbench& bench);

}  // namespace cedra::bench

// Every hot operation of the forward pass at the released shapes against the machine's ceilings, in
// one process: each round measures the plain read and the multiply instruction again, right before
// an operation, and the result is the median over rounds of the ratio inside a round.
//
// Weights and cached records come out of a working set far beyond the caches, fresh ones for every
// call; activations are in the cache, as in a step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace cedra::bench {

struct KernelOptions {
  std::string isa = {};  // "" = the fastest level
  int threads = 0;       // 0 = one per usable core
  int rounds = 5;
  double gigabytes = 0;   // working set; 0 = default_gigabytes()
  std::string only = {};  // operations whose name or use has this text
  std::vector<int64_t> rows = {1, 2, 4, 6, 8, 16, 64, 256, 512};
};

struct KernelResult {
  std::string name;  // "fp4 2304x5120"
  std::string use;   // "routed expert, gate and up"
  int64_t rows = 0;
  // Medians over rounds.
  double seconds = 0;  // of one call by the whole team
  double gb_s = 0;     // 0 where nothing comes from memory
  double of_read = 0;
  double gflop_s = 0;  // 0 where nothing is multiplied
  double of_peak = 0;
  // The least time that reading and multiplying leave, relative to the time it took.
  double of_ceiling = 0;
};

struct KernelReport {
  std::string level, processor;
  int threads = 0;
  int rounds = 0;
  double gigabytes = 0;
  double read_gb_s = 0;  // medians of all rounds
  double peak_gflop_s = 0;
  std::string instruction;
  std::vector<KernelResult> results;  // by operation, then rows

  std::string to_text() const;
  std::string to_json() const;
  // A picture: one line per operation, one field per number of rows, coloured by of_ceiling.
  std::string to_svg() const;
};

Result<KernelReport> measure_kernels(const KernelOptions& options,
                                     const std::function<void(const std::string&)>& progress = {});

}  // namespace cedra::bench

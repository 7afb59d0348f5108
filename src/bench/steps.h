// Decode steps and prompts of a real folder, split by component, against the machine's read rate,
// and what the full depth would take.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/step_cost.h"

namespace cedra::bench {

struct StepOptions {
  std::filesystem::path folder = {};
  std::string isa = {};  // "" = the fastest level
  int threads = 0;       // 0 = one per usable core
  int rounds = 8;        // steps of every kind; the medians are shown
  std::vector<int64_t> batches = {1};
  std::vector<int64_t> contexts = {1024, 32768, 262144};
  int64_t prompt = 512;  // rows of the prompt that is timed, 0 = none
  bool follow_symlinks = false;
};

struct StepResult {
  bool prompt = false;  // of `rows` rows, else a decode step of `rows` sequences
  int64_t rows = 0;
  int64_t context = 0;                               // position of the rows of a decode step
  double seconds = 0;                                // median
  std::array<double, model::kPhases> by_phase = {};  // medians
  double experts = 0;                                // routed experts with a row, over all layers
  double read_gb_s = 0;                              // ceiling, measured before each step
  StepCost cost = {};                                // of this model
  // The release, of which this model is a cut: every component grows as its cost does.
  StepCost full_cost = {};
  std::array<double, model::kPhases> full_by_phase = {};
  double full_seconds = 0;
};

struct StepReport {
  std::string level, processor, folder;
  int threads = 0;
  int rounds = 0;
  int64_t layers = 0, experts = 0, vocab = 0;
  double open_seconds = 0;      // headers and tokenizer
  double populate_seconds = 0;  // mapping the weights, read by all threads
  double populate_bytes = 0;
  std::vector<StepResult> results;

  std::string to_text() const;
  std::string to_json() const;
};

// The cache of a sequence is filled with random records: a context costs what it costs whatever its
// tokens were, and need not be computed.
Result<StepReport> measure_steps(const StepOptions& options,
                                 const std::function<void(const std::string&)>& progress = {});

}  // namespace cedra::bench

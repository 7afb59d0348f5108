// What a step has to read and to multiply, by component, from a config alone: the measure of the
// time it takes, and of how that time grows with the depth.
#pragma once

#include <array>
#include <cstdint>

#include "checkpoint/config.h"
#include "model/phases.h"

namespace cedra::bench {

struct StepCost {
  std::array<double, model::kPhases> bytes = {};  // weights and cached records, once each
  std::array<double, model::kPhases> flops = {};
  double total_bytes() const;
  double total_flops() const;
};

// A step of `batch` sequences with one row each at position `context`. experts: routed experts that
// have a row, over all layers; negative = as many as uniform routing would touch.
StepCost decode_cost(const Config& config, int64_t batch, int64_t context, double experts = -1);

// The first `rows` rows of one sequence through all layers, logits of the last one.
StepCost prefill_cost(const Config& config, int64_t rows);

// layers * E * (1 - (1 - K / E)^rows).
double expected_experts(const TextConfig& text, int64_t rows);

}  // namespace cedra::bench

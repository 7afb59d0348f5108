// Rotary position embedding: frequencies (plain and YaRN) and the cos/sin tables of a step's rows
// (spec model.md 4.4).
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"

namespace cedra::model {

// f_k = fl32(1 / fl32(theta^(2k / rope_dim))), k = 0 .. rope_dim/2 - 1.
std::vector<float> rope_frequencies(double theta, int64_t rope_dim);

// Slow pairs divided by the factor, fast ones kept, a linear ramp between; no amplitude factor.
std::vector<float> yarn_frequencies(double theta, int64_t rope_dim, const RopeScaling& scaling);

// cos and sin of fl32(position * frequency), from double: [pairs] each.
void rope_angles(const std::vector<float>& frequencies, int64_t position, float* cos, float* sin);

}  // namespace cedra::model

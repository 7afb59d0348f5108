// The rules between the values of a config (spec model.md 1.2, rule 3); internal to checkpoint/.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/config.h"

namespace cedra {

// Appends one sentence per broken rule. Every value is already in its own range.
void check_config(const Config& config, std::vector<std::string>& problems);

}  // namespace cedra

// The rules between the values of a config (spec model.md 1.2, rule 3); internal to checkpoint/.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checkpoint/config.h"

namespace cedra {

// Appends one sentence per broken rule. Values are in their own ranges, except those of the keys in
// `unread` ("hidden_size", "vision_config.hidden_size"): rules that need such a key are left out.
void check_config(const Config& config, const std::set<std::string>& unread,
                  std::vector<std::string>& problems);

}  // namespace cedra

// Taking memory with a whole team: each member its part, which is then on its NUMA node.
#pragma once

#include <span>

#include "base/result.h"
#include "parallel/team.h"

namespace cedra {

// Takes the memory of a mapping (base/pages.h). kExhausted if the system has none left.
Result<> populate(Team& team, std::span<uint8_t> memory);

}  // namespace cedra

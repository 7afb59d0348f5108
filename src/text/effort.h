// The effort dial (spec chat.md 2.4): names and numbers to N of the effort line. The names are
// data, one table per model, because later checkpoints add some.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cedra::text {

inline constexpr int kDefaultEffort = 75;

struct EffortName {
  std::string_view name;
  int value;  // 1..100, or 0: thinking off
};
using EffortTable = std::span<const EffortName>;

// The table for a model's name: the launch checkpoint's, or that of the later one (suffix "-1017").
EffortTable effort_table(std::string_view model);
// low, high, max: what the reference encoder accepts.
EffortTable reference_effort_table();

// A name of the table, or 1..100 in digits; 0 means thinking off. kInvalid names the accepted ones.
Result<int> effort_value(std::string_view name, EffortTable table);
// An integer given as such. kInvalid outside 1..100.
Result<int> effort_value(long long number);

}  // namespace cedra::text

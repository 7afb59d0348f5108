// The tables of the effort dial.
#include "text/effort.h"

#include <array>
#include <charconv>

namespace cedra::text {
namespace {

constexpr std::array kReference{EffortName{"low", 50}, EffortName{"high", 75},
                                EffortName{"max", 100}};

constexpr std::array kLaunch{EffortName{"none", 0},  EffortName{"minimal", 50},
                             EffortName{"low", 50},  EffortName{"medium", 75},
                             EffortName{"high", 75}, EffortName{"xhigh", 75},
                             EffortName{"max", 100}, EffortName{"ultra", 100}};

// The later checkpoint moves xhigh up; its medium stays with high.
constexpr std::array kLater{EffortName{"none", 0},  EffortName{"minimal", 50},
                            EffortName{"low", 50},  EffortName{"medium", 75},
                            EffortName{"high", 75}, EffortName{"xhigh", 100},
                            EffortName{"max", 100}, EffortName{"ultra", 100}};

}  // namespace

EffortTable effort_table(std::string_view model) {
  return model.ends_with("-1017") ? EffortTable(kLater) : EffortTable(kLaunch);
}

EffortTable reference_effort_table() { return kReference; }

Result<int> effort_value(std::string_view name, EffortTable table) {
  for (const EffortName& entry : table) {
    if (entry.name == name) return entry.value;
  }
  long long number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (!name.empty() && error == std::errc() && stop == name.data() + name.size()) {
    return effort_value(number);
  }
  std::string names;
  for (const EffortName& entry : table) names.append(entry.name).append(", ");
  return err(Code::kInvalid,
             "reasoning_effort: expected one of {}or an integer from 1 to 100, got '{}'", names,
             name.substr(0, 40));
}

Result<int> effort_value(long long number) {
  if (number < 1 || number > 100) {
    return err(Code::kInvalid, "reasoning_effort: expected an integer from 1 to 100, got {}",
               number);
  }
  return static_cast<int>(number);
}

}  // namespace cedra::text

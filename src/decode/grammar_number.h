// Numbers between bounds, as texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "decode/grammar_rules.h"

namespace cedra::decode {

// A decimal number: sign, digits before the point ("0" or without leading zeros), digits behind it
// (without zeros at the end).
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;

  bool zero() const { return whole == "0" && fraction.empty(); }
  size_t digits() const { return whole.size() + fraction.size(); }
  // From a JSON number. nullopt where it has more than 40 digits before or behind the point.
  static std::optional<Decimal> parse(std::string_view literal);
};

struct NumberBounds {
  std::optional<Decimal> low;
  std::optional<Decimal> high;
  bool low_open = false;  // the bound itself is not in
  bool high_open = false;
  bool integer = false;
  int64_t multiple_of = 0;  // integers only; 0: no matter
};

inline constexpr int64_t kMaxMultiple = 4096;
inline constexpr size_t kMaxBoundDigits = 15;

// Adds the numbers in the bounds between two nodes. They have no exponent, at most 15 digits before
// the point where a bound is absent, and as many behind it as a double tells apart. Errors:
// kUnsupported where a bound has more digits than kMaxBoundDigits.
Result<> add_number(RuleBuilder& builder, NodeId from, const NumberBounds& bounds, NodeId to);

}  // namespace cedra::decode

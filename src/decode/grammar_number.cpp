#include "decode/grammar_number.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "decode/grammar_language.h"

namespace cedra::decode {
namespace {

// Compares whole numbers without leading zeros.
int compare(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

std::string plus_one(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  return "1" + digits;
}

// Of a number above zero.
std::string minus_one(std::string digits) {
  for (size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '0') {
      --digits[i];
      break;
    }
    digits[i] = '9';
  }
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

// A magnitude's end of a range.
struct Bound {
  std::string whole;
  std::string fraction;
  bool open = false;
};

// Digits between two strings of them of one length, or behind the point of any lengths.
class Writer {
 public:
  Writer() {
    nfa.start = node();
    nfa.end = node();
  }

  CharNfa nfa;

  int32_t node() { return nfa.nodes++; }
  void jump(int32_t from, int32_t to) { nfa.jumps.push_back({from, to, CharNfa::Guard::kNone}); }
  void chars(int32_t from, char low, char high, int32_t to) {
    if (low > high) return;
    nfa.edges.push_back({from, to, static_cast<int32_t>(nfa.sets.size())});
    nfa.sets.emplace_back(static_cast<char32_t>(low), static_cast<char32_t>(high));
  }

  // Whole numbers from a to b.
  void whole(int32_t from, const std::string& a, const std::string& b, int32_t to) {
    if (compare(a, b) > 0) return;
    for (size_t size = a.size(); size <= b.size(); ++size) {
      const std::string low = size == a.size() ? a : std::string(1, '1').append(size - 1, '0');
      const std::string high = size == b.size() ? b : std::string(size, '9');
      std::map<std::tuple<size_t, bool, bool>, int32_t> known;
      digits(from, low, high, 0, true, true, known, to);
    }
  }

  // What may follow the whole part: a point and digits, such that the fraction is in the bounds.
  void fraction(int32_t from, const Bound* low, const Bound* high, int most, int32_t to) {
    const auto ok = [&](size_t i, bool at_low, bool at_high) {
      if (at_low && (i < low->fraction.size() || low->open)) return false;
      return !(at_high && i >= high->fraction.size() && high->open);
    };
    if (ok(0, low != nullptr, high != nullptr)) jump(from, to);
    if (most == 0) return;
    std::map<std::tuple<size_t, bool, bool>, int32_t> known;
    const int32_t point = node();
    chars(from, '.', '.', point);
    known[{0, low != nullptr, high != nullptr}] = point;
    // In the order of i: every state is complete before it is looked at.
    for (auto it = known.begin(); it != known.end(); ++it) {
      const auto [i, at_low, at_high] = it->first;
      const int32_t at = it->second;
      if (i > 0 && ok(i, at_low, at_high)) jump(at, to);
      if (i == static_cast<size_t>(most)) continue;
      const char a = !at_low ? '0' : i < low->fraction.size() ? low->fraction[i] : '0';
      const char b = !at_high ? '9' : i < high->fraction.size() ? high->fraction[i] : '0';
      for (char d = a; d <= b; ++d) {
        const auto [next, fresh] =
            known.try_emplace({i + 1, at_low && d == a, at_high && d == b}, 0);
        if (fresh) next->second = node();
        chars(at, d, d, next->second);
      }
    }
  }

 private:
  int32_t digits(int32_t at, const std::string& low, const std::string& high, size_t i, bool at_low,
                 bool at_high, std::map<std::tuple<size_t, bool, bool>, int32_t>& known,
                 int32_t to) {
    if (i == low.size()) {
      jump(at, to);
      return at;
    }
    const char a = at_low ? low[i] : '0';
    const char b = at_high ? high[i] : '9';
    const auto go = [&](char first, char last, bool stays_low, bool stays_high) {
      if (first > last) return;
      const auto [next, fresh] = known.try_emplace({i + 1, stays_low, stays_high}, 0);
      if (fresh) next->second = node();
      const int32_t target = next->second;
      chars(at, first, last, target);
      if (fresh) digits(target, low, high, i + 1, stays_low, stays_high, known, to);
    };
    if (at_low && at_high && a == b) {
      go(a, a, true, true);
      return at;
    }
    char first = a;
    char last = b;
    if (at_low) {
      go(a, a, true, false);
      ++first;
    }
    if (at_high) {
      go(b, b, false, true);
      --last;
    }
    go(first, last, false, false);
    return at;
  }
};

// Magnitudes from `low` to `high`, whole numbers or decimals.
void add_magnitudes(Writer& out, int32_t from, const Bound& low, const Bound& high, bool integer,
                    int most, int32_t to) {
  if (integer) {
    // To the whole numbers inside.
    const bool up = !low.fraction.empty() || low.open;
    const bool down = high.fraction.empty() && high.open;
    if (down && high.whole == "0") return;
    out.whole(from, up ? plus_one(low.whole) : low.whole, down ? minus_one(high.whole) : high.whole,
              to);
    return;
  }
  const int order = compare(low.whole, high.whole);
  if (order > 0) return;
  const auto part = [&](const std::string& a, const std::string& b, const Bound* least,
                        const Bound* last) {
    const int32_t behind = out.node();
    out.whole(from, a, b, behind);
    out.fraction(behind, least, last, most, to);
  };
  if (order == 0) {
    part(low.whole, low.whole, &low, &high);
    return;
  }
  part(low.whole, low.whole, &low, nullptr);
  part(high.whole, high.whole, nullptr, &high);
  part(plus_one(low.whole), minus_one(high.whole), nullptr, nullptr);
}

CharDfa multiples(int64_t of) {
  // State 0: nothing yet; 1: a minus; 2 + r: the remainder r.
  CharDfa out;
  out.class_low = {0, '-', '-' + 1};
  for (char c = '0'; c <= '9' + 1; ++c) out.class_low.push_back(static_cast<char32_t>(c));
  const size_t classes = out.classes();
  for (int64_t state = 0; state < of + 2; ++state) {
    out.accepting.push_back(state == 2 ? 1 : 0);
    out.next.resize(out.next.size() + classes, CharDfa::kNone);
    int32_t* row = &out.next[static_cast<size_t>(state) * classes];
    if (state == 0) row[1] = 1;
    const int64_t remainder = state < 2 ? 0 : state - 2;
    for (int64_t d = 0; d < 10; ++d) {
      row[3 + d] = static_cast<int32_t>(2 + (remainder * 10 + d) % of);
    }
  }
  return out;
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view literal) {
  constexpr int kMost = 40;
  Decimal out;
  if (literal.starts_with('-')) {
    out.negative = true;
    literal.remove_prefix(1);
  }
  int exponent = 0;
  if (const size_t e = literal.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view text = literal.substr(e + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (failure != std::errc() || std::abs(exponent) > kMost) return std::nullopt;
    literal = literal.substr(0, e);
  }
  const size_t point = literal.find('.');
  out.whole = literal.substr(0, point);
  if (point != std::string_view::npos) out.fraction = literal.substr(point + 1);
  for (; exponent > 0; --exponent) {
    out.whole += out.fraction.empty() ? '0' : out.fraction[0];
    if (!out.fraction.empty()) out.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    out.fraction.insert(out.fraction.begin(), out.whole.back());
    out.whole.pop_back();
    if (out.whole.empty()) out.whole.push_back('0');
  }
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size() - 1));
  while (out.fraction.ends_with('0')) out.fraction.pop_back();
  if (out.whole.size() > kMost || out.fraction.size() > kMost) return std::nullopt;
  if (out.zero()) out.negative = false;
  return out;
}

Result<> add_number(RuleBuilder& builder, NodeId from, const NumberBounds& bounds, NodeId to) {
  size_t whole = 1;
  for (const auto& bound : {bounds.low, bounds.high}) {
    if (!bound) continue;
    if (bound->digits() > kMaxBoundDigits) {
      return err(Code::kUnsupported, "a bound of more than {} digits", kMaxBoundDigits);
    }
    whole = std::max(whole, bound->whole.size());
  }
  const int most = static_cast<int>(kMaxBoundDigits - whole);
  const Bound zero{"0", "", false};
  const Bound above_zero{"0", "", true};
  const Bound endless{std::string(kMaxBoundDigits, '9'), "", false};
  const auto magnitude = [](const Decimal& d, bool open) {
    return Bound{d.whole, d.fraction, open};
  };

  Writer out;
  const bool may_be_positive = !bounds.high || !bounds.high->negative;
  if (may_be_positive) {
    const bool from_zero = !bounds.low || bounds.low->negative;
    add_magnitudes(out, out.nfa.start, from_zero ? zero : magnitude(*bounds.low, bounds.low_open),
                   bounds.high ? magnitude(*bounds.high, bounds.high_open) : endless,
                   bounds.integer, most, out.nfa.end);
  }
  const bool may_be_negative = !bounds.low || bounds.low->negative;
  if (may_be_negative) {
    const int32_t minus = out.node();
    out.chars(out.nfa.start, '-', '-', minus);
    const bool to_zero = !bounds.high || !bounds.high->negative;
    add_magnitudes(out, minus, to_zero ? above_zero : magnitude(*bounds.high, bounds.high_open),
                   bounds.low ? magnitude(*bounds.low, bounds.low_open) : endless, bounds.integer,
                   most, out.nfa.end);
  }
  if (bounds.multiple_of <= 1) {
    add_language(builder, from, out.nfa, to, Spelling::kText);
    return {};
  }
  CEDRA_ASSIGN(const CharDfa all, determinize(out.nfa, builder));
  CEDRA_ASSIGN(const CharDfa some, intersect(all, multiples(bounds.multiple_of), builder));
  add_language(builder, from, some, to, Spelling::kText);
  return {};
}

}  // namespace cedra::decode

#include "decode/grammar_json.h"

#include <array>

namespace cedra::decode {

using text::JsonValue;

std::span<const std::string> markup_beginnings() {
  static const auto texts = std::to_array<std::string>(
      {"<\uff5cDSML", "</\uff5cDSML", "<|DSML", "</|DSML", "<think>", "</think>"});
  return texts;
}

void add_digits(RuleBuilder& builder, NodeId from, int least, int most, NodeId to) {
  for (int i = 0; i < most; ++i) {
    if (i >= least) builder.jump(from, to);
    const NodeId next = builder.node(from);
    builder.byte(from, '0', '9', next);
    from = next;
  }
  builder.jump(from, to);
}

NodeId JsonRules::call(NodeId from, std::optional<RuleId>& rule, void (JsonRules::*make)(RuleId)) {
  if (!rule) {
    rule = builder_->rule("JSON");
    (this->*make)(*rule);
  }
  return builder_->call(from, *rule);
}

NodeId JsonRules::value(NodeId from) { return call(from, value_, &JsonRules::make_value); }
NodeId JsonRules::object(NodeId from) { return call(from, object_, &JsonRules::make_object); }
NodeId JsonRules::array(NodeId from) { return call(from, array_, &JsonRules::make_array); }
NodeId JsonRules::number(NodeId from) { return call(from, number_, &JsonRules::make_number); }
NodeId JsonRules::integer(NodeId from) { return call(from, integer_, &JsonRules::make_integer); }
NodeId JsonRules::gap(NodeId from) { return call(from, gap_, &JsonRules::make_gap); }
NodeId JsonRules::string(NodeId from) {
  return call(builder_->literal(from, "\""), tail_, &JsonRules::make_tail);
}

NodeId JsonRules::string(NodeId from, int64_t low, int64_t high) {
  if (low <= 0 && high < 0) return string(from);
  const auto [known, fresh] = lengths_.emplace(std::pair(low, high), 0);
  if (fresh) {
    known->second = builder_->rule("a string's length");
    const RuleId rule = known->second;
    NodeId at = builder_->literal(builder_->start(rule), "\"");
    const int64_t most = high < 0 ? low : high;
    const NodeId end = builder_->end(rule);
    for (int64_t i = 0; i < most && !builder_->full(); ++i) {
      if (i >= low) builder_->byte(at, '"', '"', end);
      at = call(at, char_, &JsonRules::make_char);
    }
    if (high < 0) {
      builder_->jump(call(at, tail_, &JsonRules::make_tail), end);
    } else {
      builder_->byte(at, '"', '"', end);
    }
  }
  return builder_->call(from, known->second);
}

NodeId JsonRules::text(NodeId from, std::string_view utf8) {
  return builder_->literal(from, fmt::format("\"{}\"", spell(utf8, spelling_)));
}

NodeId JsonRules::colon(NodeId from) {
  const NodeId behind = builder_->literal(from, ":");
  const NodeId space = builder_->literal(behind, " ");
  builder_->jump(behind, space);
  return space;
}

NodeId JsonRules::key(NodeId from, std::string_view utf8) { return colon(text(from, utf8)); }

std::string JsonRules::spelled(const JsonValue& scalar) const {
  switch (scalar.kind()) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return scalar.as_bool() ? "true" : "false";
    case JsonValue::Kind::kNumber:
      return scalar.text();
    case JsonValue::Kind::kString:
      return fmt::format("\"{}\"", spell(scalar.text(), spelling_));
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      break;
  }
  return {};
}

NodeId JsonRules::exactly(NodeId from, const JsonValue& value) {
  if (!value.is_array() && !value.is_object()) return builder_->literal(from, spelled(value));
  NodeId at = builder_->literal(from, value.is_array() ? "[" : "{");
  bool first = true;
  const auto next = [&] {
    if (!first) at = builder_->literal(at, ",");
    first = false;
    at = gap(at);
  };
  for (const JsonValue& item : value.items()) {
    next();
    at = exactly(at, item);
  }
  for (const auto& [name, member] : value.members()) {
    next();
    at = exactly(key(at, name), member);
  }
  if (!first) at = gap(at);
  return builder_->literal(at, value.is_array() ? "]" : "}");
}

void JsonRules::make_value(RuleId rule) {
  const NodeId start = builder_->start(rule);
  const NodeId end = builder_->end(rule);
  for (const NodeId behind : {string(start), number(start), object(start), array(start)}) {
    builder_->jump(behind, end);
  }
  builder_->one_of(start, {"true", "false", "null"}, end);
}

template <class Item>
void JsonRules::make_list(RuleId rule, char open, char close, Item item) {
  const NodeId end = builder_->end(rule);
  const NodeId inside = gap(builder_->literal(builder_->start(rule), std::string(1, open)));
  const NodeId before = builder_->node(inside);
  builder_->jump(inside, before);
  const NodeId after = item(before);
  builder_->jump(gap(builder_->literal(after, ",")), before);
  const auto byte = static_cast<uint8_t>(close);
  builder_->byte(inside, byte, byte, end);
  builder_->byte(gap(after), byte, byte, end);
}

void JsonRules::make_object(RuleId rule) {
  make_list(rule, '{', '}', [&](NodeId from) { return value(colon(string(from))); });
}

void JsonRules::make_array(RuleId rule) {
  make_list(rule, '[', ']', [&](NodeId from) { return value(from); });
}

// Behind the opening quote. Surrogates come in pairs only.
void JsonRules::make_tail(RuleId rule) {
  CharSet special(0, 0x1F);
  special.add('"', '"');
  special.add('\\', '\\');
  const CharDfa plain = spelling_ == Spelling::kJsonMarkup ? CharDfa::avoiding(markup_beginnings())
                                                           : CharDfa::length(0, -1);
  std::vector<NodeId> states{builder_->start(rule)};
  for (size_t i = 1; i < plain.states(); ++i) states.push_back(builder_->node(states[0]));
  const NodeId escape = builder_->node(states[0]);
  for (size_t state = 0; state < plain.states(); ++state) {
    builder_->byte(states[state], '"', '"', builder_->end(rule));
    builder_->byte(states[state], '\\', '\\', escape);
    std::map<int32_t, CharSet> targets;
    for (size_t c = 0; c < plain.classes(); ++c) {
      const int32_t next = plain.next[state * plain.classes() + c];
      const char32_t high = c + 1 < plain.classes() ? plain.class_low[c + 1] - 1 : kLastChar;
      if (next != CharDfa::kNone) targets[next].add(plain.class_low[c], high);
    }
    for (const auto& [next, set] : targets) {
      add_chars(*builder_, states[state], set.without(special), states[static_cast<size_t>(next)],
                Spelling::kText);
    }
  }
  for (const char c : std::string_view("\"\\/bfnrt")) {
    builder_->byte(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), states[0]);
  }
  const auto hex = [&](NodeId from, std::string_view digits, NodeId to) {
    for (const char c : digits) {
      builder_->byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    }
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const auto any_hex = [&](NodeId from, int count) {
    for (int i = 0; i < count; ++i) {
      const NodeId next = builder_->node(from);
      hex(from, kHex, next);
      from = next;
    }
    return from;
  };
  const NodeId unicode = builder_->literal(escape, "u");
  const NodeId other = builder_->node(unicode);
  hex(unicode, "0123456789abcefABCEF", other);
  const NodeId d = builder_->node(unicode);
  hex(unicode, "dD", d);
  const NodeId two = any_hex(other, 1);
  hex(d, "01234567", two);
  builder_->jump(any_hex(two, 2), states[0]);
  const NodeId high = builder_->node(d);
  hex(d, "89abAB", high);
  const NodeId low = builder_->literal(any_hex(high, 2), "\\u");
  const NodeId low_d = builder_->node(low);
  hex(low, "dD", low_d);
  const NodeId low_c = builder_->node(low);
  hex(low_d, "cdefCDEF", low_c);
  builder_->jump(any_hex(low_c, 2), states[0]);
}

void JsonRules::make_char(RuleId rule) {
  add_chars(*builder_, builder_->start(rule), CharSet::all(), builder_->end(rule), spelling_);
}

void JsonRules::make_integer(RuleId rule) {
  const NodeId start = builder_->start(rule);
  const NodeId end = builder_->end(rule);
  const NodeId minus = builder_->literal(start, "-");
  const NodeId first = builder_->node(start);
  builder_->byte(start, '0', '0', end);
  builder_->byte(start, '1', '9', first);
  builder_->byte(minus, '1', '9', first);
  add_digits(*builder_, first, 0, 17, end);
}

void JsonRules::make_number(RuleId rule) {
  const NodeId start = builder_->start(rule);
  const NodeId end = builder_->end(rule);
  const NodeId signless = builder_->node(start);
  builder_->jump(start, signless);
  builder_->byte(start, '-', '-', signless);
  const NodeId whole = builder_->node(start);
  const NodeId first = builder_->node(start);
  builder_->byte(signless, '0', '0', whole);
  builder_->byte(signless, '1', '9', first);
  add_digits(*builder_, first, 0, 17, whole);
  const NodeId fraction = builder_->node(start);
  add_digits(*builder_, builder_->literal(whole, "."), 1, 18, fraction);
  builder_->jump(whole, fraction);
  const NodeId exponent = builder_->node(start);
  builder_->byte(fraction, 'e', 'e', exponent);
  builder_->byte(fraction, 'E', 'E', exponent);
  const NodeId signed_exponent = builder_->node(start);
  builder_->jump(exponent, signed_exponent);
  builder_->byte(exponent, '+', '+', signed_exponent);
  builder_->byte(exponent, '-', '-', signed_exponent);
  add_digits(*builder_, signed_exponent, 1, 2, end);
  builder_->jump(fraction, end);
}

void JsonRules::make_gap(RuleId rule) {
  const NodeId start = builder_->start(rule);
  const NodeId end = builder_->end(rule);
  builder_->jump(start, end);
  builder_->byte(start, ' ', ' ', end);
  NodeId at = builder_->literal(start, "\n");
  for (int i = 0; i < kMaxIndent; ++i) {
    builder_->jump(at, end);
    const NodeId next = builder_->node(at);
    builder_->byte(at, ' ', ' ', next);
    builder_->byte(at, '\t', '\t', next);
    at = next;
  }
  builder_->jump(at, end);
}

}  // namespace cedra::decode

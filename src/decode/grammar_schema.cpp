#include "decode/grammar_schema.h"

#include <algorithm>

#include "decode/grammar_number.h"
#include "decode/grammar_regex.h"

namespace cedra::decode {

using text::JsonValue;

namespace {

constexpr int64_t kMaxCount = 16384;  // of minLength, maxItems and so on

}  // namespace

std::unexpected<Error> SchemaCompiler::unsupported(const std::string& path,
                                                   std::string_view keyword,
                                                   std::string_view why) const {
  return err(Code::kUnsupported, "{}: the keyword \"{}\" at {} is not supported{}{}", where_,
             keyword.substr(0, 100), path.substr(0, 400), why.empty() ? "" : ": ", why);
}

std::unexpected<Error> SchemaCompiler::invalid(const std::string& path, std::string_view keyword,
                                               std::string_view what) const {
  return err(Code::kInvalid, "{}: \"{}\" at {} {}", where_, keyword.substr(0, 100),
             path.substr(0, 400), what);
}

Result<> SchemaCompiler::spend(size_t a, size_t b, const std::string& path) {
  const size_t steps = std::min<size_t>(a, size_t{1} << 31) * std::min<size_t>(b, size_t{1} << 31);
  if (builder().spend(static_cast<int64_t>(std::min<size_t>(steps, size_t{1} << 40)))) return {};
  return err(Code::kTooLarge, "{}: takes too long to compile, at {}; make it smaller", where_,
             path.substr(0, 400));
}

std::unexpected<Error> SchemaCompiler::too_deep(const std::string& path) const {
  return err(Code::kTooLarge, "{}: more than {} schemas inside each other at {}", where_,
             kMaxSchemaDepth, path.substr(0, 400));
}

Result<std::optional<int64_t>> SchemaCompiler::count(const JsonValue& schema,
                                                     const std::string& path,
                                                     std::string_view keyword) const {
  const JsonValue* value = schema.find(keyword);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = value->as_double();
  if (!number || *number < 0 ||
      *number != static_cast<double>(static_cast<int64_t>(std::min(*number, 1e15)))) {
    return invalid(path, keyword, "must be a whole number from 0");
  }
  if (*number > static_cast<double>(kMaxCount)) {
    return unsupported(path, keyword, fmt::format("above {}", kMaxCount));
  }
  return static_cast<int64_t>(*number);
}

Result<RuleId> SchemaCompiler::rule_of(const JsonValue& schema, const std::string& path,
                                       Form form) {
  const auto [known, fresh] = rules_.emplace(std::pair(&schema, form), 0);
  if (!fresh) return known->second;
  const RuleId rule =
      builder().rule(fmt::format("{}: the schema at {}", where_, path.substr(0, 400)));
  known->second = rule;
  CEDRA_ASSIGN(const NodeId end, value(schema, path, builder().start(rule), form));
  builder().jump(end, builder().end(rule));
  return rule;
}

Result<NodeId> SchemaCompiler::member(const JsonValue* schema, const std::string& path, NodeId from,
                                      Form form) {
  return schema == nullptr ? any(from, form) : value(*schema, path, from, form);
}

Result<NodeId> SchemaCompiler::value(const JsonValue& schema, const std::string& path, NodeId from,
                                     Form form) {
  const Deeper deeper(depth_);
  if (depth_ > kMaxSchemaDepth) return too_deep(path);
  if (builder().full()) return from;  // an error in the end
  if (schema.is_bool()) return schema.as_bool() ? any(from, form) : builder().node(from);
  if (!schema.is_object()) {
    return invalid(path, "schema",
                   fmt::format("must be an object or a boolean, got {}", schema.kind_name()));
  }
  CEDRA_TRY(check_keywords(schema, path));
  if (schema.find("$ref") != nullptr || schema.find("allOf") != nullptr) {
    CEDRA_ASSIGN(const JsonValue* flat, flatten(schema, path));
    CEDRA_ASSIGN(const RuleId rule, rule_of(*flat, path, form));
    return builder().call(from, rule);
  }
  const bool any_of = schema.find("anyOf") != nullptr;
  const bool one_of = schema.find("oneOf") != nullptr;
  if (any_of && one_of) return unsupported(path, "oneOf", "beside anyOf");
  if (any_of || one_of) return alternatives(schema, path, any_of ? "anyOf" : "oneOf", from, form);
  if (schema.find("enum") != nullptr || schema.find("const") != nullptr) {
    return listed(schema, path, from, form);
  }
  return plain(schema, path, from, form);
}

Result<NodeId> SchemaCompiler::any(NodeId from, Form form) {
  if (form.raw) return raw_string({}, "#", from);
  if (form.types == kAnyType) return json_->value(from);
  static const JsonValue kEmpty = JsonValue::object({});
  return plain(kEmpty, "#", from, form);
}

Result<NodeId> SchemaCompiler::plain(const JsonValue& schema, const std::string& path, NodeId from,
                                     Form form) {
  CEDRA_ASSIGN(JsonTypes types, types_of(schema, path));
  if (types == kAnyType && form.types == kAnyType && !form.raw) return json_->value(from);
  types &= form.types;
  const NodeId to = builder().node(from);
  if (form.raw) {
    if ((types & kStringType) == 0) return to;
    return string(schema, path, from, true);
  }
  if ((types & kNullType) != 0) builder().jump(builder().literal(from, "null"), to);
  if ((types & kBooleanType) != 0) builder().one_of(from, {"true", "false"}, to);
  if ((types & kNumberType) != 0) {
    CEDRA_ASSIGN(const NodeId end, number(schema, path, from, types));
    builder().jump(end, to);
  }
  if ((types & kStringType) != 0) {
    CEDRA_ASSIGN(const NodeId end, string(schema, path, from, false));
    builder().jump(end, to);
  }
  if ((types & kArrayType) != 0) {
    CEDRA_ASSIGN(const NodeId end, array(schema, path, from));
    builder().jump(end, to);
  }
  if ((types & kObjectType) != 0) {
    CEDRA_ASSIGN(const NodeId end, object(schema, path, from));
    builder().jump(end, to);
  }
  return to;
}

Result<NodeId> SchemaCompiler::alternatives(const JsonValue& schema, const std::string& path,
                                            const std::string& keyword, NodeId from, Form form) {
  const JsonValue* list = schema.find(keyword);
  if (!list->is_array() || list->items().empty()) {
    return invalid(path, keyword, "must be a list with at least one schema");
  }
  JsonValue rest = JsonValue::object({});
  for (const auto& [name, value] : schema.members()) {
    if (name != keyword) rest.members().emplace_back(name, value);
  }
  CEDRA_ASSIGN(rest, merge(JsonValue::object({}), rest, path));  // without annotations
  const std::string below = schema_path(path, keyword);
  const NodeId to = builder().node(from);
  std::vector<const JsonValue*> branches;
  for (size_t i = 0; i < list->items().size(); ++i) {
    const std::string at = schema_path(below, std::to_string(i));
    const JsonValue* branch = &list->items()[i];
    if (!rest.members().empty()) {
      CEDRA_ASSIGN(branch, flatten(*branch, at));
      CEDRA_ASSIGN(JsonValue both, merge(rest, *branch, at));
      merged_.push_back(std::move(both));
      branch = &merged_.back();
    }
    for (size_t k = 0; keyword == "oneOf" && k < branches.size(); ++k) {
      CEDRA_TRY(spend(64, 1, at));
      CEDRA_ASSIGN(const bool apart, exclusive(*branches[k], *branch, at, 0));
      if (apart) continue;
      return unsupported(path, keyword,
                         fmt::format("a value might match both {} and {}; use anyOf, or give them "
                                     "different types or a property with different const values "
                                     "that both require",
                                     k, i));
    }
    branches.push_back(branch);
    CEDRA_ASSIGN(const NodeId end, value(*branch, at, from, form));
    builder().jump(end, to);
  }
  return to;
}

// enum and const.
Result<NodeId> SchemaCompiler::listed(const JsonValue& schema, const std::string& path, NodeId from,
                                      Form form) {
  for (const auto& [keyword, value] : schema.members()) {
    if (keyword == "enum" || keyword == "const" || keyword == "type") continue;
    JsonValue one = JsonValue::object({});
    one.members().emplace_back(keyword, value);
    CEDRA_ASSIGN(const JsonValue bare, merge(JsonValue::object({}), one, path));
    if (!bare.members().empty()) return unsupported(path, keyword, "beside enum or const");
  }
  JsonTypes types = kAnyType;
  if (schema.find("type") != nullptr) {
    CEDRA_ASSIGN(types, types_of(schema, path));
  }
  types &= form.types;
  std::vector<const JsonValue*> values;
  const JsonValue* list = schema.find("enum");
  const JsonValue* only = schema.find("const");
  if (list != nullptr && (!list->is_array() || list->items().empty())) {
    return invalid(path, "enum", "must be a list with at least one value");
  }
  if (list != nullptr && only != nullptr) return unsupported(path, "const", "beside enum");
  if (only != nullptr) values.push_back(only);
  for (size_t i = 0; list != nullptr && i < list->items().size(); ++i) {
    values.push_back(&list->items()[i]);
  }
  const NodeId to = builder().node(from);
  std::vector<std::string> scalars;
  for (const JsonValue* value : values) {
    JsonTypes type = 0;
    if (value->is_null()) type = kNullType;
    if (value->is_bool()) type = kBooleanType;
    if (value->is_string()) type = kStringType;
    if (value->is_array()) type = kArrayType;
    if (value->is_object()) type = kObjectType;
    if (value->is_number()) {
      const std::optional<Decimal> number = Decimal::parse(value->text());
      type = number && number->fraction.empty() ? kIntegerType : kFractionType;
    }
    if ((type & types) == 0) continue;
    if (form.raw) {
      for (const std::string& markup : markup_beginnings()) {
        if (value->text().find(markup) != std::string::npos) {
          return unsupported(path, list != nullptr ? "enum" : "const",
                             "with a value that looks like the markup of a tool call");
        }
      }
      scalars.push_back(value->text());
    } else if (value->is_array() || value->is_object()) {
      builder().jump(json_->exactly(from, *value), to);
    } else {
      scalars.push_back(json_->spelled(*value));
    }
  }
  builder().one_of(from, std::move(scalars), to);
  return to;
}

Result<NodeId> SchemaCompiler::number(const JsonValue& schema, const std::string& path, NodeId from,
                                      JsonTypes types) {
  NumberBounds bounds;
  bounds.integer = (types & kFractionType) == 0;
  bool bounded = false;
  const auto read = [&](const char* keyword, bool low, bool open) -> Result<> {
    const JsonValue* value = schema.find(keyword);
    if (value == nullptr) return {};
    if (!value->is_number()) return invalid(path, keyword, "must be a number");
    const std::optional<Decimal> bound = Decimal::parse(value->text());
    if (!bound || bound->digits() > kMaxBoundDigits) {
      return unsupported(path, keyword, fmt::format("with more than {} digits", kMaxBoundDigits));
    }
    std::optional<Decimal>& mine = low ? bounds.low : bounds.high;
    bool& mine_open = low ? bounds.low_open : bounds.high_open;
    bounded = true;
    if (mine) {
      // Of minimum and exclusiveMinimum the tighter one counts.
      const JsonValue* other = schema.find(low ? "minimum" : "maximum");
      const double a = *other->as_double();
      const double b = *value->as_double();
      if (low ? b < a : b > a) return {};
    }
    mine = *bound;
    mine_open = open;
    return {};
  };
  CEDRA_TRY(read("minimum", true, false));
  CEDRA_TRY(read("exclusiveMinimum", true, true));
  CEDRA_TRY(read("maximum", false, false));
  CEDRA_TRY(read("exclusiveMaximum", false, true));
  if (const JsonValue* multiple = schema.find("multipleOf")) {
    const std::optional<Decimal> of =
        multiple->is_number() ? Decimal::parse(multiple->text()) : std::nullopt;
    if (!of || of->negative || of->zero())
      return invalid(path, "multipleOf", "must be a number above 0");
    if (!of->fraction.empty() || of->whole.size() > 4 || std::stoll(of->whole) > kMaxMultiple) {
      return unsupported(path, "multipleOf",
                         fmt::format("unless whole and at most {}", kMaxMultiple));
    }
    bounds.multiple_of = std::stoll(of->whole);
    bounds.integer = bounded = true;
  }
  // Formats of numbers.
  if (const JsonValue* format = schema.find("format"); format != nullptr && format->is_string()) {
    const std::string& name = format->text();
    if (name == "int32" && bounds.integer) {
      if (!bounds.low) bounds.low = Decimal::parse("-2147483648");
      if (!bounds.high) bounds.high = Decimal::parse("2147483647");
      bounded = true;
    } else if (!(name == "int64" && bounds.integer) && name != "double" && name != "float" &&
               !format_pattern(name)) {
      return unsupported(path, "format",
                         fmt::format("for numbers with \"{}\"", name.substr(0, 40)));
    }
    if (name == "float") bounded = true;  // no exponents
  }
  if (!bounded) return bounds.integer ? json_->integer(from) : json_->number(from);
  const NodeId to = builder().node(from);
  const Result<> added = add_number(builder(), from, bounds, to);
  if (!added) return unsupported(path, "multipleOf", added.error().message);
  return to;
}

Result<NodeId> SchemaCompiler::array(const JsonValue& schema, const std::string& path,
                                     NodeId from) {
  const JsonValue* items = schema.find("items");
  const JsonValue* prefix = schema.find("prefixItems");
  CEDRA_ASSIGN(const std::optional<int64_t> least, count(schema, path, "minItems"));
  CEDRA_ASSIGN(const std::optional<int64_t> most, count(schema, path, "maxItems"));
  if (const JsonValue* unique = schema.find("uniqueItems");
      unique != nullptr && (!unique->is_bool() || unique->as_bool())) {
    return unsupported(path, "uniqueItems");
  }
  if (items != nullptr && items->is_array()) {
    return unsupported(path, "items", "as a list; that is prefixItems");
  }
  if (prefix != nullptr && (!prefix->is_array() || prefix->items().empty())) {
    return invalid(path, "prefixItems", "must be a list with at least one schema");
  }
  if (items == nullptr && prefix == nullptr && !least && !most) return json_->array(from);

  const int64_t fixed = prefix == nullptr ? 0 : static_cast<int64_t>(prefix->items().size());
  const bool more = items != nullptr ? !(items->is_bool() && !items->as_bool()) : prefix == nullptr;
  const int64_t low = least.value_or(0);
  // At most so many; -1: any number.
  const int64_t high = !more ? std::min(fixed, most.value_or(fixed)) : most.value_or(-1);
  RuleBuilder& out = builder();
  const std::string below = schema_path(path, "items");
  std::optional<RuleId> item_rule;
  const auto item = [&](int64_t index, NodeId at) -> Result<NodeId> {
    if (index < fixed) {
      const auto i = static_cast<size_t>(index);
      return value(prefix->items()[i],
                   schema_path(schema_path(path, "prefixItems"), std::to_string(i)), at, {});
    }
    if (!item_rule) {
      item_rule = out.rule(fmt::format("{}: the schema at {}", where_, below));
      CEDRA_ASSIGN(const NodeId end, member(items, below, out.start(*item_rule), {}));
      out.jump(end, out.end(*item_rule));
    }
    return out.call(at, *item_rule);
  };

  const NodeId to = out.node(from);
  const NodeId inside = json_->gap(out.literal(from, "["));
  if (low == 0) out.byte(inside, ']', ']', to);
  NodeId before = out.node(inside);
  out.jump(inside, before);
  // As many different places as there are different items and counts; then around the last.
  const int64_t places = high >= 0 ? high : std::max<int64_t>({fixed + 1, low, 1});
  for (int64_t i = 0; i < places && !out.full(); ++i) {
    CEDRA_ASSIGN(const NodeId after, item(i, before));
    if (i + 1 >= low) out.byte(json_->gap(after), ']', ']', to);
    const NodeId comma = json_->gap(out.literal(after, ","));
    if (i + 1 < places) {
      before = comma;
    } else if (high < 0) {
      out.jump(comma, before);
    }
  }
  return to;
}

Result<NodeId> SchemaCompiler::object(const JsonValue& schema, const std::string& path,
                                      NodeId from) {
  CEDRA_ASSIGN(const Object rules, read_object(schema, path));
  RuleBuilder& out = builder();
  const size_t size = rules.properties.size();
  if (size == 0 && rules.extras.empty() && !rules.not_empty) {
    return out.literal(json_->gap(out.literal(from, "{")), "}");
  }
  const NodeId to = out.node(from);
  // Before each property: with nothing written yet, or behind a member.
  NodeId first = json_->gap(out.literal(from, "{"));
  NodeId rest = out.node(first);
  for (const Property& property : rules.properties) {
    const NodeId key = out.node(first);
    out.jump(first, key);
    out.jump(json_->gap(out.literal(rest, ",")), key);
    CEDRA_ASSIGN(const NodeId after,
                 member(property.schema, property.path, json_->key(key, property.name), {}));
    const NodeId next_first = out.node(first);
    const NodeId next_rest = out.node(first);
    out.jump(after, next_rest);
    if (!property.required) {
      out.jump(first, next_first);
      out.jump(rest, next_rest);
    }
    first = next_first;
    rest = next_rest;
  }
  if (!rules.not_empty) out.byte(first, '}', '}', to);
  // Any others, each kind of them in a rule, since they may come often.
  std::vector<RuleId> kinds;
  for (const Extra& extra : rules.extras) {
    const RuleId rule = out.rule(fmt::format("{}: the schema at {}", where_, extra.path));
    const NodeId name = out.literal(out.start(rule), "\"");
    const NodeId named = out.node(name);
    add_language(out, name, extra.names, named, json_->spelling());
    CEDRA_ASSIGN(const NodeId end,
                 member(extra.schema, extra.path, json_->colon(out.literal(named, "\"")), {}));
    out.jump(end, out.end(rule));
    kinds.push_back(rule);
  }
  const int64_t most = kinds.empty() ? 0 : rules.most_extras;
  for (int64_t i = 0; (most < 0 ? i < 1 : i < most) && !out.full(); ++i) {
    const NodeId name = out.node(first);
    out.jump(json_->gap(out.literal(rest, ",")), name);
    if (i == 0) out.jump(first, name);
    const NodeId after = most < 0 ? rest : out.node(first);
    for (const RuleId rule : kinds) out.call(name, rule, after);
    if (most >= 0) out.byte(json_->gap(rest), '}', '}', to);
    rest = after;
  }
  out.byte(json_->gap(rest), '}', '}', to);
  return to;
}

}  // namespace cedra::decode

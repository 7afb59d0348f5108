// References, allOf and what stands beside them, put into one schema.
#include <algorithm>

#include "decode/grammar_number.h"
#include "decode/grammar_schema.h"

namespace cedra::decode {

using text::JsonValue;

namespace {

bool is_annotation(std::string_view keyword) {
  constexpr std::string_view kNames[] = {
      "title",     "description", "default", "examples", "example", "deprecated", "readOnly",
      "writeOnly", "$comment",    "$schema", "$id",      "$defs",   "definitions"};
  return std::ranges::find(kNames, keyword) != std::end(kNames) || keyword.starts_with("x-");
}

bool same(const JsonValue& a, const JsonValue& b) {
  return text::python_json(a) == text::python_json(b);
}

std::vector<JsonValue> as_list(const JsonValue& value) {
  return value.is_array() ? value.items() : std::vector<JsonValue>{value};
}

int64_t values_of(const JsonValue& value) {
  int64_t out = 1;
  for (const JsonValue& item : value.items()) out += values_of(item);
  for (const auto& [name, member] : value.members()) out += values_of(member);
  return out;
}

std::string unescape_pointer(std::string_view step) {
  std::string out;
  const auto hex = [](char c) {
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
  };
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '%' && i + 2 < step.size() && hex(step[i + 1]) >= 0 && hex(step[i + 2]) >= 0) {
      out += static_cast<char>(hex(step[i + 1]) * 16 + hex(step[i + 2]));
      i += 2;
    } else {
      out += step[i];
    }
  }
  std::string plain;
  for (size_t i = 0; i < out.size(); ++i) {
    const bool tilde =
        out[i] == '~' && i + 1 < out.size() && (out[i + 1] == '0' || out[i + 1] == '1');
    if (tilde) ++i;
    plain += tilde ? (out[i] == '0' ? '~' : '/') : out[i];
  }
  return plain;
}

}  // namespace

std::string schema_path(const std::string& path, std::string_view step) {
  std::string out = path + "/";
  for (const char c : step) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

Result<const JsonValue*> SchemaCompiler::resolve(const std::string& reference,
                                                 const std::string& path) {
  std::string_view rest = reference;
  if (!rest.starts_with('#') || (rest.size() > 1 && rest[1] != '/')) {
    return unsupported(path, "$ref",
                       "only references inside the schema, such as \"#/$defs/NAME\", are followed");
  }
  rest.remove_prefix(1);
  const JsonValue* at = root_;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string step = unescape_pointer(rest.substr(0, end));
    rest.remove_prefix(end);
    CEDRA_TRY(spend(at->members().size(), 1, path));
    const JsonValue* next = at->find(step);
    if (next == nullptr && at->is_array()) {
      size_t index = 0;
      bool digits = !step.empty() && step.size() < 9;
      for (const char c : step) {
        digits = digits && c >= '0' && c <= '9';
        index = index * 10 + static_cast<size_t>(c - '0');
      }
      if (digits && index < at->items().size()) next = &at->items()[index];
    }
    if (next == nullptr) {
      return invalid(path, "$ref", fmt::format("\"{}\" leads nowhere", reference.substr(0, 200)));
    }
    at = next;
  }
  return at;
}

Result<const JsonValue*> SchemaCompiler::flatten(const JsonValue& schema, const std::string& path) {
  if (!schema.is_object()) return &schema;
  const JsonValue* reference = schema.find("$ref");
  const JsonValue* all_of = schema.find("allOf");
  if (reference == nullptr && all_of == nullptr) return &schema;
  if (const auto known = flat_.find(&schema); known != flat_.end()) {
    if (known->second == nullptr) return invalid(path, "$ref", "refers to itself");
    return known->second;
  }
  const Deeper deeper(depth_);
  if (depth_ > kMaxSchemaDepth) return too_deep(path);
  flat_[&schema] = nullptr;

  JsonValue rest = JsonValue::object({});
  bool asserts = false;
  for (const auto& [keyword, value] : schema.members()) {
    if (keyword == "$ref" || keyword == "allOf" || is_annotation(keyword)) continue;
    rest.members().emplace_back(keyword, value);
    asserts = true;
  }
  std::vector<const JsonValue*> parts;
  if (reference != nullptr) {
    if (!reference->is_string()) return invalid(path, "$ref", "must be a string");
    CEDRA_ASSIGN(const JsonValue* target, resolve(reference->text(), path));
    CEDRA_ASSIGN(target, flatten(*target, path));
    parts.push_back(target);
  }
  if (all_of != nullptr) {
    if (!all_of->is_array() || all_of->items().empty()) {
      return invalid(path, "allOf", "must be a list with at least one schema");
    }
    const std::string list = schema_path(path, "allOf");
    for (size_t i = 0; i < all_of->items().size(); ++i) {
      CEDRA_ASSIGN(const JsonValue* part,
                   flatten(all_of->items()[i], schema_path(list, std::to_string(i))));
      parts.push_back(part);
    }
  }
  const JsonValue* out = parts.front();
  if (asserts || parts.size() > 1) {
    JsonValue merged = std::move(rest);
    for (const JsonValue* part : parts) {
      CEDRA_ASSIGN(merged, merge(merged, *part, path));
    }
    merged_.push_back(std::move(merged));
    out = &merged_.back();
    CEDRA_ASSIGN(out, flatten(*out, path));
  }
  flat_[&schema] = out;
  return out;
}

// A schema whose values are valid under both. What cannot be put into one schema is an error.
Result<JsonValue> SchemaCompiler::merge(const JsonValue& a, const JsonValue& b,
                                        const std::string& path) {
  for (const JsonValue* side : {&a, &b}) {
    if (!side->is_bool() && !side->is_object()) {
      return invalid(path, "schema", "must be an object or a boolean");
    }
  }
  if (a.is_bool()) return a.as_bool() ? b : a;
  if (b.is_bool()) return b.as_bool() ? a : b;
  merged_values_ += values_of(a) + values_of(b);
  if (merged_values_ > kMaxMergedValues) {
    return err(
        Code::kTooLarge,
        "{}: allOf, anyOf and $ref with keywords beside them make more than {} values, at {}",
        where_, kMaxMergedValues, path.substr(0, 400));
  }
  // A closed object knows only its own properties.
  const auto closed_against = [](const JsonValue& closed, const JsonValue& other) {
    const JsonValue* extra = closed.find("additionalProperties");
    const JsonValue* theirs = other.find("properties");
    if (extra == nullptr || theirs == nullptr || (extra->is_bool() && extra->as_bool())) {
      return false;
    }
    const JsonValue* own = closed.find("properties");
    return std::ranges::any_of(theirs->members(), [&](const auto& member) {
      return own == nullptr || own->find(member.first) == nullptr;
    });
  };
  const auto listed = [](const JsonValue& side) {
    const JsonValue* properties = side.find("properties");
    return properties == nullptr ? 0 : properties->members().size();
  };
  CEDRA_TRY(spend(listed(a), listed(b), path));
  if (closed_against(a, b) || closed_against(b, a)) {
    return unsupported(path, "additionalProperties",
                       "it cannot be combined with properties from another part of allOf, $ref or "
                       "anyOf; list the properties in one schema");
  }
  JsonValue out = a;
  for (const auto& [keyword, value] : b.members()) {
    if (is_annotation(keyword)) continue;
    CEDRA_TRY(merge_keyword(out, keyword, value, path));
    if (out.is_bool()) break;
  }
  return out;
}

Result<> SchemaCompiler::merge_keyword(JsonValue& a, const std::string& keyword,
                                       const JsonValue& value, const std::string& path) {
  JsonValue* mine = a.find(keyword);
  if (mine == nullptr) {
    a.members().emplace_back(keyword, value);
    return {};
  }
  if (same(*mine, value)) return {};
  if (keyword == "type") {
    std::vector<JsonValue> both;
    for (const JsonValue& type : as_list(*mine)) {
      for (const JsonValue& other : as_list(value)) {
        if (!type.is_string() || !other.is_string()) continue;
        const bool narrows = type.text() == "number" && other.text() == "integer";
        const bool narrowed = type.text() == "integer" && other.text() == "number";
        if (type.text() == other.text() || narrowed) both.push_back(type);
        if (narrows) both.push_back(other);
      }
    }
    if (both.empty()) {
      a = JsonValue::boolean(false);
    } else {
      *mine = JsonValue::array(std::move(both));
    }
    return {};
  }
  if (mine->is_array() && value.is_array()) {
    CEDRA_TRY(spend(mine->items().size() * 64, value.items().size(), path));
  }
  if (keyword == "required" && mine->is_array() && value.is_array()) {
    for (const JsonValue& name : value.items()) {
      const bool known =
          std::ranges::any_of(mine->items(), [&](const auto& n) { return same(n, name); });
      if (!known) mine->items().push_back(name);
    }
    return {};
  }
  if (keyword == "enum" && mine->is_array() && value.is_array()) {
    std::erase_if(mine->items(), [&](const JsonValue& item) {
      return std::ranges::none_of(value.items(), [&](const auto& v) { return same(v, item); });
    });
    if (mine->items().empty()) a = JsonValue::boolean(false);
    return {};
  }
  if (keyword == "properties" && mine->is_object() && value.is_object()) {
    for (const auto& [name, schema] : value.members()) {
      if (JsonValue* known = mine->find(name)) {
        *known = JsonValue::object({{"allOf", JsonValue::array({*known, schema})}});
      } else {
        mine->members().emplace_back(name, schema);
      }
    }
    return {};
  }
  const bool least = keyword == "minimum" || keyword == "minLength" || keyword == "minItems" ||
                     keyword == "minProperties" || keyword == "exclusiveMinimum";
  const bool most = keyword == "maximum" || keyword == "maxLength" || keyword == "maxItems" ||
                    keyword == "maxProperties" || keyword == "exclusiveMaximum";
  if ((least || most) && mine->is_number() && value.is_number()) {
    const double x = *mine->as_double();
    const double y = *value.as_double();
    if (least ? y > x : y < x) *mine = value;
    return {};
  }
  if (keyword == "items") {
    *mine = JsonValue::object({{"allOf", JsonValue::array({*mine, value})}});
    return {};
  }
  return unsupported(path, keyword, "two of them meet here, through allOf, $ref or anyOf");
}

Result<bool> SchemaCompiler::exclusive(const JsonValue& first, const JsonValue& second,
                                       const std::string& path, int depth) {
  CEDRA_ASSIGN(const JsonValue* a, flatten(first, path));
  CEDRA_ASSIGN(const JsonValue* b, flatten(second, path));
  if (a->is_bool() || b->is_bool() || depth > 8) {
    return (a->is_bool() && !a->as_bool()) || (b->is_bool() && !b->as_bool());
  }
  CEDRA_ASSIGN(const JsonTypes a_types, types_of(*a, path));
  CEDRA_ASSIGN(const JsonTypes b_types, types_of(*b, path));
  // Where a type is not demanded, any other passes: what is generated for one side must be looked
  // at by what the other side demands.
  const auto demanded = [](const JsonValue& schema, JsonTypes types) {
    const bool says = schema.find("type") != nullptr || schema.find("enum") != nullptr ||
                      schema.find("const") != nullptr;
    return says ? types : kAnyType;
  };
  if ((a_types & demanded(*b, b_types)) == 0 && (b_types & demanded(*a, a_types)) == 0) return true;
  const auto values = [](const JsonValue& schema) {
    std::vector<JsonValue> out;
    if (const JsonValue* only = schema.find("const")) out.push_back(*only);
    if (const JsonValue* list = schema.find("enum")) {
      out.insert(out.end(), list->items().begin(), list->items().end());
    }
    return out;
  };
  const std::vector<JsonValue> a_values = values(*a);
  const std::vector<JsonValue> b_values = values(*b);
  if (!a_values.empty() && !b_values.empty()) {
    CEDRA_TRY(spend(a_values.size() * 64, b_values.size(), path));
    return std::ranges::none_of(a_values, [&](const JsonValue& x) {
      return std::ranges::any_of(b_values, [&](const JsonValue& y) {
        if (x.is_number() && y.is_number()) return x.as_double() == y.as_double();
        return x.kind() == y.kind() && (x.is_array() || x.is_object() || same(x, y));
      });
    });
  }
  // A property that both demand and whose values exclude each other.
  const auto requires_name = [](const JsonValue& schema, const std::string& name) {
    const JsonValue* names = schema.find("required");
    return names != nullptr && std::ranges::any_of(names->items(), [&](const JsonValue& n) {
             return n.is_string() && n.text() == name;
           });
  };
  const JsonValue* a_properties = a->find("properties");
  const JsonValue* b_properties = b->find("properties");
  const JsonTypes common = a_types & b_types;
  if ((common & ~kObjectType) != 0 || demanded(*a, a_types) == kAnyType ||
      demanded(*b, b_types) == kAnyType || a_properties == nullptr || b_properties == nullptr) {
    return false;
  }
  CEDRA_TRY(spend(a_properties->members().size() * 4, b_properties->members().size(), path));
  for (const auto& [name, schema] : a_properties->members()) {
    const JsonValue* other = b_properties->find(name);
    if (other == nullptr || !requires_name(*a, name) || !requires_name(*b, name)) continue;
    CEDRA_ASSIGN(const bool apart, exclusive(schema, *other, path, depth + 1));
    if (apart) return true;
  }
  return false;
}

// What a schema says about types; without "type", those that its keywords speak of.
Result<JsonTypes> SchemaCompiler::types_of(const JsonValue& schema, const std::string& path) const {
  const auto named = [](const std::string& name) -> JsonTypes {
    if (name == "null") return kNullType;
    if (name == "boolean") return kBooleanType;
    if (name == "integer") return kIntegerType;
    if (name == "number") return kNumberType;
    if (name == "string") return kStringType;
    if (name == "array") return kArrayType;
    if (name == "object") return kObjectType;
    return 0;
  };
  if (schema.is_bool()) return kAnyType;
  if (const JsonValue* type = schema.find("type")) {
    JsonTypes out = 0;
    for (const JsonValue& name : as_list(*type)) {
      const JsonTypes one = name.is_string() ? named(name.text()) : 0;
      if (one == 0) {
        return invalid(path, "type",
                       "expected null, boolean, integer, number, string, array, object or a list "
                       "of them");
      }
      out |= one;
    }
    return out;
  }
  const auto kind_of = [](const JsonValue& value) -> JsonTypes {
    switch (value.kind()) {
      case JsonValue::Kind::kNull:
        return kNullType;
      case JsonValue::Kind::kBool:
        return kBooleanType;
      case JsonValue::Kind::kNumber:
        return kNumberType;
      case JsonValue::Kind::kString:
        return kStringType;
      case JsonValue::Kind::kArray:
        return kArrayType;
      case JsonValue::Kind::kObject:
        return kObjectType;
    }
    return kAnyType;
  };
  JsonTypes out = 0;
  if (const JsonValue* only = schema.find("const")) out |= kind_of(*only);
  if (const JsonValue* list = schema.find("enum")) {
    for (const JsonValue& value : list->items()) out |= kind_of(value);
  }
  if (out != 0) return out;
  struct Owner {
    JsonTypes type;
    std::vector<std::string_view> keywords;
  };
  static const std::vector<Owner> kOwners = {
      {kStringType, {"minLength", "maxLength", "pattern", "format"}},
      {kNumberType, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {kArrayType, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
      {kObjectType,
       {"properties", "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties", "unevaluatedProperties"}}};
  for (const Owner& owner : kOwners) {
    const bool speaks = std::ranges::any_of(
        owner.keywords, [&](std::string_view keyword) { return schema.find(keyword) != nullptr; });
    if (speaks) out |= owner.type;
  }
  return out == 0 ? kAnyType : out;
}

Result<> SchemaCompiler::check_keywords(const JsonValue& schema, const std::string& path) const {
  constexpr std::string_view kKnown[] = {"$ref",
                                         "allOf",
                                         "anyOf",
                                         "oneOf",
                                         "enum",
                                         "const",
                                         "type",
                                         "minLength",
                                         "maxLength",
                                         "pattern",
                                         "format",
                                         "minimum",
                                         "maximum",
                                         "exclusiveMinimum",
                                         "exclusiveMaximum",
                                         "multipleOf",
                                         "items",
                                         "prefixItems",
                                         "minItems",
                                         "maxItems",
                                         "uniqueItems",
                                         "properties",
                                         "required",
                                         "additionalProperties",
                                         "patternProperties",
                                         "minProperties",
                                         "maxProperties",
                                         "unevaluatedProperties"};
  for (const auto& [keyword, value] : schema.members()) {
    if (std::ranges::find(kKnown, keyword) == std::end(kKnown) && !is_annotation(keyword)) {
      return unsupported(path, keyword);
    }
    if (keyword == "$id" && path != "#") return unsupported(path, keyword, "only at the top");
  }
  return {};
}

}  // namespace cedra::decode

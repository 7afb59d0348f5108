#include "text/structured_fields.h"

#include <algorithm>
#include <iterator>

namespace cedra::text {
namespace {

using Kind = StructuredFields::Kind;

Result<StructuredFields> read_one(const JsonValue& value, Kind kind, std::string where) {
  StructuredFields out;
  out.kind = kind;
  out.where = std::move(where);
  switch (kind) {
    case Kind::kJsonSchema:
      // A schema, or its text.
      if (!value.is_object() && !value.is_bool() && !value.is_string()) {
        return err(Code::kInvalid, "{} must be a JSON Schema, got {}", out.where,
                   value.kind_name());
      }
      out.text = value.is_string() ? value.text() : python_json(value);
      return out;
    case Kind::kRegex:
    case Kind::kGrammar:
      if (!value.is_string()) {
        return err(Code::kInvalid, "{} must be a string, got {}", out.where, value.kind_name());
      }
      out.text = value.text();
      return out;
    case Kind::kChoice:
      if (!value.is_array() || value.items().empty() ||
          !std::ranges::all_of(value.items(), &JsonValue::is_string)) {
        return err(Code::kInvalid, "{} must be a list of strings, not empty", out.where);
      }
      for (const JsonValue& choice : value.items()) out.choices.push_back(choice.text());
      return out;
    case Kind::kJsonObject:
      if (!value.is_bool()) {
        return err(Code::kInvalid, "{} must be a boolean, got {}", out.where, value.kind_name());
      }
      if (!value.as_bool()) out = {};
      return out;
    case Kind::kNone:
      break;
  }
  return out;
}

struct Field {
  std::string_view name;
  Kind kind;
};
constexpr Field kGuided[] = {{"guided_json", Kind::kJsonSchema},
                             {"guided_regex", Kind::kRegex},
                             {"guided_grammar", Kind::kGrammar},
                             {"guided_choice", Kind::kChoice},
                             {"guided_json_object", Kind::kJsonObject}};
constexpr std::string_view kHolder = "structured_outputs";
constexpr std::string_view kWhitespacePattern = "guided_whitespace_pattern";
constexpr Field kMembers[] = {{"json", Kind::kJsonSchema},
                              {"regex", Kind::kRegex},
                              {"grammar", Kind::kGrammar},
                              {"choice", Kind::kChoice},
                              {"json_object", Kind::kJsonObject}};

Result<> take(const JsonValue& value, Kind kind, std::string where, StructuredFields& out) {
  if (value.is_null()) return {};
  CEDRA_ASSIGN(StructuredFields one, read_one(value, kind, std::move(where)));
  if (one.kind == Kind::kNone) return {};
  if (out.kind != Kind::kNone) {
    return err(Code::kInvalid, "{} and {} exclude each other", out.where, one.where);
  }
  out = std::move(one);
  return {};
}

}  // namespace

Result<StructuredFields> parse_structured_fields(const JsonValue& body) {
  StructuredFields out;
  for (const Field& field : kGuided) {
    if (const JsonValue* value = body.find(field.name)) {
      CEDRA_TRY(take(*value, field.kind, std::string(field.name), out));
    }
  }
  if (const JsonValue* pattern = body.find(kWhitespacePattern);
      pattern != nullptr && !pattern->is_null()) {
    return err(Code::kUnsupported, "{} is not supported", kWhitespacePattern);
  }
  const JsonValue* holder = body.find(kHolder);
  if (holder == nullptr || holder->is_null()) return out;
  if (!holder->is_object()) {
    return err(Code::kInvalid, "structured_outputs must be an object, got {}", holder->kind_name());
  }
  for (const auto& [name, value] : holder->members()) {
    const auto* member = std::ranges::find(kMembers, name, &Field::name);
    if (member != std::end(kMembers)) {
      CEDRA_TRY(take(value, member->kind, "structured_outputs." + name, out));
    } else if (!value.is_null() && !(value.is_bool() && !value.as_bool())) {
      return err(Code::kUnsupported, "structured_outputs.{} is not supported", name.substr(0, 100));
    }
  }
  return out;
}

bool is_structured_field(std::string_view name) {
  return name == kHolder || name == kWhitespacePattern ||
         std::ranges::find(kGuided, name, &Field::name) != std::end(kGuided);
}

Result<StructuredFields> parse_response_format(const JsonValue& format, std::string_view field) {
  const auto member = [](const JsonValue& object, std::string_view key) {
    const JsonValue* value = object.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  };
  const JsonValue* type = member(format, "type");
  const std::string_view name =
      type != nullptr && type->is_string() ? std::string_view(type->text()) : "";
  StructuredFields out;
  if (name == "text") return out;
  if (name == "json_object") {
    return read_one(JsonValue::boolean(true), Kind::kJsonObject, std::string(field));
  }
  if (name != "json_schema") {
    return err(Code::kInvalid, "{}.type: expected text, json_object or json_schema, got '{}'",
               field, name.substr(0, 40));
  }
  const JsonValue* holder = member(format, "json_schema");
  const bool nested = holder != nullptr || field == "response_format";
  std::string where = fmt::format("{}{}", field, nested ? ".json_schema.schema" : ".schema");
  const JsonValue* schema = member(holder == nullptr ? format : *holder, "schema");
  if (schema == nullptr || !schema->is_object()) {
    return err(Code::kInvalid, "{} must be an object", where);
  }
  return read_one(*schema, Kind::kJsonSchema, std::move(where));
}

std::string response_format_prompt(const StructuredFields& format) {
  switch (format.kind) {
    case Kind::kJsonObject:
      return "{\"type\": \"json_object\"}";
    case Kind::kJsonSchema:
      return format.text;
    default:
      return {};
  }
}

}  // namespace cedra::text

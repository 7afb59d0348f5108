// The fields that say what an answer must be: response_format under the names that the routes have
// for it, vLLM's structured_outputs, and guided_json, guided_regex, guided_choice and
// guided_grammar of its earlier versions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json_value.h"

namespace cedra::text {

struct StructuredFields {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema, kRegex, kGrammar, kChoice };
  Kind kind = Kind::kNone;
  std::string text;                  // schema (JSON), regex or EBNF
  std::vector<std::string> choices;  // kChoice
  std::string where;                 // the field, for messages
};

// kInvalid for a wrong type or more than one of them, kUnsupported for members of
// structured_outputs that are not understood.
Result<StructuredFields> parse_structured_fields(const JsonValue& body);
// Whether parse_structured_fields() reads a member of this name.
bool is_structured_field(std::string_view name);
// response_format, text.format of responses or output_config.format of messages; `field` names it.
// The schema stands in json_schema.schema or, as the latter have it, in schema. kNone for type
// text. kInvalid for anything else than text, json_object and json_schema with an object.
Result<StructuredFields> parse_response_format(const JsonValue& format, std::string_view field);
// What the prompt says about it (spec chat.md 2.8); "" for kNone.
std::string response_format_prompt(const StructuredFields& format);

}  // namespace cedra::text

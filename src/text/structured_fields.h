// The fields beside response_format that say what an answer must be: vLLM's structured_outputs, and
// guided_json, guided_regex, guided_choice and guided_grammar of its earlier versions.
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
// response_format as /v1/completions reads it.
Result<StructuredFields> parse_response_format(const JsonValue& format);

}  // namespace cedra::text

// Names and values are client text, the tags around them are the template's.
#include "text/dsml_history.h"

#include "text/markup.h"

namespace cedra::text {
namespace {

// The arguments as an object, or nullopt.
std::optional<JsonValue> decode_arguments(const std::string& text, JsonReader& reader) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return JsonValue::object({});
  auto value = reader.read(text);
  if (value && value->is_string()) value = reader.read(value->text());
  if (!value || !value->is_object()) return std::nullopt;
  return std::move(*value);
}

void append_parameter(std::string_view name, const JsonValue& value, PromptBuilder& out) {
  out.trusted(markup::kParameterOpen);
  out.plain(name);
  if (value.is_string()) {
    out.trusted("\" string=\"true\">");
    out.plain(value.text());
  } else {
    out.trusted("\" string=\"false\">");
    out.plain(python_json(value));
  }
  out.trusted(markup::kParameterClose);
}

}  // namespace

void append_call_block(std::span<const ToolCall> calls, JsonReader& reader, PromptBuilder& out) {
  out.trusted("\n\n");
  out.trusted(markup::kCallsOpen);
  for (const ToolCall& call : calls) {
    out.trusted("\n");
    out.trusted(markup::kInvokeOpen);
    out.plain(call.name);
    out.trusted("\">\n");
    auto arguments = decode_arguments(call.arguments, reader);
    if (!arguments) {
      arguments = JsonValue::object({{"arguments", JsonValue::string(call.arguments)}});
    }
    bool first = true;
    for (const auto& [name, value] : arguments->members()) {
      if (!first) out.trusted("\n");
      first = false;
      append_parameter(name, value, out);
    }
    out.trusted("\n");
    out.trusted(markup::kInvokeClose);
  }
  out.trusted("\n");
  out.trusted(markup::kCallsClose);
}

}  // namespace cedra::text

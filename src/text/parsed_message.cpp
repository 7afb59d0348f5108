// Events put together to a message, as a client would.
#include "text/json_value.h"
#include "text/output_parser.h"

namespace cedra::text {

void ParsedMessage::add(const std::vector<OutputEvent>& events) {
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        reasoning += event.text;
        break;
      case OutputEvent::Kind::kContent:
        content += event.text;
        break;
      case OutputEvent::Kind::kCallStart:
        calls.push_back({event.id, event.text, ""});
        break;
      case OutputEvent::Kind::kArguments:
        calls.back().arguments += event.text;
        break;
      case OutputEvent::Kind::kCallEnd:
        break;
    }
  }
}

std::optional<std::string> custom_tool_input(std::string_view arguments) {
  JsonReader reader;
  auto value = reader.read(arguments);
  if (!value || value->members().size() != 1) return std::nullopt;
  auto& [key, input] = value->members().front();
  if (key != "input" || !input.is_string()) return std::nullopt;
  return input.take_text();
}

std::string message_json(const ParsedMessage& message) {
  std::string out = "{\"reasoning_content\": ";
  append_json_string(message.reasoning, out);
  out += ", \"content\": ";
  append_json_string(message.content, out);
  out += ", \"tool_calls\": [";
  bool first = true;
  for (const ParsedCall& call : message.calls) {
    if (!first) out += ", ";
    first = false;
    out += "{\"name\": ";
    append_json_string(call.name, out);
    out += ", \"arguments\": ";
    append_json_string(call.arguments, out);
    out += '}';
  }
  out += "]}";
  return out;
}

ParsedMessage parse_output(std::string_view text, ParserOptions options, OutputEnd end) {
  OutputParser parser(std::move(options));
  ParsedMessage message;
  message.add(parser.push(text));
  message.add(parser.finish(end));
  message.finish = parser.finish_reason();
  return message;
}

}  // namespace cedra::text

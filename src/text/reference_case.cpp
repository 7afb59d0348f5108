// The reference encoder's own input shape: tools, response format and tasks on messages
// (tests/data/chat/encode_reference.json).
#include "text/request_parts.h"

namespace cedra::text {
namespace {

using detail::get_bool;
using detail::present;

// What only this shape has.
Result<> add_reference_fields(const JsonValue& value, size_t index, Message& message) {
  if (const JsonValue* tools = present(value, "tools")) {
    CEDRA_ASSIGN(message.tools, parse_tools(*tools));
  }
  if (const JsonValue* format = present(value, "response_format")) {
    message.response_format = python_json(*format);
  }
  if (const JsonValue* task = present(value, "task")) {
    const auto known = task_by_name(task->text());
    if (!known) {
      return err(Code::kInvalid, "messages.{}.task: unknown task '{}'", index,
                 task->text().substr(0, 40));
    }
    message.task = known;
  }
  for (const std::string_view key : {"wo_eos", "prefix"}) {
    CEDRA_ASSIGN(const bool open, get_bool(value, key, false));
    message.without_eos = message.without_eos || open;
  }
  return {};
}

bool has_reference_shape(const JsonValue& value) {
  if (value.find("options") != nullptr) return true;
  const JsonValue* messages = present(value, "messages");
  if (messages == nullptr) return false;
  for (const JsonValue& message : messages->items()) {
    for (const std::string_view key : {"tools", "response_format", "task"}) {
      if (present(message, key) != nullptr) return true;
    }
  }
  return false;
}

}  // namespace

Result<ReferenceCase> parse_reference_case(const JsonValue& value) {
  ReferenceCase out;
  RequestRules rules;
  rules.efforts = reference_effort_table();
  const JsonValue* messages = present(value, "messages");
  if (messages == nullptr) return err(Code::kInvalid, "messages: a list of messages is required");
  std::vector<std::string> warnings;
  CEDRA_ASSIGN(out.conversation.messages, parse_messages(*messages, rules, warnings));
  for (size_t i = 0; i < out.conversation.messages.size(); ++i) {
    CEDRA_TRY(add_reference_fields(messages->items()[i], i, out.conversation.messages[i]));
  }
  out.options.header_last = false;
  out.options.all_schema_keys = true;
  const JsonValue* options = present(value, "options");
  if (options == nullptr) return out;
  detail::ThinkingFields thinking;
  thinking.effort = present(*options, "reasoning_effort");
  CEDRA_TRY(detail::apply_thinking(thinking, rules, out.options, warnings));
  CEDRA_ASSIGN(out.options.thinking, get_bool(*options, "thinking", true));
  CEDRA_ASSIGN(out.options.drop_thinking, get_bool(*options, "drop_thinking", true));
  CEDRA_ASSIGN(out.options.continue_final_message,
               get_bool(*options, "continue_final_message", false));
  return out;
}

Result<Prompt> prompt_from_json(std::string_view text, Route route, const RequestRules& rules) {
  JsonReader reader(rules.limits);
  CEDRA_ASSIGN(JsonValue value, reader.read(text));
  if (value.is_array()) {
    value = JsonValue::object({{"messages", std::move(value)}});
    value.members().emplace_back("options", JsonValue());
  }
  if (has_reference_shape(value)) {
    CEDRA_ASSIGN(const auto parsed, parse_reference_case(value));
    return encode_chat(parsed.conversation, parsed.options);
  }
  CEDRA_ASSIGN(auto request, parse_request(route, text, rules));
  CEDRA_ASSIGN(auto prompt, encode_chat(request.conversation, request.options));
  prompt.warnings = std::move(request.warnings);
  return prompt;
}

}  // namespace cedra::text

// /v1/responses bodies (spec chat.md 4.5). Stateless: every request carries its whole history.
#include "text/request_parts.h"

namespace cedra::text::detail {
namespace {

std::string_view type_of(const JsonValue& value) {
  const JsonValue* type = present(value, "type");
  return type != nullptr && type->is_string() ? std::string_view(type->text()) : "";
}

std::string joined_text(const JsonValue* list) {
  std::string out;
  if (list == nullptr || !list->is_array()) return out;
  for (const JsonValue& item : list->items()) {
    const JsonValue* text = present(item, "text");
    if (text == nullptr || !text->is_string()) continue;
    if (!out.empty()) out += "\n\n";
    out += text->text();
  }
  return out;
}

// Items to messages. Reasoning, text and calls that follow each other are one assistant message.
class ItemList {
 public:
  Result<> add(const JsonValue& item, const std::string& where) {
    const std::string_view type = type_of(item);
    if (type == "message" || (type.empty() && present(item, "role") != nullptr)) {
      return add_message(item, where);
    }
    if (type == "reasoning") {
      std::string text = joined_text(present(item, "content"));
      if (text.empty()) text = joined_text(present(item, "summary"));
      std::string& reasoning = assistant(Part::kReasoning).reasoning;
      if (!reasoning.empty() && !text.empty()) reasoning += "\n\n";
      reasoning += text;
      return {};
    }
    if (type == "function_call" || type == "custom_tool_call") {
      return add_call(item, where, type == "custom_tool_call");
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      Message message;
      message.role = Role::kTool;
      CEDRA_ASSIGN(message.tool_call_id, get_string(item, "call_id", where));
      CEDRA_ASSIGN(message.content, parse_content(present(item, "output"), where));
      messages_.push_back(std::move(message));
      return {};
    }
    return err(Code::kInvalid, "{}.type: unknown item type '{}'", where, type.substr(0, 40));
  }

  std::vector<Message>& messages() { return messages_; }

 private:
  enum class Part : uint8_t { kReasoning, kText, kCall };

  // The assistant message that the next part belongs to: the last one while the parts keep their
  // order (reasoning, text, calls), else a new one.
  Message& assistant(Part part) {
    const bool joins = !messages_.empty() && messages_.back().role == Role::kAssistant &&
                       (part > last_ || (part == last_ && part != Part::kText));
    last_ = part;
    if (!joins) {
      messages_.emplace_back();
      messages_.back().role = Role::kAssistant;
    }
    return messages_.back();
  }

  Result<> add_message(const JsonValue& item, const std::string& where) {
    CEDRA_ASSIGN(const std::string role, get_string(item, "role", where));
    CEDRA_ASSIGN(auto content, parse_content(present(item, "content"), where));
    if (role == "assistant") {
      assistant(Part::kText).content = std::move(content);
      return {};
    }
    Message message;
    message.content = std::move(content);
    if (role == "system" || role == "developer") {
      message.role = Role::kSystem;
    } else if (role != "user") {
      return err(Code::kInvalid, "{}.role: expected user, assistant, system or developer, got '{}'",
                 where, role.substr(0, 40));
    }
    messages_.push_back(std::move(message));
    return {};
  }

  Result<> add_call(const JsonValue& item, const std::string& where, bool custom) {
    ToolCall call;
    CEDRA_ASSIGN(call.id, get_string(item, "call_id", where));
    CEDRA_ASSIGN(call.name, get_string(item, "name", where));
    if (call.name.empty()) return err(Code::kInvalid, "{}.name must be a string, not empty", where);
    CEDRA_ASSIGN(std::string text, get_string(item, custom ? "input" : "arguments", where));
    if (custom) {
      call.arguments = "{\"input\": ";
      append_json_string(text, call.arguments);
      call.arguments += '}';
    } else {
      call.arguments = std::move(text);
    }
    assistant(Part::kCall).tool_calls.push_back(std::move(call));
    return {};
  }

  std::vector<Message> messages_;
  Part last_ = Part::kReasoning;
};

Result<std::vector<ToolDefinition>> parse_flat_tools(const JsonValue& tools,
                                                     std::vector<std::string>& warnings) {
  if (!tools.is_array()) {
    return err(Code::kInvalid, "tools must be a list, got {}", tools.kind_name());
  }
  std::vector<ToolDefinition> out;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const JsonValue& tool = tools.items()[i];
    const std::string where = fmt::format("tools.{}", i);
    const std::string_view type = type_of(tool);
    if (type == "function") {
      CEDRA_ASSIGN(auto made, make_tool(tool, where, "parameters"));
      out.push_back(std::move(made));
    } else if (type == "custom") {
      CEDRA_ASSIGN(auto made, make_custom_tool(tool, where));
      out.push_back(std::move(made));
    } else {
      warnings.push_back(fmt::format("{}: hosted tool '{}' is ignored", where, type));
    }
  }
  CEDRA_TRY(check_unique(out));
  return out;
}

Result<> apply_choice(const JsonValue& choice, ChatOptions& options) {
  if (choice.is_string()) {
    const std::string& name = choice.text();
    if (name == "auto") return {};
    if (name == "none") {
      options.tool_choice.kind = ToolChoice::Kind::kNone;
      return {};
    }
    if (name == "required") {
      options.tool_choice.kind = ToolChoice::Kind::kRequired;
      return {};
    }
  } else if (type_of(choice) == "function" || type_of(choice) == "custom") {
    CEDRA_ASSIGN(std::string name, get_string(choice, "name", "tool_choice"));
    options.tool_choice = {ToolChoice::Kind::kNamed, std::move(name)};
    return {};
  }
  return err(Code::kInvalid, "tool_choice: expected none, auto, required or a named function");
}

}  // namespace

Result<ParsedRequest> parse_responses(JsonValue& body, const RequestRules& rules) {
  ParsedRequest out;
  CEDRA_ASSIGN(out.fields, parse_fields(Route::kResponses, body));
  for (const std::string_view key : {"previous_response_id", "conversation"}) {
    if (present(body, key) != nullptr) {
      return err(Code::kInvalid, "{}: this server keeps no conversations; send the whole input",
                 key);
    }
  }
  ItemList items;
  if (const JsonValue* instructions = present(body, "instructions")) {
    Message message;
    message.role = Role::kSystem;
    CEDRA_ASSIGN(message.content, parse_content(instructions, "instructions"));
    items.messages().push_back(std::move(message));
  }
  const JsonValue* input = present(body, "input");
  if (input != nullptr && input->is_array()) {
    for (size_t i = 0; i < input->items().size(); ++i) {
      CEDRA_TRY(items.add(input->items()[i], fmt::format("input.{}", i)));
    }
  } else if (input != nullptr && input->is_string()) {
    Message message;
    message.content.push_back({ContentPart::Kind::kText, input->text()});
    items.messages().push_back(std::move(message));
  } else {
    return err(Code::kInvalid, "input: a string or a list of items is required");
  }
  if (items.messages().empty()) return err(Code::kInvalid, "Empty input messages");
  out.conversation.messages = std::move(items.messages());
  for (const Message& message : out.conversation.messages) {
    for (const ContentPart& part : message.content) {
      if (part.kind == ContentPart::Kind::kImage && message.role != Role::kUser &&
          message.role != Role::kTool) {
        return err(Code::kInvalid, "Image in {} message is unsupported", role_name(message.role));
      }
    }
  }
  CEDRA_TRY(check_call_answers(out.conversation.messages, rules, out.warnings));
  if (const JsonValue* tools = present(body, "tools")) {
    CEDRA_ASSIGN(out.conversation.tools, parse_flat_tools(*tools, out.warnings));
  }
  if (const JsonValue* choice = present(body, "tool_choice")) {
    CEDRA_TRY(apply_choice(*choice, out.options));
  }
  const JsonValue* reasoning = present(body, "reasoning");
  CEDRA_TRY(apply_thinking({present(body, "thinking"), present(body, "chat_template_kwargs"),
                            reasoning == nullptr ? nullptr : present(*reasoning, "effort")},
                           rules, out.options));
  const JsonValue* text = present(body, "text");
  if (const JsonValue* format = text == nullptr ? nullptr : present(*text, "format")) {
    CEDRA_TRY(apply_response_format(*format, out));
  }
  if (out.response_format == ResponseFormatKind::kJsonObject) {
    CEDRA_TRY(check_json_word(out.conversation, rules, out.warnings));
  }
  return out;
}

}  // namespace cedra::text::detail

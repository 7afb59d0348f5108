// /v1/messages bodies (spec chat.md 4.6).
#include <iterator>

#include "text/request_parts.h"

namespace cedra::text::detail {
namespace {

std::string_view block_type(const JsonValue& block) {
  const JsonValue* type = present(block, "type");
  return type != nullptr && type->is_string() ? std::string_view(type->text()) : "";
}

// A user message: tool results become messages of their own, everything else stays in order.
Result<> add_user(const JsonValue& content, const std::string& where, std::vector<Message>& out) {
  if (!content.is_array()) {
    Message message;
    CEDRA_ASSIGN(message.content, parse_content(&content, where));
    out.push_back(std::move(message));
    return {};
  }
  Message current;
  for (size_t i = 0; i < content.items().size(); ++i) {
    const JsonValue& block = content.items()[i];
    const std::string path = fmt::format("{}.content.{}", where, i);
    const std::string_view type = block_type(block);
    if (type == "tool_result") {
      if (!current.content.empty()) out.push_back(std::exchange(current, {}));
      Message result;
      result.role = Role::kTool;
      CEDRA_ASSIGN(result.tool_call_id, get_string(block, "tool_use_id", path));
      CEDRA_ASSIGN(result.content, parse_content(present(block, "content"), path));
      out.push_back(std::move(result));
    } else if (type == "document") {
      current.content.push_back({ContentPart::Kind::kUnsupported, "document", path});
    } else {
      CEDRA_ASSIGN(auto part, parse_block(block, path));
      current.content.push_back(std::move(part));
    }
  }
  if (!current.content.empty() || content.items().empty()) out.push_back(std::move(current));
  return {};
}

Result<> add_assistant(const JsonValue& content, const std::string& where,
                       std::vector<Message>& out) {
  Message message;
  message.role = Role::kAssistant;
  if (!content.is_array()) {
    CEDRA_ASSIGN(message.content, parse_content(&content, where));
    out.push_back(std::move(message));
    return {};
  }
  bool thought = false;
  for (size_t i = 0; i < content.items().size(); ++i) {
    const JsonValue& block = content.items()[i];
    const std::string path = fmt::format("{}.content.{}", where, i);
    const std::string_view type = block_type(block);
    if (type == "thinking") {
      CEDRA_ASSIGN(std::string text, get_string(block, "thinking", path));
      if (thought) message.reasoning += "\n\n";
      thought = true;
      message.reasoning += text;
    } else if (type == "redacted_thinking") {
      continue;
    } else if (type == "tool_use") {
      ToolCall call;
      CEDRA_ASSIGN(call.id, get_string(block, "id", path));
      CEDRA_ASSIGN(call.name, get_string(block, "name", path));
      if (call.name.empty()) {
        return err(Code::kInvalid, "{}.name must be a string, not empty", path);
      }
      const JsonValue* input = present(block, "input");
      call.arguments = input == nullptr ? "{}" : python_json(*input);
      message.tool_calls.push_back(std::move(call));
    } else {
      CEDRA_ASSIGN(auto part, parse_block(block, path));
      if (part.kind == ContentPart::Kind::kImage) {
        return err(Code::kInvalid, "Image in assistant message is unsupported");
      }
      message.content.push_back(std::move(part));
    }
  }
  if (message.content.empty() && message.tool_calls.empty() && message.reasoning.empty()) {
    return err(Code::kInvalid, "Invalid assistant message: content or tool_calls must be set");
  }
  out.push_back(std::move(message));
  return {};
}

// Claude Code's first line says what a request is billed as. It changes with every request, so that
// nothing behind it could ever be found in the prefix cache.
void drop_billing_line(std::vector<ContentPart>& parts) {
  constexpr std::string_view kMark = "x-anthropic-billing-header:";
  std::erase_if(parts, [kMark](ContentPart& part) {
    if (part.kind != ContentPart::Kind::kText || !part.text.starts_with(kMark)) return false;
    const size_t end = part.text.find('\n');
    part.text.erase(0, end == std::string::npos ? end : end + 1);
    return part.text.empty();
  });
}

Result<> add_system(const JsonValue& system, std::vector<Message>& out) {
  Message message;
  message.role = Role::kSystem;
  CEDRA_ASSIGN(message.content, parse_content(&system, "system"));
  drop_billing_line(message.content);
  for (const ContentPart& part : message.content) {
    if (part.kind == ContentPart::Kind::kImage) {
      return err(Code::kInvalid, "Image in system message is unsupported");
    }
  }
  out.push_back(std::move(message));
  return {};
}

Result<> add_message(const JsonValue& value, const std::string& where, std::vector<Message>& out) {
  CEDRA_ASSIGN(const std::string role, get_string(value, "role", where));
  const JsonValue null;
  const JsonValue* content = present(value, "content");
  if (content == nullptr) content = &null;
  if (role == "user") return add_user(*content, where, out);
  if (role == "assistant") return add_assistant(*content, where, out);
  if (role == "system") return add_system(*content, out);
  return err(Code::kInvalid, "{}.role: expected user or assistant, got '{}'", where,
             role.substr(0, 40));
}

Result<std::vector<ToolDefinition>> parse_anthropic_tools(const JsonValue& tools,
                                                          std::vector<std::string>& warnings) {
  if (!tools.is_array()) {
    return err(Code::kInvalid, "tools must be a list, got {}", tools.kind_name());
  }
  CEDRA_TRY(check_count("tools", tools.items().size(), kMaxTools));
  std::vector<ToolDefinition> out;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const JsonValue& tool = tools.items()[i];
    const std::string_view type = block_type(tool);
    if (!type.empty() && type != "custom" && present(tool, "input_schema") == nullptr) {
      warnings.push_back(fmt::format("tools.{}: server tool '{}' is ignored", i, type));
      continue;
    }
    CEDRA_ASSIGN(auto made, make_tool(tool, fmt::format("tools.{}", i), "input_schema"));
    out.push_back(std::move(made));
  }
  CEDRA_TRY(check_unique(out));
  return out;
}

// `any`: some tool is to be called.
Result<> apply_choice(const JsonValue& choice, ParsedRequest& out, bool& any) {
  const std::string_view type = block_type(choice);
  if (type == "tool") {
    CEDRA_ASSIGN(std::string name, get_string(choice, "name", "tool_choice"));
    out.options.tool_choice = {ToolChoice::Kind::kNamed, std::move(name)};
  } else if (type == "none") {
    out.options.tool_choice.kind = ToolChoice::Kind::kNone;
  } else if (type == "any") {
    any = true;
  } else if (type != "auto") {
    return err(Code::kInvalid, "tool_choice.type: expected auto, any, tool or none, got '{}'",
               type.substr(0, 40));
  }
  CEDRA_ASSIGN(const bool single, get_bool(choice, "disable_parallel_tool_use", false));
  if (single) out.fields.parallel_tool_calls = false;
  return {};
}

// output_config.format, and output_format as its first version had it.
Result<> apply_output_format(const JsonValue& body, const JsonValue* output, ParsedRequest& out) {
  const JsonValue* format = output == nullptr ? nullptr : present(*output, "format");
  const JsonValue* earlier = present(body, "output_format");
  if (format != nullptr && earlier != nullptr) {
    return err(Code::kInvalid, "output_config.format and output_format exclude each other");
  }
  if (format != nullptr) return apply_response_format(format, "output_config.format", out);
  return apply_response_format(earlier, "output_format", out);
}

}  // namespace

Result<ParsedRequest> parse_anthropic(JsonValue& body, const RequestRules& rules) {
  ParsedRequest out;
  CEDRA_ASSIGN(out.fields, parse_fields(Route::kMessages, body));
  out.ignored = ignored_fields(Route::kMessages, body);
  if (!out.fields.max_tokens && !rules.count_only)
    return err(Code::kInvalid, "max_tokens: a number is required");
  // Refused, not ignored: the next request of a thread would carry its new messages only.
  if (present(body, "thread") != nullptr) {
    return err(Code::kUnsupported,
               "thread: this server keeps no message threads; send all messages without it");
  }
  const JsonValue* messages = present(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->items().empty()) {
    return err(Code::kInvalid, "messages: at least one message is required");
  }
  CEDRA_TRY(check_count("messages", messages->items().size(), kMaxMessages));
  auto& list = out.conversation.messages;
  if (const JsonValue* system = present(body, "system")) CEDRA_TRY(add_system(*system, list));
  for (size_t i = 0; i < messages->items().size(); ++i) {
    CEDRA_TRY(add_message(messages->items()[i], fmt::format("messages.{}", i), list));
  }
  CEDRA_TRY(check_call_answers(list, rules, out.warnings));
  if (const JsonValue* tools = present(body, "tools")) {
    CEDRA_ASSIGN(out.conversation.tools, parse_anthropic_tools(*tools, out.warnings));
  }
  bool any = false;
  if (const JsonValue* choice = present(body, "tool_choice")) {
    CEDRA_TRY(apply_choice(*choice, out, any));
  }
  CEDRA_ASSIGN(const JsonValue* output, get_object(body, "output_config"));
  CEDRA_TRY(apply_output_format(body, output, out));
  CEDRA_TRY(apply_thinking({present(body, "thinking"), present(body, "chat_template_kwargs"),
                            output == nullptr ? nullptr : present(*output, "effort")},
                           rules, out.options, out.warnings));
  // While the model thinks a call cannot be forced; then "any" is "auto", as the vendor has it.
  if (any && !rules.hosted && !out.options.thinking) {
    out.options.tool_choice.kind = ToolChoice::Kind::kRequired;
  }
  // On this route a final assistant message is the beginning of the answer.
  if (list.back().role == Role::kAssistant && list.back().tool_calls.empty()) {
    out.options.continue_final_message = true;
  }
  return out;
}

}  // namespace cedra::text::detail

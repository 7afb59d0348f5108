// /v1/chat/completions bodies, and the entry of all three routes (spec chat.md 4.2, 4.3).
#include "text/request_parts.h"

namespace cedra::text {
namespace detail {
namespace {

Result<Role> parse_role(const JsonValue& message, std::string_view where) {
  const JsonValue* role = present(message, "role");
  const std::string_view name =
      role != nullptr && role->is_string() ? std::string_view(role->text()) : "";
  for (const Role known : {Role::kSystem, Role::kDeveloper, Role::kUser, Role::kAssistant,
                           Role::kTool, Role::kReminder}) {
    if (name == role_name(known)) return known;
  }
  return err(
      Code::kInvalid,
      "{}.role: expected system, developer, user, assistant, tool or latest_reminder, got '{}'",
      where, name.substr(0, 40));
}

// Every spelling in which clients send reasoning back; absent, null and "" are the same.
Result<std::string> parse_reasoning(const JsonValue& message, std::string_view where) {
  for (const std::string_view key : {"reasoning_content", "reasoning"}) {
    CEDRA_ASSIGN(std::string text, get_string(message, key, where));
    if (!text.empty()) return text;
  }
  std::string text;
  const JsonValue* details = present(message, "reasoning_details");
  if (details == nullptr || !details->is_array()) return text;
  for (const JsonValue& detail : details->items()) {
    const JsonValue* piece = present(detail, "text");
    if (piece != nullptr && piece->is_string()) text += piece->text();
  }
  return text;
}

Result<std::vector<ToolCall>> parse_calls(const JsonValue& calls, std::string_view where) {
  std::vector<ToolCall> out;
  if (!calls.is_array()) {
    return err(Code::kInvalid, "{}.tool_calls must be a list, got {}", where, calls.kind_name());
  }
  for (size_t i = 0; i < calls.items().size(); ++i) {
    const std::string path = fmt::format("{}.tool_calls.{}", where, i);
    const JsonValue* function = present(calls.items()[i], "function");
    if (function == nullptr || !function->is_object()) {
      return err(Code::kInvalid, "{}.function must be an object", path);
    }
    ToolCall call;
    CEDRA_ASSIGN(call.id, get_string(calls.items()[i], "id", path));
    CEDRA_ASSIGN(call.name, get_string(*function, "name", path));
    if (call.name.empty()) {
      return err(Code::kInvalid, "{}.function.name must be a string, not empty", path);
    }
    if (const JsonValue* arguments = present(*function, "arguments")) {
      call.arguments = arguments->is_string() ? arguments->text() : python_json(*arguments);
    }
    out.push_back(std::move(call));
  }
  return out;
}

Result<Message> parse_message(const JsonValue& value, const std::string& where) {
  if (!value.is_object()) {
    return err(Code::kInvalid, "{} must be an object, got {}", where, value.kind_name());
  }
  Message out;
  CEDRA_ASSIGN(out.role, parse_role(value, where));
  const JsonValue* content = present(value, "content");
  CEDRA_ASSIGN(out.content, parse_content(content, where));
  for (const ContentPart& part : out.content) {
    if (part.kind == ContentPart::Kind::kImage && out.role != Role::kUser &&
        out.role != Role::kTool) {
      return err(Code::kInvalid, "Image in {} message is unsupported", role_name(out.role));
    }
  }
  if (out.role == Role::kTool) {
    CEDRA_ASSIGN(out.tool_call_id, get_string(value, "tool_call_id", where));
  }
  if (out.role != Role::kAssistant) return out;

  CEDRA_ASSIGN(out.reasoning, parse_reasoning(value, where));
  if (const JsonValue* calls = present(value, "tool_calls")) {
    CEDRA_ASSIGN(out.tool_calls, parse_calls(*calls, where));
  }
  if (content == nullptr && out.tool_calls.empty() && out.reasoning.empty()) {
    return err(Code::kInvalid, "Invalid assistant message: content or tool_calls must be set");
  }
  return out;
}

// {mode, tools}: the list only narrows what the model is told, so the mode is what is kept.
ToolChoice allowed_tools_choice(const JsonValue& allowed) {
  const JsonValue* mode = present(allowed, "mode");
  ToolChoice out;
  if (mode != nullptr && mode->is_string() && mode->text() == "required") {
    out.kind = ToolChoice::Kind::kRequired;
  }
  return out;
}

Result<ToolChoice> parse_tool_choice(const JsonValue& value) {
  ToolChoice out;
  if (value.is_string()) {
    const std::string& name = value.text();
    if (name == "auto") return out;
    if (name == "none") return ToolChoice{ToolChoice::Kind::kNone, ""};
    if (name == "required") return ToolChoice{ToolChoice::Kind::kRequired, ""};
  } else if (const JsonValue* function = present(value, "function")) {
    CEDRA_ASSIGN(std::string name, get_string(*function, "name", "tool_choice.function"));
    return ToolChoice{ToolChoice::Kind::kNamed, std::move(name)};
  } else if (const JsonValue* allowed = present(value, "allowed_tools")) {
    return allowed_tools_choice(*allowed);
  }
  return err(Code::kInvalid, "tool_choice: expected none, auto, required or a named function");
}

}  // namespace

Result<ParsedRequest> parse_chat(JsonValue& body, const RequestRules& rules) {
  ParsedRequest out;
  out.ignored = ignored_fields(Route::kChatCompletions, body);
  const JsonValue* messages = present(body, "messages");
  if (messages == nullptr) return err(Code::kInvalid, "messages: a list of messages is required");
  CEDRA_ASSIGN(out.conversation.messages, parse_messages(*messages, rules, out.warnings));
  if (const JsonValue* tools = present(body, "tools")) {
    CEDRA_ASSIGN(out.conversation.tools, parse_tools(*tools));
  }
  if (const JsonValue* choice = present(body, "tool_choice")) {
    CEDRA_ASSIGN(out.options.tool_choice, parse_tool_choice(*choice));
  }
  CEDRA_TRY(apply_thinking({present(body, "thinking"), present(body, "chat_template_kwargs"),
                            present(body, "reasoning_effort")},
                           rules, out.options, out.warnings));
  CEDRA_TRY(apply_response_format(present(body, "response_format"), "response_format", out));
  if (out.response_format.kind == StructuredFields::Kind::kJsonObject) {
    CEDRA_TRY(check_json_word(out.conversation, rules, out.warnings));
  }
  CEDRA_ASSIGN(out.structured, parse_structured_fields(body));
  CEDRA_ASSIGN(out.fields, parse_fields(Route::kChatCompletions, body));

  CEDRA_ASSIGN(out.options.continue_final_message, get_bool(body, "continue_final_message", false));
  CEDRA_ASSIGN(out.options.add_generation_prompt,
               get_bool(body, "add_generation_prompt", !out.options.continue_final_message));
  if (out.options.continue_final_message && out.options.add_generation_prompt) {
    return err(Code::kInvalid,
               "continue_final_message and add_generation_prompt exclude each other");
  }
  const JsonValue& last = messages->items().back();
  CEDRA_ASSIGN(const bool prefix, get_bool(last, "prefix", false));
  if (prefix) {
    if (out.conversation.messages.back().role != Role::kAssistant) {
      return err(Code::kInvalid, "prefix: the last message must be an assistant message");
    }
    out.options.continue_final_message = true;
  }
  return out;
}

}  // namespace detail

Result<std::vector<Message>> parse_messages(const JsonValue& messages, const RequestRules& rules,
                                            std::vector<std::string>& warnings) {
  if (!messages.is_array()) {
    return err(Code::kInvalid, "messages must be a list, got {}", messages.kind_name());
  }
  if (messages.items().empty()) return err(Code::kInvalid, "Empty input messages");
  CEDRA_TRY(detail::check_count("messages", messages.items().size(), kMaxMessages));
  std::vector<Message> out;
  out.reserve(messages.items().size());
  for (size_t i = 0; i < messages.items().size(); ++i) {
    CEDRA_ASSIGN(auto message,
                 detail::parse_message(messages.items()[i], fmt::format("messages.{}", i)));
    out.push_back(std::move(message));
  }
  CEDRA_TRY(detail::check_call_answers(out, rules, warnings));
  return out;
}

Result<std::vector<ToolDefinition>> parse_tools(const JsonValue& tools) {
  if (!tools.is_array()) {
    return err(Code::kInvalid, "tools must be a list, got {}", tools.kind_name());
  }
  CEDRA_TRY(detail::check_count("tools", tools.items().size(), kMaxTools));
  std::vector<ToolDefinition> out;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const JsonValue* function = detail::present(tools.items()[i], "function");
    if (function == nullptr) {
      return err(Code::kInvalid, "tools.{}: expected type 'function' with a function object", i);
    }
    CEDRA_ASSIGN(auto tool,
                 detail::make_tool(*function, fmt::format("tools.{}.function", i), "parameters"));
    out.push_back(std::move(tool));
  }
  CEDRA_TRY(detail::check_unique(out));
  return out;
}

Result<ParsedRequest> parse_request(Route route, std::string_view body, const RequestRules& rules) {
  JsonReader reader(rules.limits);
  CEDRA_ASSIGN(JsonValue value, reader.read(body));
  if (!value.is_object()) {
    return err(Code::kInvalid, "the request body must be a JSON object, got {}", value.kind_name());
  }
  Result<ParsedRequest> request = err(Code::kInternal, "unknown route");
  switch (route) {
    case Route::kChatCompletions:
      request = detail::parse_chat(value, rules);
      break;
    case Route::kMessages:
      request = detail::parse_anthropic(value, rules);
      break;
    case Route::kResponses:
      request = detail::parse_responses(value, rules);
      break;
  }
  if (request) CEDRA_TRY(detail::check_parts(request->conversation, rules));
  return request;
}

std::optional<Route> route_by_path(std::string_view path) {
  for (const std::string_view prefix : {"/beta", "/anthropic", "/v1"}) {
    if (path.starts_with(prefix)) path.remove_prefix(prefix.size());
  }
  if (path == "/chat/completions") return Route::kChatCompletions;
  if (path == "/messages") return Route::kMessages;
  if (path == "/responses") return Route::kResponses;
  return std::nullopt;
}

}  // namespace cedra::text

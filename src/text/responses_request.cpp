// /v1/responses bodies (spec chat.md 4.5).
#include <algorithm>
#include <iterator>

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

// What tools that run on OpenAI's machines leave in a history; there is nothing to show of it.
bool is_hosted_item(std::string_view type) {
  constexpr std::string_view kTypes[] = {"web_search_call",
                                         "file_search_call",
                                         "computer_call",
                                         "computer_call_output",
                                         "code_interpreter_call",
                                         "image_generation_call",
                                         "mcp_list_tools",
                                         "mcp_call",
                                         "mcp_approval_request",
                                         "mcp_approval_response",
                                         "local_shell_call",
                                         "local_shell_call_output",
                                         "shell_call",
                                         "shell_call_output",
                                         "apply_patch_call",
                                         "apply_patch_call_output",
                                         "tool_search_call",
                                         "tool_search_output",
                                         "compaction"};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

// The one name under which the model sees a tool of a namespace.
std::string flat_name(std::string_view space, std::string_view name) {
  return fmt::format("{}{}{}", space, space.ends_with("__") ? "" : "__", name);
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
      if (text.empty()) {
        CEDRA_ASSIGN(const std::string sealed, get_string(item, "encrypted_content", where));
        if (sealed.starts_with(kReasoningMark)) text = sealed.substr(kReasoningMark.size());
      }
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
    if (is_hosted_item(type)) {
      warnings_.push_back(fmt::format("{}: an item of type '{}' is ignored", where, type));
      return {};
    }
    return err(Code::kInvalid, "{}.type: unknown item type '{}'", where, type.substr(0, 40));
  }

  std::vector<Message>& messages() { return messages_; }
  std::vector<std::string>& warnings() { return warnings_; }

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
    CEDRA_ASSIGN(const std::string space, get_string(item, "namespace", where));
    if (!space.empty() && !call.name.empty()) call.name = flat_name(space, call.name);
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
  std::vector<std::string> warnings_;
  Part last_ = Part::kReasoning;
};

Result<ToolDefinition> named_tool(const JsonValue& tool, const std::string& where) {
  return type_of(tool) == "custom" ? make_custom_tool(tool, where)
                                   : make_tool(tool, where, "parameters");
}

// {type: namespace, name, tools: [...]}: a group of functions under one name.
Result<> add_namespace(const JsonValue& group, const std::string& where,
                       std::vector<ToolDefinition>& out, std::vector<std::string>& warnings) {
  CEDRA_ASSIGN(const std::string space, get_string(group, "name", where));
  if (space.empty()) return err(Code::kInvalid, "{}.name must be a string, not empty", where);
  const JsonValue* tools = present(group, "tools");
  if (tools == nullptr || !tools->is_array()) {
    return err(Code::kInvalid, "{}.tools must be a list", where);
  }
  CEDRA_TRY(check_count(where + ".tools", tools->items().size(), kMaxTools));
  for (size_t i = 0; i < tools->items().size(); ++i) {
    const std::string path = fmt::format("{}.tools.{}", where, i);
    JsonValue tool = tools->items()[i];
    if (type_of(tool) != "function" && type_of(tool) != "custom") {
      warnings.push_back(fmt::format("{}: hosted tool '{}' is ignored", path, type_of(tool)));
      continue;
    }
    CEDRA_ASSIGN(std::string name, get_string(tool, "name", path));
    for (auto& [key, value] : tool.members()) {
      if (key == "name") value = JsonValue::string(flat_name(space, name));
    }
    CEDRA_ASSIGN(ToolDefinition made, named_tool(tool, path));
    made.space = space;
    made.short_name = std::move(name);
    out.push_back(std::move(made));
  }
  return {};
}

Result<std::vector<ToolDefinition>> parse_flat_tools(const JsonValue& tools,
                                                     std::vector<std::string>& warnings) {
  if (!tools.is_array()) {
    return err(Code::kInvalid, "tools must be a list, got {}", tools.kind_name());
  }
  CEDRA_TRY(check_count("tools", tools.items().size(), kMaxTools));
  std::vector<ToolDefinition> out;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const JsonValue& tool = tools.items()[i];
    const std::string where = fmt::format("tools.{}", i);
    const std::string_view type = type_of(tool);
    if (type == "function" || type == "custom") {
      CEDRA_ASSIGN(auto made, named_tool(tool, where));
      out.push_back(std::move(made));
    } else if (type == "namespace") {
      CEDRA_TRY(add_namespace(tool, where, out, warnings));
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
    CEDRA_ASSIGN(const std::string space, get_string(choice, "namespace", "tool_choice"));
    if (!space.empty()) name = flat_name(space, name);
    options.tool_choice = {ToolChoice::Kind::kNamed, std::move(name)};
    return {};
  }
  if (type_of(choice) == "allowed_tools") {
    const Result<std::string> mode = get_string(choice, "mode", "tool_choice");
    if (!mode) return std::unexpected(mode.error());
    if (*mode == "required") options.tool_choice.kind = ToolChoice::Kind::kRequired;
    return {};
  }
  return err(Code::kInvalid, "tool_choice: expected none, auto, required or a named function");
}

// Things that would need state or machines that are not here.
Result<> refuse_foreign(const JsonValue& body, const RequestRules& rules) {
  if (present(body, "conversation") != nullptr ||
      (present(body, "previous_response_id") != nullptr && !rules.previous_response)) {
    return err(Code::kInvalid, "{}: this server keeps no conversations; send the whole input",
               present(body, "conversation") != nullptr ? "conversation" : "previous_response_id");
  }
  CEDRA_ASSIGN(const bool background, get_bool(body, "background", false));
  if (background) {
    return err(Code::kUnsupported, "background is not supported; leave it out and stream");
  }
  if (present(body, "prompt") != nullptr) {
    return err(Code::kUnsupported, "prompt: this server keeps no prompts; send instructions");
  }
  return {};
}

bool includes(const JsonValue& list, std::string_view name) {
  return std::ranges::any_of(list.items(), [name](const JsonValue& item) {
    return item.is_string() && item.text() == name;
  });
}

Result<ResponsesFields> parse_responses_fields(const JsonValue& body, bool& logprobs) {
  ResponsesFields out;
  CEDRA_ASSIGN(out.store, get_bool(body, "store", true));
  CEDRA_TRY(get_object(body, "metadata"));
  CEDRA_ASSIGN(const JsonValue* reasoning, get_object(body, "reasoning"));
  out.reasoning_summary = reasoning != nullptr && (present(*reasoning, "summary") != nullptr ||
                                                   present(*reasoning, "generate_summary"));
  const JsonValue* include = present(body, "include");
  if (include != nullptr && !include->is_array()) {
    return err(Code::kInvalid, "include must be a list, got {}", include->kind_name());
  }
  if (include != nullptr) {
    out.encrypted_reasoning = includes(*include, "reasoning.encrypted_content");
    logprobs = includes(*include, "message.output_text.logprobs");
  }
  for (const std::string_view key :
       {"instructions", "metadata", "previous_response_id", "reasoning", "text", "tool_choice",
        "tools", "parallel_tool_calls", "max_output_tokens", "store"}) {
    if (const JsonValue* value = present(body, key)) {
      out.echo.emplace_back(key, python_json(*value));
    }
  }
  return out;
}

}  // namespace

Result<ParsedRequest> parse_responses(JsonValue& body, const RequestRules& rules) {
  ParsedRequest out;
  CEDRA_ASSIGN(out.fields, parse_fields(Route::kResponses, body));
  CEDRA_TRY(refuse_foreign(body, rules));
  out.ignored = ignored_fields(Route::kResponses, body);
  CEDRA_ASSIGN(out.responses, parse_responses_fields(body, out.fields.logprobs));
  ItemList items;
  if (const JsonValue* instructions = present(body, "instructions")) {
    Message message;
    message.role = Role::kSystem;
    CEDRA_ASSIGN(message.content, parse_content(instructions, "instructions"));
    items.messages().push_back(std::move(message));
    out.responses.instructions = 1;
  }
  if (const JsonValue* previous = present(body, "previous_response_id")) {
    if (!previous->is_string()) {
      return err(Code::kInvalid, "previous_response_id must be a string, got {}",
                 previous->kind_name());
    }
    CEDRA_ASSIGN(std::vector<Message> earlier, rules.previous_response(previous->text()));
    std::ranges::move(earlier, std::back_inserter(items.messages()));
  }
  const JsonValue* input = present(body, "input");
  if (input != nullptr && input->is_array()) {
    CEDRA_TRY(check_count("input", input->items().size(), kMaxMessages));
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
  out.warnings = std::move(items.warnings());
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
                           rules, out.options, out.warnings));
  CEDRA_ASSIGN(const JsonValue* text, get_object(body, "text"));
  const JsonValue* format = text == nullptr ? nullptr : present(*text, "format");
  CEDRA_TRY(apply_response_format(format, "text.format", out));
  if (out.response_format.kind == StructuredFields::Kind::kJsonObject) {
    CEDRA_TRY(check_json_word(out.conversation, rules, out.warnings));
  }
  return out;
}

}  // namespace cedra::text::detail

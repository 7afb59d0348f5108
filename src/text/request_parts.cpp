// Blocks, tools, switches and checks that the routes share.
#include "text/request_parts.h"

#include <algorithm>
#include <unordered_set>

#include "text/markup.h"
#include "text/special_tokens.h"

namespace cedra::text::detail {
namespace {

constexpr size_t kMaxToolName = 128;

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// A URL under any of the shapes that clients use; nullptr if there is none.
const JsonValue* find_url(const JsonValue& value) {
  if (value.is_string()) return &value;
  const JsonValue* url = present(value, "url");
  return url != nullptr && url->is_string() ? url : nullptr;
}

// Where an image block's image is. Base64 sources become data URLs.
Result<std::string> image_source(const JsonValue& block, std::string_view where) {
  const JsonValue* holder = present(block, "source");
  const JsonValue* kind = holder == nullptr ? nullptr : present(*holder, "type");
  if (present(block, "file_id") != nullptr ||
      (kind != nullptr && kind->is_string() && kind->text() == "file")) {
    return err(Code::kInvalid,
               "{}: files are not kept here, so file_id is not supported; send the image as a URL "
               "or as base64 data",
               where);
  }
  for (const std::string_view key : {"image_url", "image", "url"}) {
    if (const JsonValue* value = present(block, key)) {
      if (const JsonValue* url = find_url(*value)) return url->text();
    }
  }
  if (const JsonValue* source = present(block, "source")) {
    if (const JsonValue* url = find_url(*source)) return url->text();
    const JsonValue* type = present(*source, "media_type");
    const JsonValue* data = present(*source, "data");
    if (type != nullptr && type->is_string() && data != nullptr && data->is_string()) {
      return fmt::format("data:{};base64,{}", type->text(), data->text());
    }
  }
  return err(Code::kInvalid, "{}: an image block needs a url or base64 data", where);
}

// Beside image_url or in it. Everything but "low" means the same: as large as the model takes it.
Result<bool> wants_low_detail(const JsonValue& block, std::string_view where) {
  const JsonValue* detail = present(block, "detail");
  if (const JsonValue* url = present(block, "image_url"); url != nullptr && url->is_object()) {
    if (const JsonValue* inner = present(*url, "detail")) detail = inner;
  }
  if (detail == nullptr) return false;
  const std::string_view name =
      detail->is_string() ? std::string_view(detail->text()) : detail->kind_name();
  if (name == "low") return true;
  if (name == "high" || name == "auto" || name == "original") return false;
  return err(Code::kInvalid, "{}: detail must be low, high, auto or original, got '{}'", where,
             name.substr(0, 40));
}

std::vector<ToolProperty> properties_of(const JsonValue* schema) {
  std::vector<ToolProperty> out;
  const JsonValue* properties = schema == nullptr ? nullptr : present(*schema, "properties");
  if (properties == nullptr || !properties->is_object()) return out;
  for (const auto& [name, property] : properties->members()) {
    const JsonValue* type = present(property, "type");
    out.push_back({name, type != nullptr && type->is_string() && type->text() == "string"});
  }
  return out;
}

bool contains_json(std::string_view text) {
  constexpr std::string_view kWord = "json";
  const auto same = [](char a, char b) { return (a | 0x20) == b; };
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), same) != text.end();
}

}  // namespace

Result<ContentPart> parse_block(const JsonValue& block, std::string_view where) {
  if (block.is_string()) return ContentPart{ContentPart::Kind::kText, block.text()};
  const JsonValue* type = present(block, "type");
  if (type == nullptr || !type->is_string()) {
    return err(Code::kInvalid, "{}: a content block needs a type", where);
  }
  const std::string& name = type->text();
  if (name == "text" || name == "input_text" || name == "output_text") {
    const JsonValue* text = present(block, "text");
    if (text == nullptr || !text->is_string()) {
      return err(Code::kInvalid, "{}.text must be a string", where);
    }
    return ContentPart{ContentPart::Kind::kText, text->text()};
  }
  if (name == "image" || name == "image_url" || name == "input_image") {
    ContentPart part{ContentPart::Kind::kImage, {}, std::string(where)};
    CEDRA_ASSIGN(part.text, image_source(block, where));
    CEDRA_ASSIGN(part.low_detail, wants_low_detail(block, where));
    return part;
  }
  return ContentPart{ContentPart::Kind::kUnsupported, name, std::string(where)};
}

Result<std::vector<ContentPart>> parse_content(const JsonValue* content, std::string_view where) {
  std::vector<ContentPart> parts;
  if (content == nullptr || content->is_null()) return parts;
  if (content->is_string()) {
    parts.push_back({ContentPart::Kind::kText, content->text()});
    return parts;
  }
  if (!content->is_array()) {
    return err(Code::kInvalid, "{}.content must be a string or a list of blocks, got {}", where,
               content->kind_name());
  }
  for (size_t i = 0; i < content->items().size(); ++i) {
    CEDRA_ASSIGN(auto part,
                 parse_block(content->items()[i], fmt::format("{}.content.{}", where, i)));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<ToolDefinition> make_tool(const JsonValue& tool, std::string_view where,
                                 std::string_view schema_key) {
  if (!tool.is_object()) {
    return err(Code::kInvalid, "{} must be an object, got {}", where, tool.kind_name());
  }
  ToolDefinition out;
  CEDRA_ASSIGN(out.name, get_string(tool, "name", where));
  if (!is_tool_name(out.name)) {
    return err(Code::kInvalid,
               "{}.name: expected 1-128 ASCII letters, digits, underscores or hyphens", where);
  }
  CEDRA_ASSIGN(out.description, get_string(tool, "description", where));
  const JsonValue* schema = present(tool, schema_key);
  if (schema != nullptr) {
    const JsonValue* type = present(*schema, "type");
    const bool is_object =
        schema->is_object() && (type == nullptr || (type->is_string() && type->text() == "object"));
    if (!is_object) {
      return err(Code::kInvalid, "{}.{} must be a JSON Schema of type object", where, schema_key);
    }
  }
  out.parameters = schema == nullptr ? "{}" : python_json(*schema);
  out.function = python_json(tool);
  out.properties = properties_of(schema);
  CEDRA_ASSIGN(out.strict, get_bool(tool, "strict", false));
  return out;
}

Result<ToolDefinition> make_custom_tool(const JsonValue& tool, std::string_view where) {
  CEDRA_ASSIGN(std::string name, get_string(tool, "name", where));
  CEDRA_ASSIGN(std::string description, get_string(tool, "description", where));
  std::vector<JsonValue::Member> text{{"type", JsonValue::string("string")}};
  std::vector<JsonValue::Member> properties{{"input", JsonValue::object(std::move(text))}};
  std::vector<JsonValue::Member> schema{
      {"type", JsonValue::string("object")},
      {"properties", JsonValue::object(std::move(properties))},
      {"required", JsonValue::array({JsonValue::string("input")})}};
  std::vector<JsonValue::Member> function{
      {"name", JsonValue::string(std::move(name))},
      {"description", JsonValue::string(std::move(description))},
      {"parameters", JsonValue::object(std::move(schema))}};
  CEDRA_ASSIGN(auto out, make_tool(JsonValue::object(std::move(function)), where, "parameters"));
  out.custom = true;
  return out;
}

Result<> check_count(std::string_view name, size_t count, size_t most) {
  if (count <= most) return {};
  return err(Code::kInvalid, "{} may have at most {} entries, got {}", name, most, count);
}

Result<> check_unique(const std::vector<ToolDefinition>& tools) {
  std::unordered_set<std::string_view> names;
  for (const ToolDefinition& tool : tools) {
    if (!names.insert(tool.name).second) return err(Code::kInvalid, "Tool names must be unique");
  }
  return {};
}

Result<> apply_thinking(const ThinkingFields& fields, const RequestRules& rules,
                        ChatOptions& options, std::vector<std::string>& warnings) {
  std::optional<bool> thinking;
  bool adaptive = false;  // the client leaves it to us
  const JsonValue* effort = fields.effort;
  options.drop_thinking = !rules.hosted;
  if (fields.kwargs != nullptr) {
    const JsonValue& kwargs = *fields.kwargs;
    if (!kwargs.is_object()) {
      return err(Code::kInvalid, "chat_template_kwargs must be an object, got {}",
                 kwargs.kind_name());
    }
    for (const std::string_view key : {"enable_thinking", "thinking"}) {
      if (present(kwargs, key) == nullptr) continue;
      CEDRA_ASSIGN(const bool value, get_bool(kwargs, key, false));
      thinking = value;
    }
    if (const JsonValue* value = present(kwargs, "reasoning_effort")) effort = value;
    CEDRA_ASSIGN(options.drop_thinking, get_bool(kwargs, "drop_thinking", options.drop_thinking));
  }
  if (fields.thinking != nullptr) {
    const JsonValue* type = present(*fields.thinking, "type");
    const std::string_view name =
        type != nullptr && type->is_string() ? std::string_view(type->text()) : "";
    if (name != "enabled" && name != "adaptive" && name != "disabled") {
      return err(Code::kInvalid, "thinking.type: expected enabled, adaptive or disabled, got '{}'",
                 name.substr(0, 40));
    }
    thinking = name != "disabled";
    adaptive = name == "adaptive";
  }
  std::optional<int> value;
  if (effort != nullptr) {
    if (effort->is_string()) {
      CEDRA_ASSIGN(value, effort_value(effort->text(), rules.efforts));
    } else if (effort->is_integer()) {
      CEDRA_ASSIGN(value, effort_value(effort->as_int64().value_or(-1)));
    } else {
      return err(Code::kInvalid, "reasoning_effort: expected a name or an integer, got {}",
                 effort->kind_name());
    }
  }
  options.thinking = thinking.value_or(value ? *value > 0 : rules.default_thinking);
  options.effort = value.value_or(0) > 0 ? *value : kDefaultEffort;
  const bool forced = options.tool_choice.kind == ToolChoice::Kind::kRequired ||
                      options.tool_choice.kind == ToolChoice::Kind::kNamed;
  if (forced && options.thinking && !rules.hosted && (adaptive || !thinking)) {
    options.thinking = false;
    warnings.emplace_back("tool_choice forces a call, so the model answers without thinking");
  }
  return {};
}

Result<> check_json_word(const Conversation& conversation, const RequestRules& rules,
                         std::vector<std::string>& warnings) {
  for (const Message& message : conversation.messages) {
    for (const ContentPart& part : message.content) {
      if (part.kind == ContentPart::Kind::kText && contains_json(part.text)) return {};
    }
  }
  constexpr std::string_view kText =
      "Prompt must contain the word 'json' in some form to use 'response_format' of type "
      "'json_object'.";
  if (rules.hosted) return err(Code::kInvalid, "{}", kText);
  warnings.emplace_back(kText);
  return {};
}

Result<> check_parts(const Conversation& conversation, const RequestRules& rules) {
  if (rules.hosted) return {};
  for (const Message& message : conversation.messages) {
    // What a client gives back of earlier answers may hold anything.
    if (message.role == Role::kAssistant) continue;
    for (const ContentPart& part : message.content) {
      if (part.kind == ContentPart::Kind::kUnsupported) {
        return err(Code::kInvalid, "{}: parts of type '{}' are not supported; send text or images",
                   part.where, part.text.substr(0, 40));
      }
    }
  }
  if (!rules.strict_image_placeholder) return {};
  const auto marked = [](std::string_view text) {
    return text.find(markup::kImage) != text.npos || text.find(kImageTextToolkit) != text.npos;
  };
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    bool any = marked(message.reasoning);
    for (const ContentPart& part : message.content) {
      any = any || (part.kind == ContentPart::Kind::kText && marked(part.text));
    }
    for (const ToolCall& call : message.tool_calls) {
      any = any || marked(call.name) || marked(call.arguments);
    }
    if (any) {
      return err(Code::kInvalid, "message {} ({}): the text holds the image placeholder {}", i,
                 role_name(message.role), markup::kImage);
    }
  }
  return {};
}

Result<> check_call_answers(const std::vector<Message>& messages, const RequestRules& rules,
                            std::vector<std::string>& warnings) {
  constexpr std::string_view kOrphan =
      "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'";
  constexpr std::string_view kMissing =
      "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
      "'tool_call_id'. (insufficient tool messages following tool_calls message)";
  bool any_call = false;
  bool warned = false;
  for (size_t i = 0; i < messages.size();) {
    const Message& message = messages[i++];
    if (message.role == Role::kTool) {
      // Only reached by answers that stand behind no assistant message.
      if (rules.hosted || !any_call) return err(Code::kInvalid, "{}", kOrphan);
      continue;
    }
    if (message.role != Role::kAssistant || message.tool_calls.empty()) continue;
    any_call = true;
    std::unordered_set<std::string_view> open;
    for (const ToolCall& call : message.tool_calls) open.insert(call.id);
    for (; i < messages.size() && messages[i].role == Role::kTool; ++i) {
      if (open.erase(messages[i].tool_call_id) == 0 && rules.hosted) {
        return err(Code::kInvalid, "{}", kOrphan);
      }
    }
    if (open.empty()) continue;
    if (rules.hosted) return err(Code::kInvalid, "{}", kMissing);
    if (!warned) warnings.emplace_back(kMissing);
    warned = true;
  }
  return {};
}

Result<> apply_response_format(const JsonValue* format, std::string_view field,
                               ParsedRequest& request) {
  if (format == nullptr) return {};
  CEDRA_ASSIGN(request.response_format, parse_response_format(*format, field));
  if (request.response_format.kind != StructuredFields::Kind::kNone) {
    request.conversation.response_format = response_format_prompt(request.response_format);
  }
  return {};
}

}  // namespace cedra::text::detail

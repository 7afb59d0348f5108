// Pieces that the three request routes share; internal to text/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_json.h"

namespace cedra::text::detail {

// The member if it is there and not null.
const JsonValue* present(const JsonValue& object, std::string_view key);

// Content as a string, null, or a list of typed blocks. `where` goes into messages.
Result<std::vector<ContentPart>> parse_content(const JsonValue* content, std::string_view where);
// One block; nullopt for a block that stands for nothing in the prompt.
Result<ContentPart> parse_block(const JsonValue& block, std::string_view where);

// A checked tool from its parts. `where` is the path of the tool, `schema_key` of the schema.
Result<ToolDefinition> make_tool(const JsonValue& tool, std::string_view where,
                                 std::string_view schema_key);
// A free-text tool, shown as a function with one string parameter "input".
Result<ToolDefinition> make_custom_tool(const JsonValue& tool, std::string_view where);
Result<> check_count(std::string_view name, size_t count, size_t most);
Result<> check_unique(const std::vector<ToolDefinition>& tools);

// The switches of chat.md 2.4, from wherever a route keeps them.
struct ThinkingFields {
  const JsonValue* thinking = nullptr;  // {type: ...}
  const JsonValue* kwargs = nullptr;    // chat_template_kwargs
  const JsonValue* effort = nullptr;    // name or integer
};
// After the tool choice is known: a forced tool turns thinking off where the client did not ask for
// it by name, and gives a warning.
Result<> apply_thinking(const ThinkingFields& fields, const RequestRules& rules,
                        ChatOptions& options, std::vector<std::string>& warnings);

// json_object asks for the word "json" somewhere in the texts.
Result<> check_json_word(const Conversation& conversation, const RequestRules& rules,
                         std::vector<std::string>& warnings);
// Parts of kinds that are not read, outside of earlier answers; with strict_image_placeholder, text
// that holds the placeholder. 400 naming the part or the message.
Result<> check_parts(const Conversation& conversation, const RequestRules& rules);
// Calls and their answers (chat.md 4.2).
Result<> check_call_answers(const std::vector<Message>& messages, const RequestRules& rules,
                            std::vector<std::string>& warnings);

// What `field` (response_format, or what the route calls it) asks for, into the request and its
// prompt. nullptr: nothing.
Result<> apply_response_format(const JsonValue* format, std::string_view field,
                               ParsedRequest& request);

// Everything else that steers generation.
Result<RequestFields> parse_fields(Route route, const JsonValue& body);

// Names of the members that mean nothing on this route, long ones cut.
std::vector<std::string> ignored_fields(Route route, const JsonValue& body);

// An object member; nullptr if absent.
Result<const JsonValue*> get_object(const JsonValue& object, std::string_view key);
// A boolean member; `fallback` if absent.
Result<bool> get_bool(const JsonValue& object, std::string_view key, bool fallback);
// A string member; "" if absent.
Result<std::string> get_string(const JsonValue& object, std::string_view key,
                               std::string_view where);

Result<ParsedRequest> parse_chat(JsonValue& body, const RequestRules& rules);
Result<ParsedRequest> parse_anthropic(JsonValue& body, const RequestRules& rules);
Result<ParsedRequest> parse_responses(JsonValue& body, const RequestRules& rules);

}  // namespace cedra::text::detail

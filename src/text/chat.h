// Conversations and the prompt they become (spec chat.md 2). The prompt is a list of stretches,
// template or client text, so that client text can never turn into control tokens (2.13).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/effort.h"
#include "text/tokenizer.h"

namespace cedra::text {

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool, kReminder };

// Quick-instruction tokens (chat.md 2.10).
enum class Task : uint8_t { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

struct ContentPart {
  enum class Kind : uint8_t { kText, kImage, kUnsupported };
  Kind kind = Kind::kText;
  // kText: the text. kImage: where the image is: an URL, "data:" ones included.
  // kUnsupported: the type's name, shown as "[Unsupported NAME]".
  std::string text;
  std::string where{};      // its path in the request, for messages about it
  bool low_detail = false;  // kImage: shrink it first (vision.md 10)
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // text as the client sent it; need not be JSON
};

// One property of a tool's parameters, as far as the output parser needs it.
struct ToolProperty {
  std::string name;
  bool is_string = false;  // the schema's type is "string" and nothing else
};

struct ToolDefinition {
  std::string name;
  std::string description;
  std::string parameters;  // JSON in Python's spelling
  // The whole function object in Python's spelling, with the keys the caller gave.
  std::string function;
  std::vector<ToolProperty> properties;
  bool strict = false;
  // A free-text tool of the Responses route: shown with one string parameter "input".
  bool custom = false;
  // A tool of a namespace (Responses): `name` is what the model sees, these are the client's.
  std::string space;
  std::string short_name;
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::string reasoning;             // assistant
  std::vector<ToolCall> tool_calls;  // assistant
  std::string tool_call_id;          // tool
  std::optional<Task> task;
  bool without_eos = false;           // assistant: leave the turn open (wo_eos, prefix)
  std::vector<ToolDefinition> tools;  // system; the conversation's own tools join the first one
  std::optional<std::string> response_format;  // system; JSON in Python's spelling
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<ToolDefinition> tools;
  // What stands under "## Response Format:", JSON in Python's spelling.
  std::optional<std::string> response_format;
};

struct ToolChoice {
  enum class Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // kNamed
};

struct ChatOptions {
  bool thinking = true;
  int effort = kDefaultEffort;  // 1..100, written in thinking mode only
  // Old reasoning vanishes unless a message carries tools (chat.md 2.5).
  bool drop_thinking = true;
  // The last message is an assistant's and goes on: no EOS, no new header.
  bool continue_final_message = false;
  // End the prompt with an assistant header.
  bool add_generation_prompt = true;
  // Where headers stand. false: as in the reference, after a user-like turn that is followed by
  // nothing, an assistant or a reminder. true: directly before each assistant message and, with
  // add_generation_prompt, at the end (what a server needs, chat.md 2.11 and 2.12).
  bool header_last = true;
  ToolChoice tool_choice;
  // Schema lines with all keys of the caller's function objects (the reference), or with name,
  // description and parameters only (the hosted API).
  bool all_schema_keys = false;
};

// Where the output parser starts: what the prompt's end leaves open.
enum class ParserStart : uint8_t { kReasoning, kContent, kCalls };

struct PromptImage {
  std::string source;  // of its block: ContentPart::text
  std::string where;   // and ContentPart::where
  bool low_detail = false;
  size_t segment = 0;  // index of the stretch that holds its image token, alone
};

struct Prompt {
  std::vector<Segment> segments;  // no two neighbours of one kind, except around image tokens
  ParserStart start = ParserStart::kContent;
  std::vector<PromptImage> images;    // in the order of their tokens
  std::vector<ToolDefinition> tools;  // those shown to the model; the output parser wants them
  std::vector<std::string> warnings;  // what was accepted but looks wrong, for logs and users

  std::string text() const;  // all stretches joined
};

// kInvalid: effort out of 1..100, an unknown named tool, a tool message before any call, a forced
// tool with thinking on, an image in a system or assistant message, continue_final_message without
// a final assistant message, or a message field where its role has none.
Result<Prompt> encode_chat(const Conversation& conversation, const ChatOptions& options);

// /v1/completions: trusted text; BOS is put in front unless it is there or add_bos is false.
Prompt completion_prompt(std::string_view text, bool add_bos);
// Fill in the middle (chat.md 2.11); prefix and suffix are client text.
Prompt fim_prompt(std::string_view prefix, std::string_view suffix);

std::string_view task_token(Task task);
std::optional<Task> task_by_name(std::string_view name);
std::string_view role_name(Role role);

}  // namespace cedra::text

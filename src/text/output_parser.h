// What the model writes, to what a client expects: reasoning, content and tool calls as one
// incremental state machine over text pieces of any size (spec chat.md 3). Linear time; holds back
// only what can still become a marker. Nothing the model writes is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"

namespace cedra::text {

struct ParserOptions {
  ParserStart start = ParserStart::kContent;
  // Empty: no tools declared, call markup is ordinary text.
  std::vector<ToolDefinition> tools;
  // Makes the id of call `index`; "call_<index>" if empty. Must be unique in a response.
  std::function<std::string(int index)> make_id;
  // At most so many calls; 0: any number (parallel_tool_calls: false gives 1).
  int max_calls = 0;
  // Stop strings; they look at content only, and are not part of it. Empty ones are ignored.
  std::vector<std::string> stop;
  // Recognise the end-of-sentence token by its text. Servers know it by id and leave this off, so
  // that an answer may mention it.
  bool eos_in_text = false;
};

struct OutputEvent {
  enum class Kind : uint8_t { kReasoning, kContent, kCallStart, kArguments, kCallEnd };
  Kind kind = Kind::kContent;
  // kReasoning, kContent: the piece. kArguments: a piece of the arguments' JSON text.
  // kCallStart: the function's name, never empty.
  std::string text;
  int call = 0;    // index of the call, from 0; call events only
  std::string id;  // kCallStart
};

// How generation ended, as the engine saw it. kStopToken: a stop token of the request.
enum class OutputEnd : uint8_t { kEos, kStopToken, kLength, kAborted };
enum class FinishReason : uint8_t { kStop, kLength, kToolCalls, kAborted };
std::string_view finish_name(FinishReason reason);  // "stop", "length", "tool_calls", "aborted"

class OutputParser {
 public:
  explicit OutputParser(ParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // The events of one more piece of text, in order. Neighbouring deltas of one kind are joined.
  std::vector<OutputEvent> push(std::string_view piece);
  // Releases what was held back. Closes what the model left open, unless it was cut off (kLength,
  // kAborted): then arguments stay the unfinished text that was sent.
  std::vector<OutputEvent> finish(OutputEnd end);

  // Nothing more can come: the calls block is closed, a stop string matched, or EOS was seen.
  // Generation may stop.
  bool done() const;
  // The stop string that ended the content, "" if none did.
  std::string_view matched_stop() const;
  bool in_reasoning() const;  // the next text would be reasoning
  bool in_call() const;       // the next text would be inside a calls block
  int calls() const;          // started so far
  // After finish().
  FinishReason finish_reason() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The whole message of a text; what a client would have put together from the events.
struct ParsedCall {
  std::string id;
  std::string name;
  std::string arguments;
  bool operator==(const ParsedCall&) const = default;
};
struct ParsedMessage {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;
  FinishReason finish = FinishReason::kStop;
  bool operator==(const ParsedMessage&) const = default;

  void add(const std::vector<OutputEvent>& events);
};
// The free text of a Responses custom tool (ToolDefinition::custom) from its call's arguments: the
// one string parameter "input", raw; nullopt if the arguments are anything else.
std::optional<std::string> custom_tool_input(std::string_view arguments);

// {"reasoning_content": ..., "content": ..., "tool_calls": [{"name", "arguments"}]}, as in the
// vectors.
std::string message_json(const ParsedMessage& message);

ParsedMessage parse_output(std::string_view text, ParserOptions options, OutputEnd end);

}  // namespace cedra::text

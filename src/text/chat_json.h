// Request bodies to conversations: /v1/chat/completions, /v1/messages and /v1/responses (spec
// chat.md 4.2, 4.5, 4.6), with the error texts clients already know
// (tests/data/chat/requests.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/chat.h"
#include "text/json_value.h"

namespace cedra::text {

enum class Route : uint8_t { kChatCompletions, kMessages, kResponses };

struct RequestRules {
  // true: the hosted API's rules to the letter. false: what a local server should accept
  // (4.2, 4.3): calls without an answer and json_object without the word "json" give warnings, and
  // old reasoning follows the reference (2.12).
  bool hosted = false;
  EffortTable efforts = effort_table("");
  bool default_thinking = true;
  JsonLimits limits;
};

enum class ResponseFormatKind : uint8_t { kText, kJsonObject, kJsonSchema };

// The fields that steer generation. Absent ones are nullopt: defaults are the server's.
struct RequestFields {
  std::string model;
  bool stream = false;
  std::optional<bool> include_usage;  // stream_options.include_usage
  std::optional<int64_t> max_tokens;  // also max_completion_tokens, max_output_tokens
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> repetition_penalty;
  std::optional<double> min_p;
  std::optional<int64_t> top_k;
  std::optional<int64_t> min_tokens;
  std::optional<int64_t> seed;
  int64_t n = 1;
  bool ignore_eos = false;
  std::vector<std::string> stop;  // also stop_sequences
  std::vector<int32_t> stop_token_ids;
  std::vector<std::pair<int32_t, double>> logit_bias;
  bool logprobs = false;
  int64_t top_logprobs = 0;
  bool parallel_tool_calls = true;
  bool return_token_ids = false;
  std::string cache_salt;
  int64_t priority = 0;
};

struct ParsedRequest {
  Conversation conversation;
  ChatOptions options;
  RequestFields fields;
  ResponseFormatKind response_format = ResponseFormatKind::kText;
  std::string json_schema;  // kJsonSchema: the schema, Python's spelling
  std::vector<std::string> warnings;
};

// kInvalid (HTTP 400) with the text for the client; kTooLarge past a limit of `rules`.
Result<ParsedRequest> parse_request(Route route, std::string_view body, const RequestRules& rules);
// nullopt for other paths. "/v1" may be missing; "/beta" and "/anthropic" may stand in front.
std::optional<Route> route_by_path(std::string_view path);

// The shape of encode_reference.json and of `cedra encode`: {messages, options}, tools and
// response_format on messages; options thinking, reasoning_effort, drop_thinking,
// continue_final_message. Reference rules throughout.
struct ReferenceCase {
  Conversation conversation;
  ChatOptions options;
};
Result<ReferenceCase> parse_reference_case(const JsonValue& value);

// A prompt from either shape, as `cedra encode` reads it: the reference's if the text is a list of
// messages, has "options", or a message carries tools, response_format or task; else a request body
// of `route`. The warnings of the request are the prompt's.
Result<Prompt> prompt_from_json(std::string_view text, Route route, const RequestRules& rules);

// The pieces that other servers' routes (/tokenize) share.
Result<std::vector<Message>> parse_messages(const JsonValue& messages, const RequestRules& rules,
                                            std::vector<std::string>& warnings);
Result<std::vector<ToolDefinition>> parse_tools(const JsonValue& tools);

}  // namespace cedra::text

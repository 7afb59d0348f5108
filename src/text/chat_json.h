// Request bodies to conversations: /v1/chat/completions, /v1/messages and /v1/responses (spec
// chat.md 4.2, 4.5, 4.6), with the error texts clients already know
// (tests/data/chat/requests.json).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/chat.h"
#include "text/json_value.h"
#include "text/structured_fields.h"

namespace cedra::text {

enum class Route : uint8_t { kChatCompletions, kMessages, kResponses };

// The messages of an earlier response's whole conversation, answer included, or why they are not
// there (kNotFound).
using PreviousResponse = std::function<Result<std::vector<Message>>(std::string_view id)>;

struct RequestRules {
  // true: the hosted API's rules to the letter. false: what a local server should accept
  // (4.2, 4.3): calls without an answer and json_object without the word "json" give warnings, and
  // old reasoning follows the reference (2.12).
  bool hosted = false;
  EffortTable efforts = effort_table("");
  bool default_thinking = true;
  bool strict_image_placeholder = false;  // refuse text that holds it, as the vendor does
  JsonLimits limits;
  bool count_only = false;             // messages: nothing is generated, max_tokens may be missing
  PreviousResponse previous_response;  // empty: previous_response_id is refused
};

// Counts that a body may not exceed.
inline constexpr size_t kMaxMessages = 16384;  // also items of the Responses route
inline constexpr size_t kMaxTools = 1024;
inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr size_t kMaxStopTokenIds = 128;

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

// What only the Responses route has.
struct ResponsesFields {
  size_t instructions = 0;  // leading messages that the next request does not inherit
  bool store = true;
  bool reasoning_summary = false;    // reasoning is wanted as a summary
  bool encrypted_reasoning = false;  // and in encrypted_content
  // Members that the response repeats: name, JSON. Absent ones are not listed.
  std::vector<std::pair<std::string, std::string>> echo;
};

struct ParsedRequest {
  Conversation conversation;
  ChatOptions options;
  RequestFields fields;
  StructuredFields response_format;  // kNone, kJsonObject or kJsonSchema
  StructuredFields structured;       // chat completions: the other fields
  ResponsesFields responses;
  std::vector<std::string> warnings;
  std::vector<std::string> ignored;  // names of members of the body that mean nothing here
};

// kInvalid (HTTP 400) with the text for the client; kTooLarge past a limit of `rules`.
Result<ParsedRequest> parse_request(Route route, std::string_view body, const RequestRules& rules);
// Whether a member of the body means something on this route.
bool is_known_field(Route route, std::string_view name);
// Reasoning that a client gives back in encrypted_content begins with this; nothing is encrypted.
inline constexpr std::string_view kReasoningMark = "cedra:";
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

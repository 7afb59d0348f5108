// Bodies of /v1/completions, /tokenize and /detokenize (spec chat.md 2.11, 4.7). Chat bodies are
// text/chat_json.h's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_json.h"

namespace cedra::server {

// A prompt is text or token ids.
struct CompletionPrompt {
  std::string text;
  std::vector<int32_t> ids;
  bool is_ids = false;
};

struct CompletionRequest {
  std::vector<CompletionPrompt> prompts;  // at least one
  std::optional<std::string> suffix;      // fill in the middle
  bool add_special_tokens = true;         // put BOS in front of text prompts
  bool echo = false;                      // begin the answer with the prompt
  int logprobs = -1;                      // -1 = none
  int prompt_logprobs = -1;
  text::RequestFields fields;
  std::vector<std::string> ignored;   // names of members of the body that mean nothing here
  text::StructuredFields structured;  // also response_format
};

// Whether a member of a /v1/completions body means something.
bool is_known_completion_field(std::string_view name);

struct TokenizeRequest {
  std::optional<std::string> prompt;  // absent: `messages`, read by the chat code
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct RequestLimits {
  int64_t max_choices = 128;  // prompts * n
  int max_logprobs = 20;
  size_t max_stop_strings = 16;
  size_t max_stop_bytes = 4096;  // of one stop string
};

// All errors are kInvalid and name the field, or kTooLarge.
Result<CompletionRequest> parse_completion(std::string_view body, const RequestLimits& limits);
Result<TokenizeRequest> parse_tokenize(std::string_view body);
Result<std::vector<int32_t>> parse_detokenize(std::string_view body);

// Limits of this server on fields that both generating routes share.
Result<> check_fields(const text::RequestFields& fields, size_t prompts,
                      const RequestLimits& limits);

}  // namespace cedra::server

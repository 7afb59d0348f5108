// From a parsed body to what the engine and the renderer need: prompt ids, sampling, parser state.
// Pure: no sockets, no clock, no randomness of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/grammar_compile.h"
#include "engine/engine.h"
#include "server/api.h"
#include "server/completion_request.h"
#include "server/image_input.h"
#include "text/chat_json.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace cedra::server {

// Under which of its two names chat completions send reasoning.
struct ReasoningNames {
  bool content = true;  // "reasoning_content"
  bool plain = false;   // "reasoning"
};

// What requests are read against; constant while serving.
struct ModelContext {
  const text::Tokenizer* tokenizer = nullptr;
  engine::Info info;
  const ImageInput* images = nullptr;  // not null
  bool strict_image_placeholder = false;
  std::vector<std::string> names;  // served model names, first is the main one; not empty
  RequestLimits limits;
  bool default_thinking = true;
  ReasoningNames reasoning_names;
  decode::GrammarCache* grammars = nullptr;  // nullptr: no structured outputs
  // Sampling where a request says nothing: temperature, top_p and top_k are used.
  engine::SamplingParams defaults;
};

struct Plan {
  Api api = Api::kChat;
  std::string model;  // as the response names it
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool thinking = false;
  bool logprobs = false;  // chat: send them
  ReasoningNames reasoning_names;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<engine::ImageSpan> images;  // of the one prompt of a conversation
  int64_t n = 1;
  engine::SamplingParams sampling;  // seed absent: to be drawn; choice i uses seed + i
  text::ParserOptions parser;       // all but completions; make_id is the renderer's
  std::vector<std::string> stop;    // completions
  // Completions: the answer begins with the prompt, from this token of it on (behind a BOS that the
  // client did not write).
  bool echo = false;
  std::vector<size_t> echo_from;  // per prompt
  bool prompt_logprobs = false;   // send them
  bool prompt_only = false;       // max_tokens 0: the token that the engine must make is not shown
  int priority = 0;
  std::string cache_salt;
  std::vector<std::string> warnings;
  std::vector<std::string> ignored;  // members of the body that mean nothing here
  // Responses: its own fields, the conversation as the next request inherits it, and where the
  // answer to it is to be kept, if it is; `body` is the response object.
  text::ResponsesFields responses;
  std::vector<text::Message> history;
  std::function<void(const std::string& id, text::Message answer, std::string body)> keep;

  size_t choices() const { return prompts.size() * static_cast<size_t>(n); }
};

Result<Plan> plan_chat(std::string_view body, const ModelContext& model);
Result<Plan> plan_messages(std::string_view body, const ModelContext& model);
Result<Plan> plan_responses(std::string_view body, const ModelContext& model,
                            text::PreviousResponse previous);
Result<Plan> plan_completion(std::string_view body, const ModelContext& model);
// Prompt ids of a /tokenize body, and whether the strings were asked for.
struct TokenizePlan {
  std::vector<int32_t> ids;
  bool with_strings = false;
};
Result<TokenizePlan> plan_tokenize(std::string_view body, const ModelContext& model);
// Tokens of the prompt of a /messages/count_tokens body.
Result<int64_t> plan_count(std::string_view body, const ModelContext& model);
// Ids of a /detokenize body.
Result<std::vector<int32_t>> plan_detokenize(std::string_view body, const ModelContext& model);

}  // namespace cedra::server

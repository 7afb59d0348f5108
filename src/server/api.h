// Whose API a request speaks: it decides how answers, events and errors are spelled.
#pragma once

#include <cstdint>

namespace cedra::server {

enum class Api : uint8_t {
  kChat,         // OpenAI chat completions; also every route that generates nothing
  kCompletions,  // OpenAI completions
  kResponses,    // OpenAI responses
  kMessages,     // Anthropic messages
};

}  // namespace cedra::server

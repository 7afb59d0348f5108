// Errors as HTTP: the one table from Code to status, and the bodies clients know (spec chat.md 4.4,
// 4.6).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/api.h"
#include "server/http.h"

namespace cedra::server {

int http_status(Code code);

// How an error about a prompt over the context begins. Agents look for these words, and for
// OpenAI's code "context_length_exceeded", to know that they should shorten their history.
inline constexpr std::string_view kPromptTooLong = "prompt is too long";

// How the refusal of Anthropic's message threads begins. Their clients find "details" in its body
// and send the whole conversation instead.
inline constexpr std::string_view kNoThreads = "thread: ";

// OpenAI: {"error": {"message", "type", "param": null, "code"}}, without the status. Anthropic:
// {"type": "error", "error": {"type", "message"}}. `status`: 0 = the code's own.
std::string error_json(const Error& error, Api api = Api::kChat, int status = 0);
// The same as a response; 429 and 503 carry Retry-After.
HttpResponse error_response(const Error& error, Api api = Api::kChat, int status = 0);

}  // namespace cedra::server

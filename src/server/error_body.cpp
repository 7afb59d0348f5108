// The tables, and the bodies.
#include "server/error_body.h"

#include <array>

#include "server/json_writer.h"

namespace cedra::server {
namespace {

struct Row {
  Code code;
  int status;
};

constexpr std::array<Row, 10> kTable{{
    {Code::kInvalid, 400},
    {Code::kNotFound, 404},
    {Code::kUnsupported, 400},
    {Code::kCorrupt, 500},
    {Code::kTooLarge, 400},
    {Code::kExhausted, 429},
    {Code::kUnavailable, 503},
    {Code::kCancelled, 499},
    {Code::kIo, 500},
    {Code::kInternal, 500},
}};

struct Types {
  int status;
  const char* openai;
  const char* anthropic;
};

// The last row is for every other status.
constexpr std::array<Types, 10> kTypes{{
    {400, "invalid_request_error", "invalid_request_error"},
    {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},
    {405, "not_found_error", "not_found_error"},
    {413, "invalid_request_error", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_error"},
    {499, "cancelled", "api_error"},
    {503, "service_unavailable_error", "overloaded_error"},
    {0, "server_error", "api_error"},
}};

const Types& types_of(int status) {
  for (const Types& row : kTypes) {
    if (row.status == status) return row;
  }
  return status == 431 ? kTypes.front() : kTypes.back();
}

}  // namespace

int http_status(Code code) { return kTable.at(static_cast<size_t>(code)).status; }

std::string error_json(const Error& error, Api api, int status) {
  const Types& types = types_of(status == 0 ? http_status(error.code) : status);
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  if (api == Api::kMessages) {
    json.key("type").string("error").key("error").begin_object();
    json.key("type").string(types.anthropic).key("message").string(error.message);
    if (error.message.starts_with(kNoThreads)) {
      json.key("details").begin_object().key("error_code").string("thread_unsupported_request");
      json.key("unsupported").begin_array().string("thread").end_array().end_object();
    }
    json.end_object().end_object();
    return out;
  }
  const bool too_long = error.message.starts_with(kPromptTooLong);
  json.key("error").begin_object();
  json.key("message").string(error.message).key("type").string(types.openai);
  json.key("param").null();
  json.key("code").string(too_long ? "context_length_exceeded" : types.openai);
  json.end_object().end_object();
  return out;
}

HttpResponse error_response(const Error& error, Api api, int status) {
  HttpResponse response;
  response.status = status == 0 ? http_status(error.code) : status;
  response.body = error_json(error, api, response.status);
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

}  // namespace cedra::server

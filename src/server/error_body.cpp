// The table, and the body.
#include "server/error_body.h"

#include <array>

#include "server/json_writer.h"

namespace cedra::server {
namespace {

struct Row {
  Code code;
  int status;
  const char* type;
};

constexpr std::array<Row, 10> kTable{{
    {Code::kInvalid, 400, "invalid_request_error"},
    {Code::kNotFound, 404, "not_found_error"},
    {Code::kUnsupported, 400, "invalid_request_error"},
    {Code::kCorrupt, 500, "server_error"},
    {Code::kTooLarge, 400, "invalid_request_error"},
    {Code::kExhausted, 429, "rate_limit_error"},
    {Code::kUnavailable, 503, "service_unavailable_error"},
    {Code::kCancelled, 499, "cancelled"},
    {Code::kIo, 500, "server_error"},
    {Code::kInternal, 500, "server_error"},
}};

const Row& row(Code code) { return kTable.at(static_cast<size_t>(code)); }

}  // namespace

int http_status(Code code) { return row(code).status; }

std::string error_json(const Error& error) {
  const char* type = row(error.code).type;
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("error").begin_object();
  json.key("message").string(error.message).key("type").string(type);
  json.key("param").null().key("code").string(type);
  json.end_object().end_object();
  return out;
}

HttpResponse error_response(const Error& error) {
  HttpResponse response;
  response.status = http_status(error.code);
  response.body = error_json(error);
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

}  // namespace cedra::server

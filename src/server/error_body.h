// Errors as HTTP: the one table from Code to status, and the body clients know (spec chat.md 4.4).
#pragma once

#include <string>

#include "base/result.h"
#include "server/http.h"

namespace cedra::server {

int http_status(Code code);

// {"error": {"message", "type", "param": null, "code"}}, without the status.
std::string error_json(const Error& error);
// The same as a response; 429 and 503 carry Retry-After.
HttpResponse error_response(const Error& error);

}  // namespace cedra::server

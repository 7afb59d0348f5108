// Headers and conditions of the page; its files are in the generated web_files.cpp.
#include "server/web_page.h"

#include <algorithm>
#include <string>

#include "server/error_body.h"

namespace cedra::server {
namespace {

// What the model writes reaches the page, so the browser itself refuses what could run it: scripts
// and styles come from this server's files only, inline ones do not count, strings never become
// markup (trusted types), and requests go nowhere else.
constexpr std::string_view kPolicy =
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

// If-None-Match: "*" or a list of tags, weak ones included.
bool has_tag(std::string_view header, std::string_view etag) {
  return header == "*" || header.find(etag) != std::string_view::npos;
}

}  // namespace

std::optional<HttpResponse> web_page(const HttpRequest& request) {
  const std::span<const WebFile> files = web_files();
  const auto file = std::ranges::find(files, std::string_view(request.path), &WebFile::path);
  if (file == files.end()) return std::nullopt;
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = error_response(
        Error{Code::kNotFound, "the web page is read with GET; the API is below /v1"}, Api::kChat,
        405);
    response.headers.emplace_back("Allow", "GET");
    return response;
  }
  HttpResponse response;
  response.status = has_tag(request.if_none_match, file->etag) ? 304 : 200;
  response.content_type = file->content_type;
  response.body = file->bytes;
  response.headers = {{"ETag", std::string(file->etag)},
                      {"Cache-Control", "no-cache"},  // keep it, and ask whether it still holds
                      {"Content-Security-Policy", std::string(kPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  return response;
}

}  // namespace cedra::server

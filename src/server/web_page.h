// The web page: "/" and its files under "/web/". They are the files of src/server/web, put into the
// program by cmake/embed_web.cmake; nothing is read from disk or from the network at run time.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/http.h"

namespace cedra::server {

struct WebFile {
  std::string_view path;  // "/" or "/web/NAME"
  std::string_view content_type;
  std::string_view etag;  // with its quotes; changes with the bytes
  std::string_view bytes;
};

std::span<const WebFile> web_files();

// The answer if the path is one of the page's: 200, 304 if the client has these bytes already (with
// the body whose length the head tells), 405 for methods besides GET and HEAD. Needs no API key:
// the page asks for one itself. nullopt for every other path.
std::optional<HttpResponse> web_page(const HttpRequest& request);

}  // namespace cedra::server

#include "server/routes.h"

namespace cedra::server {

namespace {

bool fits(std::string_view pattern, std::string_view path) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return pattern == path;
  return path.size() > brace && path.starts_with(pattern.substr(0, brace));
}

}  // namespace

const RouteRow* find_route(std::string_view method, std::string_view path, std::string& allowed) {
  // HEAD asks for the head of what GET gives; the connection leaves out the body.
  if (method == "HEAD") method = "GET";
  const RouteRow* row = nullptr;
  for (const RouteRow& candidate : kRoutes) {
    if (!fits(candidate.path, path)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += candidate.method;
    if (candidate.method == method) row = &candidate;
  }
  return row;
}

std::string_view without_prefixes(std::string_view path) {
  static constexpr std::array<std::string_view, 3> kPrefixes{"/beta", "/anthropic", "/v1"};
  for (const std::string_view prefix : kPrefixes) {
    if (path.starts_with(prefix) && path.size() > prefix.size() && path[prefix.size()] == '/') {
      path.remove_prefix(prefix.size());
    }
  }
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

Api api_of(std::string_view path) {
  path = without_prefixes(path);
  return path == "/messages" || path.starts_with("/messages/") ? Api::kMessages : Api::kChat;
}

std::string_view route_name(Api api) {
  switch (api) {
    case Api::kChat:
      return "/v1/chat/completions";
    case Api::kCompletions:
      return "/v1/completions";
    case Api::kResponses:
      return "/v1/responses";
    case Api::kMessages:
      break;
  }
  return "/v1/messages";
}

std::string_view id_prefix(Api api) {
  switch (api) {
    case Api::kChat:
      return "chatcmpl-";
    case Api::kCompletions:
      return "cmpl-";
    case Api::kResponses:
      return "resp_";
    case Api::kMessages:
      break;
  }
  return "msg_";
}

}  // namespace cedra::server

// The table of routes: methods, paths, which of them need a key, and what API they speak.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/api.h"

namespace cedra::server {

enum class Route : uint8_t {
  kHealth,
  kPing,
  kVersion,
  kMetrics,
  kOpenApi,
  kModels,
  kModel,
  kChat,
  kCompletions,
  kResponses,
  kKeptResponse,
  kDeleteResponse,
  kMessages,
  kCountTokens,
  kTokenize,
  kDetokenize,
};

struct RouteRow {
  std::string_view method;
  std::string_view path;  // after the prefixes; a last part in braces stands for anything
  Route route;
  bool open;  // needs no API key
};

inline constexpr std::array<RouteRow, 16> kRoutes{{
    {"GET", "/health", Route::kHealth, true},
    {"GET", "/ping", Route::kPing, true},
    {"GET", "/version", Route::kVersion, true},
    {"GET", "/metrics", Route::kMetrics, true},
    {"GET", "/openapi.json", Route::kOpenApi, true},
    {"GET", "/models", Route::kModels, false},
    {"GET", "/models/{model}", Route::kModel, false},
    {"POST", "/chat/completions", Route::kChat, false},
    {"POST", "/completions", Route::kCompletions, false},
    {"POST", "/responses", Route::kResponses, false},
    {"GET", "/responses/{response_id}", Route::kKeptResponse, false},
    {"DELETE", "/responses/{response_id}", Route::kDeleteResponse, false},
    {"POST", "/messages", Route::kMessages, false},
    {"POST", "/messages/count_tokens", Route::kCountTokens, false},
    {"POST", "/tokenize", Route::kTokenize, false},
    {"POST", "/detokenize", Route::kDetokenize, false},
}};

// The row of a method and path (HEAD counts as GET); nullptr if there is none. `allowed`: the
// methods of the path, "" if there is no such path.
const RouteRow* find_route(std::string_view method, std::string_view path, std::string& allowed);

// Clients keep the base URLs of other services: "/v1", "/beta", "/beta/v1" and so on.
std::string_view without_prefixes(std::string_view path);

// How errors of a path are spelled.
Api api_of(std::string_view path);

// "/v1/chat/completions" and so on; how ids of its answers begin ("chatcmpl-").
std::string_view route_name(Api api);
std::string_view id_prefix(Api api);

}  // namespace cedra::server

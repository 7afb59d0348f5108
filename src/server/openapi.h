// The OpenAPI document, src/server/openapi.json, as it is compiled into the program.
#pragma once

#include <string_view>

namespace cedra::server {

std::string_view openapi_json();

}  // namespace cedra::server

// Which web pages may use the server. Programs send no Origin and are not concerned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cedra::server {

enum class OriginRule : uint8_t {
  kOwn,      // a page that this server gave out
  kListed,   // --allowed-origins names it
  kForeign,  // any other
};

// `origin` and `host` are the request's headers. A page counts as our own if its host and port are
// the ones asked for. Without `keys` these must also be an address or localhost: anyone can make a
// name of his point here (DNS rebinding), and would then need nothing else.
OriginRule origin_rule(std::string_view origin, std::string_view host,
                       const std::vector<std::string>& allowed, bool keys);

}  // namespace cedra::server

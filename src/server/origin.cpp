#include "server/origin.h"

#include <algorithm>

namespace cedra::server {
namespace {

// "localhost", "1.2.3.4" or "[::1]", with or without a port.
bool is_address(std::string_view host) {
  if (host.starts_with('[')) return true;
  host = host.substr(0, host.find(':'));
  return host == "localhost" || (!host.empty() && std::ranges::all_of(host, [](char c) {
           return (c >= '0' && c <= '9') || c == '.';
         }));
}

}  // namespace

OriginRule origin_rule(std::string_view origin, std::string_view host,
                       const std::vector<std::string>& allowed, bool keys) {
  const auto names = [&](const std::string& entry) { return entry == "*" || entry == origin; };
  if (std::ranges::any_of(allowed, names)) return OriginRule::kListed;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && origin.substr(scheme.size()) == host &&
        (keys || is_address(host))) {
      return OriginRule::kOwn;
    }
  }
  return OriginRule::kForeign;
}

}  // namespace cedra::server

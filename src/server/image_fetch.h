// Fetching images from other servers, for those who allow it (vision.md 11): listed hosts only, and
// whatever a name or a redirect says, no connection to private, loopback or otherwise special
// addresses.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct sockaddr;

namespace cedra::server {

struct FetchOptions {
  std::vector<std::string> domains;  // exact hosts, in lower case; "*": any
  int max_redirects = 5;
  bool private_addresses = false;  // tests fetch from this machine
};

// The body behind a http or https URL. kInvalid for an URL or a host that is not allowed, a failed
// transfer, a status that is not 200; kTooLarge for more than `max_bytes`, or past the deadline.
// Every hop of a redirect is held to the same rules.
Result<std::vector<uint8_t>> fetch_url(const std::string& url, const FetchOptions& options,
                                       int64_t max_bytes,
                                       std::chrono::steady_clock::time_point deadline);

// Whether an address may be connected to: a public one of IPv4 or IPv6.
bool is_public_address(const sockaddr* address);
// What of an URL is not allowed; "" for one that may be fetched.
std::string url_problem(const std::string& url, const FetchOptions& options);

}  // namespace cedra::server

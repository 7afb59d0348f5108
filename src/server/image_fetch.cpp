#include "server/image_fetch.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/ascii.h"

namespace cedra::server {
namespace {

constexpr size_t kMaxUrl = 8192;
constexpr std::chrono::seconds kConnectTime{10};

struct Range {
  uint32_t network;
  int bits;
};
// IANA's special-purpose registry, without what is reachable from anywhere.
constexpr std::array<Range, 16> kSpecial{{
    {0x00000000, 8},   // this network
    {0x0A000000, 8},   // private
    {0x64400000, 10},  // carrier-grade NAT
    {0x7F000000, 8},   // loopback
    {0xA9FE0000, 16},  // link-local, cloud metadata
    {0xAC100000, 12},  // private
    {0xC0000000, 24},  // protocol assignments
    {0xC0000200, 24},  // documentation
    {0xC0586300, 24},  // 6to4 relays
    {0xC0A80000, 16},  // private
    {0xC6120000, 15},  // benchmarks
    {0xC6336400, 24},  // documentation
    {0xCB007100, 24},  // documentation
    {0xE0000000, 4},   // multicast
    {0xF0000000, 4},   // reserved
    {0xFFFFFFFF, 32},  // broadcast
}};

bool is_public_v4(uint32_t address) {
  return std::ranges::none_of(kSpecial, [&](const Range& range) {
    return ((address ^ range.network) >> (32 - range.bits)) == 0;
  });
}

bool is_public_v6(const uint8_t* a) {
  const auto v4 = [&](size_t at) {
    return static_cast<uint32_t>(a[at]) << 24 | static_cast<uint32_t>(a[at + 1]) << 16 |
           static_cast<uint32_t>(a[at + 2]) << 8 | a[at + 3];
  };
  // ::ffff:a.b.c.d is judged as a.b.c.d.
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::memcmp(a, kMapped, sizeof kMapped) == 0) return is_public_v4(v4(12));
  // Only 2000::/3 is given out, and of that not Teredo, documentation and 6to4, which hold or stand
  // for other addresses; 64:ff9b::/96 lies outside.
  if ((a[0] & 0xE0) != 0x20) return false;
  if (a[0] == 0x20 && a[1] == 0x01 && (a[2] & 0xFE) == 0) return false;            // 2001::/23
  if (a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x0D && a[3] == 0xB8) return false;  // 2001:db8::/32
  if (a[0] == 0x20 && a[1] == 0x02) return false;                                  // 2002::/16
  return !(a[0] == 0x3F && a[1] == 0xFF && (a[2] & 0xF0) == 0);                    // 3fff::/20
}

struct UrlParts {
  std::string scheme, host, port;
  bool credentials = false;
};

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

// False: no URL that the library could fetch.
bool parse_url(const std::string& text, UrlParts& out) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return false;
  }
  const auto part = [&](CURLUPart which, std::string& to, unsigned flags = 0) {
    char* value = nullptr;
    if (curl_url_get(url.get(), which, &value, flags) != CURLUE_OK) return false;
    to = value;
    curl_free(value);
    return true;
  };
  std::string ignored;
  out.credentials = part(CURLUPART_USER, ignored) || part(CURLUPART_PASSWORD, ignored);
  return part(CURLUPART_SCHEME, out.scheme) && part(CURLUPART_HOST, out.host) &&
         part(CURLUPART_PORT, out.port, CURLU_DEFAULT_PORT);
}

struct Transfer {
  std::vector<uint8_t> body;
  size_t most = 0;
  bool too_large = false;
  bool refused = false;  // an address that may not be connected to
  bool private_addresses = false;
};

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  if (transfer.body.size() + bytes > transfer.most) {
    transfer.too_large = true;
    return 0;
  }
  transfer.body.insert(transfer.body.end(), data, data + bytes);
  return bytes;
}

// Where a connection is made: the address here is the one that is connected to, so no name can mean
// one thing when it is checked and another when it is used.
curl_socket_t open_socket(void* user, curlsocktype, curl_sockaddr* address) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (!transfer.private_addresses && !is_public_address(&address->addr)) {
    transfer.refused = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};

}  // namespace

bool is_public_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    return is_public_v4(ntohl(v4.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    return is_public_v6(v6.sin6_addr.s6_addr);
  }
  return false;
}

std::string url_problem(const std::string& url, const FetchOptions& options) {
  if (url.size() > kMaxUrl) return fmt::format("it has more than {} bytes", kMaxUrl);
  UrlParts parts;
  if (!parse_url(url, parts)) return "it cannot be read as a URL";
  if (parts.scheme != "http" && parts.scheme != "https") {
    return fmt::format("'{}' is not http or https", parts.scheme.substr(0, 20));
  }
  if (parts.credentials) return "it carries a user name or password";
  if (!options.private_addresses && parts.port != "80" && parts.port != "443") {
    return fmt::format("port {} is not 80 or 443", parts.port);
  }
  parts.host = ascii_lower(std::move(parts.host));
  if (std::ranges::find(options.domains, parts.host) == options.domains.end() &&
      std::ranges::find(options.domains, "*") == options.domains.end()) {
    return fmt::format("host '{}' is not among the allowed ones", parts.host.substr(0, 100));
  }
  return {};
}

Result<std::vector<uint8_t>> fetch_url(const std::string& url, const FetchOptions& options,
                                       int64_t max_bytes,
                                       std::chrono::steady_clock::time_point deadline) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, FreeHandle> owned(curl_easy_init());
  CURL* handle = owned.get();
  if (handle == nullptr) return err(Code::kExhausted, "no memory to fetch the image");

  std::string next = url;
  for (int hop = 0; hop <= options.max_redirects; ++hop) {
    if (const std::string problem = url_problem(next, options); !problem.empty()) {
      return err(Code::kInvalid, "the image URL{} is not allowed: {}",
                 hop == 0 ? "" : " that the server redirects to", problem);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    if (left <= 0) return err(Code::kTooLarge, "fetching the image takes too long");
    Transfer transfer;
    transfer.most = static_cast<size_t>(max_bytes);
    transfer.private_addresses = options.private_addresses;
    curl_easy_reset(handle);
    curl_easy_setopt(handle, CURLOPT_URL, next.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);  // by hand, each with the same checks
    curl_easy_setopt(handle, CURLOPT_PROXY, "");           // whatever the environment says
    curl_easy_setopt(handle, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(left));
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, static_cast<long>(kConnectTime.count()));
    curl_easy_setopt(handle, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(max_bytes));
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "cedra");
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, &transfer);
    // A connection of an earlier hop stands for an address that was checked then; each gets its
    // own.
    curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
    const CURLcode code = curl_easy_perform(handle);
    if (transfer.refused) {
      return err(Code::kInvalid, "the image URL leads to a private or special address");
    }
    if (transfer.too_large || code == CURLE_FILESIZE_EXCEEDED) {
      return err(Code::kTooLarge, "the image has more than {} bytes", max_bytes);
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
      return err(Code::kTooLarge,
                 "fetching the image takes too long; try again or send it as data");
    }
    if (code != CURLE_OK) {
      return err(Code::kInvalid, "the image cannot be fetched: {}; try again or send it as data",
                 curl_easy_strerror(code));
    }
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) return std::move(transfer.body);
    char* redirect = nullptr;
    curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &redirect);
    if (status < 300 || status > 399 || redirect == nullptr) {
      return err(Code::kInvalid, "the image cannot be fetched: its server answers with status {}",
                 status);
    }
    next = redirect;
  }
  return err(Code::kInvalid, "the image URL redirects more than {} times", options.max_redirects);
}

}  // namespace cedra::server

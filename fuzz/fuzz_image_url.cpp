// Image URLs of requests: data URLs give bytes within the limit or an error, and no URL with a host
// that is not listed is allowed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/image_fetch.h"
#include "server/image_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  constexpr int64_t kMost = 200;
  for (const std::string& url : {text, "data:image/png;base64," + text}) {
    const auto bytes = cedra::server::read_data_url(url, kMost);
    if (bytes ? static_cast<int64_t>(bytes->size()) > kMost : bytes.error().message.empty()) {
      std::abort();
    }
  }
  cedra::server::FetchOptions options;
  if (cedra::server::url_problem(text, options).empty()) std::abort();
  options.domains = {"host.example"};
  if (cedra::server::url_problem(text, options).empty()) {
    std::string lower = text;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : static_cast<char>(c);
    });
    // Percent signs may hide letters of the host.
    if (lower.find("host.example") == lower.npos && lower.find('%') == lower.npos) std::abort();
  }
  return 0;
}

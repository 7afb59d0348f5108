// Letters of ASCII, for protocols whose names have no case: independent of any locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace cedra {

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string ascii_lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return ascii_lower(c); });
  return text;
}

// `lower` in any case; it has no upper-case letters itself.
constexpr bool starts_with_nocase(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char a, char b) { return a == ascii_lower(b); });
}

}  // namespace cedra

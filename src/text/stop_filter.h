// Stop strings inside content deltas, for the output parser: the text before the first match
// passes, what may still become one is held back (spec chat.md 1.5, 3.5). Linear: one prefix
// automaton per string, and requests have at most 16.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cedra::text {

class StopFilter {
 public:
  // Empty strings are ignored.
  explicit StopFilter(std::vector<std::string> stops);

  bool empty() const { return stops_.empty(); }
  bool matched() const { return matched_ != nullptr; }
  // "" before a match.
  std::string_view match() const;

  // Appends to `out` what is safe to show. After a match nothing is.
  void push(std::string_view piece, std::string& out);
  // Appends what was held back.
  void flush(std::string& out);

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // length of the longest border of text[0..i]
    size_t length = 0;             // bytes of text that the input ends in
  };

  std::vector<Stop> stops_;
  std::string held_;
  const Stop* matched_ = nullptr;
};

}  // namespace cedra::text

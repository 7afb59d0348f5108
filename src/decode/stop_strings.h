// Finds the first stop string in text that arrives in pieces. Text that may still become a stop
// string is held back; the stop string itself is never given out (spec chat.md 1.5, 3.5).
// Linear in the text, whatever the strings (Aho-Corasick).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cedra::decode {

class StopStrings {
 public:
  StopStrings() = default;
  // Empty strings are ignored.
  explicit StopStrings(std::span<const std::string> stops);

  // Takes a piece, returns the text that is safe to show. The match that ends first wins; of those
  // that end together, the longest. After a match nothing more comes out.
  std::string push(std::string_view piece);
  // The held-back rest, once no more text can come. Starts over for the text that may follow.
  std::string flush();

  bool matched() const { return matched_ >= 0; }
  // Index of the matched string in the constructor's list, or -1.
  int64_t matched_index() const { return matched_; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> edges;  // few per node: searched linearly
    int32_t fail = 0;
    int32_t depth = 0;
    int64_t stop = -1;  // longest stop string that ends here
    int32_t stop_length = 0;
  };
  int32_t child(int32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  int32_t state_ = 0;
  std::string held_;
  int64_t matched_ = -1;
};

}  // namespace cedra::decode

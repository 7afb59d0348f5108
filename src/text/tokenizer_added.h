// Finds added tokens in a text: literal, leftmost, longest (spec chat.md 1.2, step 1). Tokens that
// the file marks "normalized" are looked for afterwards, in what the others leave.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer_json.h"

namespace cedra::text {

struct AddedMatch {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = 0;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::span<const AddedTokenEntry> tokens);

  // Appends the tokens that lie inside [begin, end), in order.
  void find(std::string_view text, size_t begin, size_t end, std::vector<AddedMatch>* out) const;

 private:
  // Trie with children as a list of siblings: few nodes have more than a handful.
  struct Node {
    int32_t child = -1;
    int32_t sibling = -1;
    int32_t id = -1;  // token that ends here
    unsigned char byte = 0;
  };
  struct Group {
    std::vector<Node> nodes;
    std::array<int32_t, 256> roots;  // node of a first byte, -1: none
  };

  static void insert(const AddedTokenEntry& token, Group* group);
  void find_in_group(size_t group, std::string_view text, size_t begin, size_t end,
                     std::vector<AddedMatch>* out) const;

  std::vector<Group> groups_;
};

}  // namespace cedra::text

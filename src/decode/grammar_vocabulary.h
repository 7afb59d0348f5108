// The vocabulary as grammars see it: what bytes each token adds to the text, and all tokens as one
// tree of bytes. Made once per tokenizer and shared by all grammars.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace cedra::decode {

// A control token that a grammar may ask for stands in the text as one byte that UTF-8 never uses.
inline constexpr uint8_t kThinkEndSymbol = 0xFE;
inline constexpr uint8_t kDsmlSymbol = 0xFF;
inline constexpr uint8_t kFirstSymbol = 0xF5;  // from here on no byte of UTF-8

// Tokens by their bytes. Nodes in depth-first order: a subtree is a range.
struct TokenTrie {
  struct Node {
    int32_t after = 0;        // first node behind the subtree
    int32_t first_token = 0;  // into `tokens`; the next node's is the end
    uint16_t depth = 0;       // bytes from the root: 1, 2, ...
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;      // and one more at the end, for its first_token
  std::vector<int32_t> tokens;  // ids; several may have the same bytes
  int64_t max_depth = 0;

  int64_t size() const { return static_cast<int64_t>(nodes.size()) - 1; }
};

class Vocabulary {
 public:
  // Errors: kInvalid where the tokenizer lacks a control token or a byte of UTF-8: a grammar could
  // then come to a point where no token fits.
  static Result<std::shared_ptr<const Vocabulary>> create(const text::Tokenizer& tokenizer);

  int64_t size() const { return static_cast<int64_t>(begin_.size()) - 1; }
  // What the id adds to the text; "" for control tokens without a symbol, which no grammar allows.
  std::string_view bytes(int32_t id) const {
    if (id < 0 || id >= size()) return {};
    const auto at = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(begin_[at], begin_[at + 1] - begin_[at]);
  }
  const TokenTrie& trie() const { return trie_; }

 private:
  std::string bytes_;
  std::vector<uint32_t> begin_;  // [ids + 1]
  TokenTrie trie_;
};

}  // namespace cedra::decode

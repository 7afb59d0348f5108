// Sets of characters (Unicode scalar values) and how they are spelled in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "decode/grammar_rules.h"

namespace cedra::decode {

inline constexpr char32_t kLastChar = 0x10FFFF;

struct CharRange {
  char32_t low = 0;
  char32_t high = 0;
  bool operator==(const CharRange&) const = default;
};

// Ranges in ascending order, with gaps between them, without surrogates.
class CharSet {
 public:
  CharSet() = default;
  CharSet(char32_t low, char32_t high) { add(low, high); }
  static CharSet all();
  static CharSet of(std::u32string_view chars);

  void add(char32_t low, char32_t high);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet without(const CharSet& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CharRange>& ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<CharRange> ranges_;
};

// How characters stand in the answer.
enum class Spelling : uint8_t {
  kText,        // UTF-8
  kJson,        // inside a JSON string, each in one way: escaped only where JSON demands it
  kJsonMarkup,  // the same where markup is looked for: '<' is escaped, too, so that no tag can
                // arise
};

// One character of `set`, spelled so, between two nodes.
void add_chars(RuleBuilder& builder, NodeId from, const CharSet& set, NodeId to, Spelling spelling);

// A text as it is spelled; for kJson and kJsonMarkup without the quotes.
std::string spell(std::string_view utf8, Spelling spelling);

bool is_utf8(std::string_view text);
// The characters of valid UTF-8.
std::u32string to_chars(std::string_view utf8);
std::string to_utf8(char32_t c);

}  // namespace cedra::decode

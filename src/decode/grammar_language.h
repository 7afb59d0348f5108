// Regular languages over characters: what a string's pattern, length, forbidden values and so on
// come to, before they are spelled in bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/grammar_chars.h"
#include "decode/grammar_rules.h"

namespace cedra::decode {

// A nondeterministic automaton with one start and one end.
struct CharNfa {
  // A jump that only the beginning or the end of the text allows.
  enum class Guard : uint8_t { kNone, kBegin, kEnd };
  struct Edge {
    int32_t from;
    int32_t to;
    int32_t set;
  };
  struct Jump {
    int32_t from;
    int32_t to;
    Guard guard;
  };
  std::vector<CharSet> sets;
  std::vector<Edge> edges;
  std::vector<Jump> jumps;
  int32_t nodes = 0;
  int32_t start = 0;
  int32_t end = 0;

  bool guarded() const;
  // Texts that contain one of this language.
  void search_anywhere();
  int64_t size() const { return static_cast<int64_t>(edges.size() + jumps.size()) + nodes; }
};

// A deterministic one. State 0 is the start; kNone: no way on.
struct CharDfa {
  static constexpr int32_t kNone = -1;
  std::vector<char32_t> class_low;  // first character of each class, ascending, the first is 0
  std::vector<int32_t> next;        // [states, classes]
  std::vector<uint8_t> accepting;

  size_t classes() const { return class_low.size(); }
  size_t states() const { return accepting.size(); }

  // `low` to `high` characters; high < 0: any number from `low`.
  static CharDfa length(int64_t low, int64_t high);
  // Exactly these texts.
  static CharDfa literals(std::span<const std::string> texts);
  // Texts in which none of these (not empty) occurs.
  static CharDfa avoiding(std::span<const std::string> texts);
};

// kTooLarge past kMaxDfaStates, or when the builder's work is spent.
inline constexpr size_t kMaxDfaStates = 1 << 14;
Result<CharDfa> determinize(const CharNfa& nfa, RuleBuilder& builder);
// Texts of both; or, with `except`, of a and not of b.
Result<CharDfa> intersect(const CharDfa& a, const CharDfa& b, RuleBuilder& builder,
                          bool except = false);

// Spells the language between two nodes. An NFA must not be guarded.
void add_language(RuleBuilder& builder, NodeId from, const CharNfa& nfa, NodeId to,
                  Spelling spelling);
void add_language(RuleBuilder& builder, NodeId from, const CharDfa& dfa, NodeId to,
                  Spelling spelling);

}  // namespace cedra::decode

// Grammars as rules over bytes: each rule is a small automaton whose edges read a byte or call
// another rule. RuleBuilder is what the front ends (JSON Schema, regex, EBNF, tools) write into;
// Rules is the checked, compact result that grammar_automaton.h runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cedra::decode {

using NodeId = int32_t;
using RuleId = int32_t;

// Rule calls inside each other, at most; also how deeply an answer may nest.
inline constexpr int kMaxGrammarDepth = 256;

struct ByteEdge {
  uint8_t low = 0;  // in Rules: byte classes
  uint8_t high = 0;
  NodeId to = 0;
};
struct CallEdge {
  RuleId rule = 0;
  NodeId to = 0;
};

// From every node the end of its rule can be reached, with calls that nest at most height[node]
// deep.
struct Rules {
  std::vector<ByteEdge> bytes;
  std::vector<CallEdge> calls;
  std::vector<NodeId> jumps;
  std::vector<int32_t> byte_begin;  // [nodes + 1]; edges of a node
  std::vector<int32_t> call_begin;
  std::vector<int32_t> jump_begin;
  std::vector<RuleId> rule_of;
  std::vector<int16_t> height;
  std::vector<uint8_t> is_end;   // the end of its rule
  std::vector<uint8_t> is_tail;  // from here only jumps lead to it, and nowhere else

  struct Rule {
    NodeId start = 0;
    bool nullable = false;
    int32_t callers = 0;  // call edges
  };
  std::vector<Rule> rules;
  RuleId root = 0;
  std::array<uint8_t, 256> class_of{};  // bytes that no edge tells apart
  int32_t classes = 0;

  int64_t nodes() const { return static_cast<int64_t>(rule_of.size()); }
};

class RuleBuilder {
 public:
  // More nodes or edges than `max_size` are refused in finish(); from full() on nothing is added.
  explicit RuleBuilder(int64_t max_size = int64_t{1} << 20) : max_size_(max_size) {}

  RuleId rule(std::string name = {});
  NodeId start(RuleId rule) const { return rules_[static_cast<size_t>(rule)].start; }
  NodeId end(RuleId rule) const { return rules_[static_cast<size_t>(rule)].end; }
  // A new node of the same rule as `beside`.
  NodeId node(NodeId beside);

  void byte(NodeId from, uint8_t low, uint8_t high, NodeId to);
  void call(NodeId from, RuleId rule, NodeId to);
  void jump(NodeId from, NodeId to);

  // These return the node behind what they add.
  NodeId literal(NodeId from, std::string_view bytes);
  NodeId call(NodeId from, RuleId rule);
  // From `from` to `to`, deterministically.
  void one_of(NodeId from, std::vector<std::string> literals, NodeId to);

  // Work of the front ends, in steps of some nanoseconds: false once it is more than kMaxWork in
  // all. Hostile input must not keep the machine busy.
  static constexpr int64_t kMaxWork = int64_t{1} << 25;
  bool spend(int64_t steps) { return (work_ += steps) <= kMaxWork; }

  bool full() const { return static_cast<int64_t>(edges_.size() + rule_of_.size()) > max_size_; }

  // Errors: kTooLarge past the size; kInvalid for a rule that calls itself before it reads anything
  // (named), a root that no text satisfies, or nesting beyond kMaxGrammarDepth.
  Result<Rules> finish(RuleId root) &&;

 private:
  enum class Kind : uint8_t { kByte, kCall, kJump };
  struct Edge {
    NodeId from;
    NodeId to;
    RuleId rule;
    Kind kind;
    uint8_t low;
    uint8_t high;
  };
  struct Rule {
    NodeId start;
    NodeId end;
    std::string name;
  };

  NodeId new_node(RuleId rule);
  std::vector<int16_t> heights() const;
  void make_classes(Rules& out) const;
  void find_nullable(Rules& out) const;
  void find_tails(Rules& out) const;
  Result<> check_left_recursion(const Rules& rules) const;

  int64_t max_size_;
  int64_t work_ = 0;
  std::vector<Rule> rules_;
  std::vector<RuleId> rule_of_;
  std::vector<Edge> edges_;
};

}  // namespace cedra::decode

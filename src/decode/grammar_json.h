// JSON's own rules, and how answers space it.
//
// White space is bounded: behind ':' one space or none; behind '{', '[' and ',' and in front of
// '}' and ']' nothing, one space, or a line feed and up to kMaxIndent spaces or tabs. Nothing
// stands around the whole value. Numbers have at most 18 digits before and behind the point and a
// two-digit exponent, so they stay finite.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "decode/grammar_chars.h"
#include "decode/grammar_language.h"
#include "decode/grammar_rules.h"
#include "text/json_value.h"

namespace cedra::decode {

inline constexpr int kMaxIndent = 64;

// What is read as markup in an answer, or begins it, also where ordinary tokens spell it.
std::span<const std::string> markup_beginnings();

// Rules are made when they are first asked for. `spelling`: kJson, or kJsonMarkup where the
// answer's markup is looked for.
class JsonRules {
 public:
  JsonRules(RuleBuilder& builder, Spelling spelling) : builder_(&builder), spelling_(spelling) {}

  Spelling spelling() const { return spelling_; }
  RuleBuilder& builder() { return *builder_; }

  // Each returns the node behind.
  NodeId value(NodeId from);
  NodeId object(NodeId from);
  NodeId array(NodeId from);
  NodeId string(NodeId from);
  // `low` to `high` characters; high < 0: any number from `low`.
  NodeId string(NodeId from, int64_t low, int64_t high);
  NodeId number(NodeId from);
  NodeId integer(NodeId from);
  NodeId gap(NodeId from);                          // behind '{', '[', ',', in front of '}', ']'
  NodeId text(NodeId from, std::string_view utf8);  // this string, with quotes
  NodeId key(NodeId from, std::string_view utf8);   // this string, ':' and what may follow
  NodeId colon(NodeId from);
  NodeId exactly(NodeId from, const text::JsonValue& value);

  // How a scalar is spelled.
  std::string spelled(const text::JsonValue& scalar) const;

 private:
  NodeId call(NodeId from, std::optional<RuleId>& rule, void (JsonRules::*make)(RuleId));
  void make_value(RuleId rule);
  void make_object(RuleId rule);
  void make_array(RuleId rule);
  void make_tail(RuleId rule);
  void make_char(RuleId rule);
  void make_number(RuleId rule);
  void make_integer(RuleId rule);
  void make_gap(RuleId rule);
  // `item` (, item)* between brackets, or nothing.
  template <class Item>
  void make_list(RuleId rule, char open, char close, Item item);

  RuleBuilder* builder_;
  Spelling spelling_;
  std::optional<RuleId> value_, object_, array_, tail_, char_, number_, integer_, gap_;
  std::map<std::pair<int64_t, int64_t>, RuleId> lengths_;
};

// Digits between two nodes: one to `most`, or none if `least` is 0.
void add_digits(RuleBuilder& builder, NodeId from, int least, int most, NodeId to);

}  // namespace cedra::decode

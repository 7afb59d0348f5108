#include "decode/grammar_ebnf.h"

#include <algorithm>
#include <map>
#include <optional>

#include "decode/grammar_chars.h"
#include "decode/grammar_regex.h"
#include "decode/grammar_repeat.h"

namespace cedra::decode {
namespace {

constexpr int kMaxGroups = 200;  // inside each other

struct Node {
  enum class Kind : uint8_t { kSet, kLiteral, kRule, kConcat, kChoice, kRepeat };
  Kind kind = Kind::kConcat;
  CharSet set;
  std::string literal;
  RuleId rule = 0;
  std::vector<int32_t> children;
  int64_t low = 0;
  int64_t high = 0;
};

bool is_name_start(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name(char32_t c) {
  return is_name_start(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

// New nodes in the rule of `node_`.
class Beside {
 public:
  Beside(RuleBuilder& builder, NodeId node) : builder_(builder), node_(node) {}
  NodeId node() { return builder_.node(node_); }
  void jump(NodeId from, NodeId to) { builder_.jump(from, to); }
  bool full() const { return builder_.full(); }

 private:
  RuleBuilder& builder_;
  NodeId node_;
};

class Parser {
 public:
  Parser(RuleBuilder& builder, std::u32string_view text) : builder_(&builder), text_(text) {}

  Result<RuleId> parse() {
    skip();
    while (at_ < text_.size()) {
      CEDRA_ASSIGN(const std::string name, rule_name());
      if (!take(U"::=")) return wrong("expected '::='");
      Rule& rule = rule_of(name);
      if (rule.defined) return wrong(fmt::format("rule \"{}\" is defined twice", name));
      rule.defined = true;
      const RuleId id = rule.id;
      CEDRA_ASSIGN(const int32_t body, choice(0));
      if (at_ < text_.size() && !at_rule()) return wrong("expected a rule or the rest of one");
      write(body, builder_->start(id), builder_->end(id));
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        return err(Code::kInvalid, "grammar, line {}: there is no rule \"{}\"",
                   line_at(rule.mention), name);
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      return err(Code::kInvalid, "grammar: the rule \"root\", where it starts, is missing");
    }
    return root->second.id;
  }

 private:
  struct Rule {
    RuleId id = 0;
    bool defined = false;
    size_t mention = 0;  // where it is named first
  };

  int64_t line() const { return line_at(at_); }
  int64_t line_at(size_t at) const {
    return 1 + std::ranges::count(text_.substr(0, std::min(at, text_.size())), U'\n');
  }
  std::unexpected<Error> wrong(std::string_view what) const {
    return err(Code::kInvalid, "grammar, line {}: {}", line(), what);
  }
  char32_t peek() const { return at_ < text_.size() ? text_[at_] : U'\0'; }
  bool take(char32_t c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip();
    return true;
  }
  bool take(std::u32string_view literal) {
    if (text_.substr(at_, literal.size()) != literal) return false;
    at_ += literal.size();
    skip();
    return true;
  }
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' ||
                 text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  Result<std::string> rule_name() {
    if (!is_name_start(peek())) return wrong("expected the name of a rule");
    std::string name;
    while (at_ < text_.size() && is_name(text_[at_])) name += static_cast<char>(text_[at_++]);
    skip();
    return name;
  }
  Rule& rule_of(const std::string& name) {
    const auto [it, fresh] = rules_.try_emplace(name);
    if (fresh) it->second = {builder_->rule("rule \"" + name + "\""), false, at_};
    return it->second;
  }
  // The next rule begins here: the one before has no other end.
  bool at_rule() {
    const size_t begin = at_;
    const bool name = is_name_start(peek()) && rule_name().has_value();
    const bool rule = name && text_.substr(at_, 3) == U"::=";
    at_ = begin;
    return rule;
  }

  int32_t add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int32_t>(nodes_.size() - 1);
  }

  Result<int32_t> choice(int depth) {
    if (depth > kMaxGroups) {
      return err(Code::kTooLarge, "grammar, line {}: more than {} groups inside each other", line(),
                 kMaxGroups);
    }
    Node out;
    out.kind = Node::Kind::kChoice;
    do {
      CEDRA_ASSIGN(const int32_t branch, concat(depth));
      out.children.push_back(branch);
    } while (take('|'));
    return out.children.size() == 1 ? out.children.front() : add(std::move(out));
  }

  Result<int32_t> concat(int depth) {
    Node out;
    while (at_ < text_.size() && peek() != '|' && peek() != ')' && !at_rule()) {
      CEDRA_ASSIGN(int32_t item, atom(depth));
      CEDRA_ASSIGN(item, repeat(item));
      out.children.push_back(item);
    }
    return add(std::move(out));
  }

  Result<int32_t> atom(int depth) {
    Node out;
    if (take('(')) {
      CEDRA_ASSIGN(const int32_t inner, choice(depth + 1));
      if (!take(')')) return wrong("a group without its ')'");
      return inner;
    }
    if (peek() == '"') {
      out.kind = Node::Kind::kLiteral;
      CEDRA_ASSIGN(out.literal, literal());
    } else if (peek() == '[') {
      out.kind = Node::Kind::kSet;
      Result<CharSet> set = parse_char_class(text_, at_);
      if (!set) return wrong(set.error().message);
      out.set = *std::move(set);
      skip();
    } else if (take('.')) {
      out.kind = Node::Kind::kSet;
      out.set = CharSet::all();
    } else if (is_name_start(peek())) {
      CEDRA_ASSIGN(const std::string name, rule_name());
      out.kind = Node::Kind::kRule;
      out.rule = rule_of(name).id;
    } else {
      return wrong(
          fmt::format("'{}' is not understood; expected a literal in double quotes, a "
                      "character class, a rule's name or a group",
                      to_utf8(peek())));
    }
    return add(std::move(out));
  }

  Result<std::string> literal() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ >= text_.size() || text_[at_] == '\n') return wrong("a literal without its end '\"'");
      const char32_t c = text_[at_++];
      if (c == '"') break;
      if (c != '\\') {
        out += to_utf8(c);
        continue;
      }
      CEDRA_ASSIGN(const char32_t escaped, escape());
      out += to_utf8(escaped);
    }
    skip();
    return out;
  }

  Result<char32_t> escape() {
    if (at_ >= text_.size()) return wrong("a backslash at the end");
    const char32_t c = text_[at_++];
    constexpr std::u32string_view kNames = U"ntr\"'\\/bfv";
    constexpr std::u32string_view kChars = U"\n\t\r\"'\\/\b\f\v";
    if (const size_t i = kNames.find(c); i != std::u32string_view::npos) return kChars[i];
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint64_t value = 0;
    for (int i = 0; i < digits; ++i) {
      constexpr std::u32string_view kDigits = U"0123456789abcdef";
      const char32_t lower = peek() < 'A' ? peek() : peek() | 0x20;
      const size_t digit = at_ < text_.size() ? kDigits.find(lower) : std::u32string_view::npos;
      if (digit == std::u32string_view::npos) return wrong("hexadecimal digits are missing");
      value = value * 16 + digit;
      ++at_;
    }
    if (digits == 0 || value > kLastChar || (value >= 0xD800 && value < 0xE000)) {
      return wrong(fmt::format("the escape \\{} does not stand for a character", to_utf8(c)));
    }
    return static_cast<char32_t>(value);
  }

  Result<int32_t> repeat(int32_t item) {
    // A repetition may follow a repetition, as in (x*)?.
    constexpr int kMostOfThem = 16;
    for (int i = 0; i < kMostOfThem; ++i) {
      Node out;
      out.kind = Node::Kind::kRepeat;
      out.children = {item};
      if (take('*')) {
        out.high = kUnbounded;
      } else if (take('+')) {
        out.low = 1;
        out.high = kUnbounded;
      } else if (take('?')) {
        out.high = 1;
      } else if (take('{')) {
        CEDRA_TRY(counts(out.low, out.high));
      } else {
        return item;
      }
      item = add(std::move(out));
    }
    return wrong("too many repetitions of repetitions");
  }

  Result<> counts(int64_t& low, int64_t& high) {
    const auto number = [&](int64_t& out) {
      const size_t first = at_;
      out = 0;
      while (peek() >= '0' && peek() <= '9') {
        out = std::min<int64_t>(out * 10 + static_cast<int64_t>(text_[at_++] - '0'), 1'000'000'000);
      }
      const bool any = at_ > first;
      skip();
      return any;
    };
    if (!number(low)) return wrong("expected a number after '{'");
    high = low;
    if (take(',') && !number(high)) high = kUnbounded;
    if (!take('}')) return wrong("expected '}'");
    if (high != kUnbounded && high < low) return wrong("a repetition {n,m} with m < n");
    return {};
  }

  void write(int32_t index, NodeId from, NodeId to) {
    if (builder_->full()) return;
    const Node& node = nodes_[static_cast<size_t>(index)];
    switch (node.kind) {
      case Node::Kind::kSet:
        add_chars(*builder_, from, node.set, to, Spelling::kText);
        break;
      case Node::Kind::kLiteral:
        builder_->jump(builder_->literal(from, node.literal), to);
        break;
      case Node::Kind::kRule:
        builder_->call(from, node.rule, to);
        break;
      case Node::Kind::kConcat: {
        for (const int32_t child : node.children) {
          const NodeId next = builder_->node(from);
          write(child, from, next);
          from = next;
        }
        builder_->jump(from, to);
        break;
      }
      case Node::Kind::kChoice:
        for (const int32_t child : node.children) write(child, from, to);
        break;
      case Node::Kind::kRepeat:
        write_repeat(node, from, to);
        break;
    }
  }

  void write_repeat(const Node& node, NodeId from, NodeId to) {
    const int32_t child = node.children.front();
    // What is written often gets a rule of its own.
    std::optional<RuleId> rule;
    if (std::max(node.low, node.high) > 1 &&
        nodes_[static_cast<size_t>(child)].kind != Node::Kind::kRule) {
      rule = builder_->rule("a repetition");
      write(child, builder_->start(*rule), builder_->end(*rule));
    }
    const auto once = [&](NodeId a, NodeId b) {
      if (rule) {
        builder_->call(a, *rule, b);
      } else {
        write(child, a, b);
      }
    };
    write_repetition(Beside{*builder_, from}, node.low, node.high, from, to, once);
  }

  RuleBuilder* builder_;
  std::u32string_view text_;
  size_t at_ = 0;
  std::vector<Node> nodes_;
  std::map<std::string, Rule> rules_;
};

}  // namespace

Result<RuleId> add_ebnf(RuleBuilder& builder, std::string_view text) {
  if (!is_utf8(text)) return err(Code::kInvalid, "grammar: not valid UTF-8");
  const std::u32string chars = to_chars(text);
  return Parser(builder, chars).parse();
}

}  // namespace cedra::decode

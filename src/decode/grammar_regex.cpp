// A recursive descent parser into a small tree, which is then written out as an automaton.
#include "decode/grammar_regex.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>

#include "decode/grammar_repeat.h"

namespace cedra::decode {
namespace {

struct Node {
  enum class Kind : uint8_t { kSet, kConcat, kChoice, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kConcat;
  CharSet set;
  std::vector<int32_t> children;
  int64_t low = 0;
  int64_t high = 0;
};

CharSet digits() { return {'0', '9'}; }
CharSet word_chars() {
  CharSet out('0', '9');
  out.add('A', 'Z');
  out.add('_', '_');
  out.add('a', 'z');
  return out;
}
CharSet spaces() {
  CharSet out = CharSet::of(U"\t\n\v\f\r \u00A0\u1680\u2028\u2029\u202F\u205F\u3000\uFEFF");
  out.add(0x2000, 0x200A);
  return out;
}

std::optional<uint32_t> hex(std::u32string_view text) {
  uint32_t value = 0;
  if (text.empty() || text.size() > 6) return std::nullopt;
  for (const char32_t c : text) {
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      digit = (c | 0x20) - 'a' + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return value;
}

struct Category {
  std::string_view long_name;
  std::string_view name;  // two letters; one letter: all that begin with it
};
constexpr auto kCategories = std::to_array<Category>({
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
});

// Characters of a general category, or of all assigned ones but it.
std::optional<CharSet> category(std::string_view name, bool negated) {
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  const auto* known = std::ranges::find_if(
      kCategories, [&](const Category& c) { return c.long_name == name || c.name == name; });
  if (known == kCategories.end()) return std::nullopt;
  CharSet out;
  char32_t begin = 0;
  bool open = false;
  for (char32_t c = 0; c <= kLastChar + 1; ++c) {
    bool in = false;
    if (c <= kLastChar) {
      const std::string_view of = utf8proc_category_string(static_cast<int32_t>(c));
      in = of != "Cn" && of != "Cs" && of.starts_with(known->name) != negated;
    }
    if (in && !open) begin = c;
    if (!in && open) out.add(begin, c - 1);
    open = in;
  }
  return out;
}

class Parser {
 public:
  explicit Parser(std::u32string_view text, size_t at = 0) : text_(text), at_(at) {}

  std::vector<Node> nodes;
  size_t at() const { return at_; }

  Result<int32_t> parse() {
    CEDRA_ASSIGN(const int32_t root, choice(0));
    if (at_ < text_.size()) return wrong("unmatched ')'");
    return root;
  }

  // The class behind its '['.
  Result<CharSet> char_class() {
    CharSet out;
    const bool negated = take('^');
    while (true) {
      if (at_ >= text_.size()) return wrong("a character class without its ']'");
      if (take(']')) break;
      bool single = true;
      CharSet item;
      CEDRA_TRY(class_item(item, single));
      const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (!range) {
        out.add(item);
        continue;
      }
      ++at_;
      CharSet last;
      bool last_single = true;
      CEDRA_TRY(class_item(last, last_single));
      if (!single || !last_single) return wrong("a range between things that are not characters");
      const char32_t low = item.ranges().front().low;
      const char32_t high = last.ranges().front().low;
      if (low > high) return wrong("a range whose end comes before its beginning");
      out.add(low, high);
    }
    return negated ? out.complement() : out;
  }

 private:
  std::unexpected<Error> wrong(std::string_view what) const {
    return err(Code::kInvalid, "regex, character {}: {}", at_, what);
  }
  std::unexpected<Error> unsupported(std::string_view what) const {
    return err(Code::kUnsupported, "regex, character {}: {} is not supported", at_, what);
  }
  bool take(char32_t c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view literal) {
    if (text_.substr(at_, literal.size()) != literal) return false;
    at_ += literal.size();
    return true;
  }
  int32_t add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<int32_t>(nodes.size() - 1);
  }
  int32_t add_set(CharSet set) {
    Node node;
    node.kind = Node::Kind::kSet;
    node.set = std::move(set);
    return add(std::move(node));
  }

  Result<int32_t> choice(int depth) {
    if (depth > kMaxRegexDepth) {
      return err(Code::kTooLarge, "regex, character {}: more than {} groups inside each other", at_,
                 kMaxRegexDepth);
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
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      CEDRA_ASSIGN(int32_t item, atom(depth));
      CEDRA_ASSIGN(item, repeat(item));
      out.children.push_back(item);
    }
    return add(std::move(out));
  }

  Result<int32_t> atom(int depth) {
    const char32_t c = text_[at_++];
    switch (c) {
      case '(':
        return group(depth);
      case '[': {
        CEDRA_ASSIGN(CharSet set, char_class());
        return add_set(std::move(set));
      }
      case '.':
        return add_set(CharSet::of(U"\n\r\u2028\u2029").complement());
      case '^':
      case '$': {
        Node node;
        node.kind = c == '^' ? Node::Kind::kBegin : Node::Kind::kEnd;
        return add(std::move(node));
      }
      case '*':
      case '+':
      case '?':
        --at_;
        return wrong("nothing stands before this repetition");
      case '\\': {
        bool single = true;
        CharSet set;
        CEDRA_TRY(escape(set, single, false));
        return add_set(std::move(set));
      }
      default:
        return add_set({c, c});
    }
  }

  Result<int32_t> group(int depth) {
    if (take('?')) {
      if (take(':')) {
      } else if (take(U"=") || take(U"!") || take(U"<=") || take(U"<!")) {
        return unsupported("lookahead or lookbehind");
      } else if (take(U"<") || take(U"P<")) {
        while (at_ < text_.size() && text_[at_] != '>') ++at_;
        if (!take('>')) return wrong("the group's name has no '>'");
      } else {
        return unsupported("this kind of group");
      }
    }
    CEDRA_ASSIGN(const int32_t inner, choice(depth + 1));
    if (!take(')')) return wrong("a group without its ')'");
    return inner;
  }

  // {n}, {n,}, {n,m}; anything else with a brace is a brace.
  bool counts(int64_t& low, int64_t& high) {
    const size_t begin = at_;
    const auto number = [&](int64_t& out) {
      const size_t first = at_;
      out = 0;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        out = std::min<int64_t>(out * 10 + static_cast<int64_t>(text_[at_++] - '0'), 1'000'000'000);
      }
      return at_ > first;
    };
    if (take('{') && number(low)) {
      high = low;
      if (take(',') && !number(high)) high = kUnbounded;
      if (take('}')) return true;
    }
    at_ = begin;
    return false;
  }

  Result<int32_t> repeat(int32_t item) {
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
    } else if (!counts(out.low, out.high)) {
      return item;
    }
    if (out.high != kUnbounded && out.high < out.low) return wrong("a repetition {n,m} with m < n");
    take('?');  // which of the matches is taken does not matter
    if (at_ < text_.size() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) {
      return wrong("a repetition of a repetition; use a group");
    }
    return add(std::move(out));
  }

  Result<> class_item(CharSet& out, bool& single) {
    if (at_ >= text_.size()) return wrong("a character class without its ']'");
    const char32_t c = text_[at_++];
    if (c == '\\') return escape(out, single, true);
    out = {c, c};
    return {};
  }

  Result<> hex_escape(size_t digits, CharSet& out) {
    const std::optional<uint32_t> value =
        at_ + digits <= text_.size() ? hex(text_.substr(at_, digits)) : std::nullopt;
    if (!value) return wrong("hexadecimal digits are missing");
    at_ += digits;
    char32_t c = *value;
    // A pair of surrogates is one character.
    if (c >= 0xD800 && c < 0xDC00 && take(U"\\u")) {
      const std::optional<uint32_t> low = hex(text_.substr(at_, 4));
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        at_ += 4;
        c = 0x10000 + ((c - 0xD800) << 10) + (*low - 0xDC00);
      }
    }
    return set_char(c, out);
  }

  Result<> set_char(char32_t c, CharSet& out) const {
    if (c > kLastChar || (c >= 0xD800 && c < 0xE000)) return wrong("not a character");
    out = {c, c};
    return {};
  }

  // Behind the backslash.
  Result<> escape(CharSet& out, bool& single, bool in_class) {
    if (at_ >= text_.size()) return wrong("a backslash at the end");
    const char32_t c = text_[at_++];
    single = false;
    switch (c) {
      case 'd':
        out = digits();
        return {};
      case 'D':
        out = digits().complement();
        return {};
      case 'w':
        out = word_chars();
        return {};
      case 'W':
        out = word_chars().complement();
        return {};
      case 's':
        out = spaces();
        return {};
      case 'S':
        out = spaces().complement();
        return {};
      case 'p':
      case 'P':
        return property(c == 'P', out);
      default:
        break;
    }
    single = true;
    constexpr std::u32string_view kNames = U"tnvfr";
    constexpr std::u32string_view kChars = U"\t\n\v\f\r";
    if (const size_t at = kNames.find(c); at != std::u32string_view::npos) {
      out = {kChars[at], kChars[at]};
      return {};
    }
    if (c == 'x') return hex_escape(2, out);
    if (c == 'u' && take('{')) {
      const size_t end = text_.find(U'}', at_);
      const std::optional<uint32_t> value =
          end == std::u32string_view::npos ? std::nullopt : hex(text_.substr(at_, end - at_));
      if (!value) return wrong("\\u{...} needs hexadecimal digits");
      at_ = end + 1;
      return set_char(*value, out);
    }
    if (c == 'u') return hex_escape(4, out);
    if (c == 'c' && at_ < text_.size() && (text_[at_] | 0x20) >= 'a' &&
        (text_[at_] | 0x20) <= 'z') {
      return set_char(text_[at_++] & 0x1F, out);
    }
    if (c == 'b' && in_class) return set_char('\b', out);
    if (c == '0' && (at_ >= text_.size() || text_[at_] < '0' || text_[at_] > '9')) {
      return set_char(0, out);
    }
    if (c == 'b' || c == 'B') return unsupported("a word border");
    if ((c >= '0' && c <= '9') || c == 'k') return unsupported("a back reference");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return wrong(fmt::format("\\{} means nothing here", to_utf8(c)));
    }
    return set_char(c, out);
  }

  Result<> property(bool negated, CharSet& out) {
    const size_t end = text_.find(U'}', at_);
    if (!take('{') || end == std::u32string_view::npos) return wrong("\\p needs {a name}");
    std::string name;
    for (; at_ < end; ++at_) name += to_utf8(text_[at_]);
    ++at_;
    std::optional<CharSet> set = category(name, negated);
    if (!set) {
      return unsupported(
          fmt::format("\\p{{{}}} (only general categories are)", name.substr(0, 40)));
    }
    out = *std::move(set);
    return {};
  }

  std::u32string_view text_;
  size_t at_;
};

// Thompson's construction; a repetition is written out as often as it says.
class Writer {
 public:
  Writer(const std::vector<Node>& nodes, CharNfa& out) : nodes_(&nodes), out_(&out) {}

  int32_t node() { return out_->nodes++; }
  void jump(int32_t from, int32_t to, CharNfa::Guard guard = CharNfa::Guard::kNone) {
    out_->jumps.push_back({from, to, guard});
  }
  bool full() const { return out_->size() > kMaxRegexSize; }

  void write(int32_t index, int32_t from, int32_t to) {
    if (full()) return;
    const Node& node = (*nodes_)[static_cast<size_t>(index)];
    switch (node.kind) {
      case Node::Kind::kSet:
        out_->edges.push_back({from, to, set_index(index)});
        break;
      case Node::Kind::kConcat: {
        int32_t at = from;
        for (const int32_t child : node.children) {
          const int32_t next = this->node();
          write(child, at, next);
          at = next;
        }
        jump(at, to);
        break;
      }
      case Node::Kind::kChoice:
        for (const int32_t child : node.children) write(child, from, to);
        break;
      case Node::Kind::kRepeat:
        write_repetition(*this, node.low, node.high, from, to,
                         [&](int32_t a, int32_t b) { write(node.children.front(), a, b); });
        break;
      case Node::Kind::kBegin:
        jump(from, to, CharNfa::Guard::kBegin);
        break;
      case Node::Kind::kEnd:
        jump(from, to, CharNfa::Guard::kEnd);
        break;
    }
  }

 private:
  int32_t set_index(int32_t index) {
    if (sets_.size() < nodes_->size()) sets_.resize(nodes_->size(), -1);
    int32_t& known = sets_[static_cast<size_t>(index)];
    if (known < 0) {
      known = static_cast<int32_t>(out_->sets.size());
      out_->sets.push_back((*nodes_)[static_cast<size_t>(index)].set);
    }
    return known;
  }

  const std::vector<Node>* nodes_;
  CharNfa* out_;
  std::vector<int32_t> sets_;
};

}  // namespace

Result<CharNfa> parse_regex(std::string_view pattern, bool anywhere) {
  if (!is_utf8(pattern)) return err(Code::kInvalid, "regex: not valid UTF-8");
  const std::u32string chars = to_chars(pattern);
  Parser parser(chars);
  CEDRA_ASSIGN(const int32_t root, parser.parse());
  CharNfa out;
  Writer writer(parser.nodes, out);
  out.start = writer.node();
  out.end = writer.node();
  writer.write(root, out.start, out.end);
  if (writer.full()) {
    return err(Code::kTooLarge, "regex: with its repetitions written out it has more than {} steps",
               kMaxRegexSize);
  }
  if (anywhere) out.search_anywhere();
  return out;
}

Result<> add_regex(RuleBuilder& builder, NodeId from, const CharNfa& nfa, NodeId to,
                   Spelling spelling) {
  if (!nfa.guarded()) {
    add_language(builder, from, nfa, to, spelling);
    return {};
  }
  CEDRA_ASSIGN(const CharDfa dfa, determinize(nfa, builder));
  add_language(builder, from, dfa, to, spelling);
  return {};
}

Result<CharSet> parse_char_class(std::u32string_view pattern, size_t& at) {
  Parser parser(pattern, at + 1);
  CEDRA_ASSIGN(CharSet out, parser.char_class());
  at = parser.at();
  return out;
}

}  // namespace cedra::decode

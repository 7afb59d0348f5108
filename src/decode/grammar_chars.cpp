#include "decode/grammar_chars.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "text/utf8.h"

namespace cedra::decode {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

// Calls emit(low bytes, high bytes) for byte ranges that together are the characters low to high,
// which take equally many bytes.
template <class Emit>
void split_utf8(char32_t low, char32_t high, const Emit& emit) {
  for (int i = 1; i < 4; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      split_utf8(low, low | mask, emit);
      split_utf8((low | mask) + 1, high, emit);
      return;
    }
    if ((high & mask) != mask) {
      split_utf8(low, (high & ~mask) - 1, emit);
      split_utf8(high & ~mask, high, emit);
      return;
    }
  }
  emit(to_utf8(low), to_utf8(high));
}

// Byte sequences that end in one node, with equal ends shared.
class Utf8Edges {
 public:
  Utf8Edges(RuleBuilder& builder, NodeId to) : builder_(&builder), to_(to) {}

  void add(NodeId from, char32_t low, char32_t high) {
    constexpr char32_t kBorders[] = {0x7F, 0x7FF, 0xFFFF, kLastChar};
    for (const char32_t border : kBorders) {
      if (low > border) continue;
      const char32_t last = std::min(high, border);
      split_utf8(low, last, [&](const std::string& a, const std::string& b) {
        const auto byte = [](const std::string& s, size_t i) { return static_cast<uint8_t>(s[i]); };
        NodeId to = to_;
        std::string behind;
        for (size_t i = a.size() - 1; i > 0; --i) {
          behind += {a[i], b[i]};
          const auto [known, fresh] = nodes_.emplace(behind, 0);
          if (fresh) {
            known->second = builder_->node(to_);
            builder_->byte(known->second, byte(a, i), byte(b, i), to);
          }
          to = known->second;
        }
        builder_->byte(from, byte(a, 0), byte(b, 0), to);
      });
      if (high <= border) return;
      low = border + 1;
    }
  }

 private:
  RuleBuilder* builder_;
  NodeId to_;
  std::map<std::string, NodeId> nodes_;
};

// How JSON spells a character that does not stand for itself; "" if it does.
std::string escape(char32_t c, Spelling spelling) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\t':
      return "\\t";
    case '\n':
      return "\\n";
    case '\f':
      return "\\f";
    case '\r':
      return "\\r";
    default:
      break;
  }
  const bool tag = spelling == Spelling::kJsonMarkup && c == '<';
  if (c < 0x20 || tag) return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  return {};
}

}  // namespace

CharSet CharSet::all() { return {0, kLastChar}; }

CharSet CharSet::of(std::u32string_view chars) {
  CharSet out;
  for (const char32_t c : chars) out.add(c, c);
  return out;
}

void CharSet::add(char32_t low, char32_t high) {
  if (low < kFirstSurrogate && high >= kFirstSurrogate) {
    add(low, kFirstSurrogate - 1);
    low = kFirstSurrogate;
  }
  if (low >= kFirstSurrogate && low <= kLastSurrogate) low = kLastSurrogate + 1;
  if (high >= kFirstSurrogate && high <= kLastSurrogate) high = kFirstSurrogate - 1;
  if (low > high) return;
  // The first range that touches or lies behind the new one.
  auto it = std::ranges::lower_bound(ranges_, low, {}, [](const CharRange& r) {
    return r.high == kLastChar ? r.high : r.high + 1;
  });
  const auto first = it;
  while (it != ranges_.end() && it->low <= (high == kLastChar ? high : high + 1)) {
    low = std::min(low, it->low);
    high = std::max(high, it->high);
    ++it;
  }
  ranges_.insert(ranges_.erase(first, it), CharRange{low, high});
}

void CharSet::add(const CharSet& other) {
  for (const CharRange& range : other.ranges_) add(range.low, range.high);
}

CharSet CharSet::complement() const {
  CharSet out;
  char32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.low > next) out.add(next, range.low - 1);
    next = range.high + 1;
  }
  if (next <= kLastChar) out.add(next, kLastChar);
  return out;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet out = complement();
  out.add(other);
  return out.complement();
}

bool CharSet::contains(char32_t c) const {
  const auto it = std::ranges::lower_bound(ranges_, c, {}, &CharRange::high);
  return it != ranges_.end() && it->low <= c;
}

void add_chars(RuleBuilder& builder, NodeId from, const CharSet& set, NodeId to,
               Spelling spelling) {
  Utf8Edges edges(builder, to);
  if (spelling == Spelling::kText) {
    for (const CharRange& range : set.ranges()) edges.add(from, range.low, range.high);
    return;
  }
  CharSet special(0, 0x1F);
  special.add('"', '"');
  special.add('\\', '\\');
  if (spelling == Spelling::kJsonMarkup) special.add('<', '<');
  const CharSet plain = set.without(special);
  for (const CharRange& range : plain.ranges()) edges.add(from, range.low, range.high);
  std::vector<std::string> escapes;
  for (const CharRange& range : special.ranges()) {
    for (char32_t c = range.low; c <= range.high; ++c) {
      if (set.contains(c)) escapes.push_back(escape(c, spelling));
    }
  }
  if (!escapes.empty()) builder.one_of(from, std::move(escapes), to);
}

std::string spell(std::string_view utf8, Spelling spelling) {
  if (spelling == Spelling::kText) return std::string(utf8);
  std::string out;
  for (const char32_t c : to_chars(utf8)) {
    const std::string escaped = escape(c, spelling);
    out += escaped.empty() ? to_utf8(c) : escaped;
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const text::DecodedChar c = text::decode_char(text, i);
    if (!c.valid) return false;
    i += c.length;
  }
  return true;
}

std::u32string to_chars(std::string_view utf8) {
  std::u32string out;
  for (size_t i = 0; i < utf8.size();) {
    const text::DecodedChar c = text::decode_char(utf8, i);
    out += c.code_point;
    i += c.length;
  }
  return out;
}

std::string to_utf8(char32_t c) {
  std::string out;
  text::append_code_point(c, &out);
  return out;
}

}  // namespace cedra::decode

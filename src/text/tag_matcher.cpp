// Tags are matched piece by piece, so that a text that ends inside one is known to be partial.
#include "text/tag_matcher.h"

#include <algorithm>

#include "text/markup.h"

namespace cedra::text {
namespace {

constexpr std::string_view kBar = "\uff5c";

struct Word {
  std::string_view text;
  Tag::Kind open;
  Tag::Kind close;
};
constexpr Word kWords[] = {
    {"calls", Tag::Kind::kCallsOpen, Tag::Kind::kCallsClose},
    {"tool_calls", Tag::Kind::kCallsOpen, Tag::Kind::kCallsClose},
    {"function_calls", Tag::Kind::kCallsOpen, Tag::Kind::kCallsClose},
    {"invoke", Tag::Kind::kInvokeOpen, Tag::Kind::kInvokeClose},
    {"parameter", Tag::Kind::kParameterOpen, Tag::Kind::kParameterClose},
};

// Walks over a text; `partial` once the text ended inside something that fitted so far.
struct Cursor {
  std::string_view text;
  size_t at = 0;
  bool partial = false;

  bool take(std::string_view literal) {
    const Fit result = fit(text.substr(at), literal);
    if (result == Fit::kYes) at += literal.size();
    partial = partial || result == Fit::kPartial;
    return result == Fit::kYes;
  }
  bool at_end() const { return at == text.size(); }
};

bool take_bar(Cursor& cursor) { return cursor.take(kBar) || (!cursor.partial && cursor.take("|")); }

// The rest of a tag behind its word.
bool take_end(Cursor& cursor, Tag::Kind kind) {
  if (kind == Tag::Kind::kInvokeOpen || kind == Tag::Kind::kParameterOpen) {
    return cursor.take(" name=\"");
  }
  return cursor.take(">") || (!cursor.partial && cursor.take("\n"));
}

Tag match_dsml(std::string_view text, TagSet wanted) {
  const Tag partial{Tag::Kind::kPartial, 0};
  Cursor cursor{text};
  if (!cursor.take("<")) return {};
  if (cursor.at_end()) return partial;
  const bool closing = cursor.take("/");
  if (cursor.at_end()) return partial;
  if (!take_bar(cursor) || !cursor.take("DSML") || !take_bar(cursor)) {
    return cursor.partial ? partial : Tag{};
  }
  if (cursor.at_end()) return partial;
  cursor.take(" ");
  bool maybe = false;
  for (const Word& word : kWords) {
    const Tag::Kind kind = closing ? word.close : word.open;
    if ((wanted & tag_set(kind)) == 0) continue;
    Cursor rest = cursor;
    if (rest.take(word.text) && take_end(rest, kind)) return {kind, rest.at};
    maybe = maybe || rest.partial;
  }
  return maybe ? partial : Tag{};
}

// The set's DSML kinds of one direction; an opening tag cannot become a closing one.
constexpr TagSet kDsmlKinds =
    tag_set(Tag::Kind::kCallsOpen, Tag::Kind::kCallsClose, Tag::Kind::kInvokeOpen,
            Tag::Kind::kInvokeClose, Tag::Kind::kParameterOpen, Tag::Kind::kParameterClose);
constexpr TagSet kClosingKinds =
    tag_set(Tag::Kind::kCallsClose, Tag::Kind::kInvokeClose, Tag::Kind::kParameterClose);

}  // namespace

Fit fit(std::string_view text, std::string_view literal) {
  const size_t size = std::min(text.size(), literal.size());
  if (text.substr(0, size) != literal.substr(0, size)) return Fit::kNo;
  return size == literal.size() ? Fit::kYes : Fit::kPartial;
}

Tag match_tag(std::string_view text, TagSet wanted) {
  struct Literal {
    Tag::Kind kind;
    std::string_view text;
  };
  constexpr Literal kLiterals[] = {{Tag::Kind::kThink, markup::kThink},
                                   {Tag::Kind::kThinkEnd, markup::kThinkEnd},
                                   {Tag::Kind::kEos, markup::kEos}};
  bool maybe = false;
  for (const Literal& literal : kLiterals) {
    if ((wanted & tag_set(literal.kind)) == 0) continue;
    const Fit result = fit(text, literal.text);
    if (result == Fit::kYes) return {literal.kind, literal.text.size()};
    maybe = maybe || result == Fit::kPartial;
  }
  TagSet dsml = wanted & kDsmlKinds;
  if (text.size() > 1) dsml &= text[1] == '/' ? kClosingKinds : ~kClosingKinds;
  if (dsml != 0) {
    const Tag tag = match_dsml(text, dsml);
    if (tag.kind != Tag::Kind::kNone && tag.kind != Tag::Kind::kPartial) return tag;
    maybe = maybe || tag.kind == Tag::Kind::kPartial;
  }
  return maybe ? Tag{Tag::Kind::kPartial, 0} : Tag{};
}

}  // namespace cedra::text

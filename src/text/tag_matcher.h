// Recognises one tag of the model's markup at the start of a text, in the official spelling and in
// the malformed ones that are accepted (spec chat.md 3.2, 3.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cedra::text {

struct Tag {
  enum class Kind : uint8_t {
    kNone,     // the text starts with no tag
    kPartial,  // it may, once more text is there
    kThink,
    kThinkEnd,
    kEos,
    kCallsOpen,
    kCallsClose,
    kInvokeOpen,  // up to and with the quote that opens the name
    kInvokeClose,
    kParameterOpen,  // likewise
    kParameterClose,
  };
  Kind kind = Kind::kNone;
  size_t length = 0;  // bytes, of a whole tag
};

// A set of kinds.
using TagSet = uint32_t;
constexpr TagSet tag_set(auto... kinds) {
  return ((TagSet{1} << static_cast<uint32_t>(kinds)) | ... | 0);
}

// Looks only for kinds of `wanted`; `text` starts with '<'. Accepted beside the official spelling:
// no space before the tag word, "tool_calls" and "function_calls" as block names, ASCII bars, and a
// line feed in place of a missing '>'.
Tag match_tag(std::string_view text, TagSet wanted);

// Compares a text with a literal of which it may have only the beginning.
enum class Fit : uint8_t { kNo, kPartial, kYes };
Fit fit(std::string_view text, std::string_view literal);

}  // namespace cedra::text

// The three isolating splits of the official tokenizer as one scanner without backtracking (spec
// chat.md 1.2). The regular expressions that it stands for are kept here, so that the loader can
// refuse a file that has others.
#pragma once

#include <cstddef>
#include <string_view>

namespace cedra::text {

inline constexpr std::string_view kSplitNumbers = R"(\p{N}{1,3})";
inline constexpr std::string_view kSplitHanKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
// CR and LF stand in the classes as themselves, not as escapes.
inline constexpr std::string_view kSplitWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

// End of the piece that starts at `begin` (< text.size()). `text` is one stretch without added
// tokens; its end is a border that no look-ahead sees across. Each character is looked at a bounded
// number of times over a whole text. Bytes that are not UTF-8 count as control characters, each
// broken sequence as one.
size_t piece_end(std::string_view text, size_t begin);

}  // namespace cedra::text

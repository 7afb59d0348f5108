// Regular expressions in ECMAScript's syntax with the flag u, as JSON Schema's "pattern" has them,
// as far as they are regular: no lookaround, word borders, back references or flags
// (docs/structured_output.md has the list).
#pragma once

#include <string_view>

#include "base/result.h"
#include "decode/grammar_language.h"

namespace cedra::decode {

inline constexpr int kMaxRegexDepth = 200;  // groups in groups
inline constexpr int64_t kMaxRegexSize = int64_t{1}
                                         << 18;  // edges with all repetitions written out

// The texts that match as a whole; with `anywhere`, those in which a match can be found. Errors:
// kInvalid with the position (in characters) and what was expected, kUnsupported for what is not
// regular, kTooLarge.
Result<CharNfa> parse_regex(std::string_view pattern, bool anywhere);

// Between two nodes of a builder; kTooLarge if anchors inside need too many states.
Result<> add_regex(RuleBuilder& builder, NodeId from, const CharNfa& nfa, NodeId to,
                   Spelling spelling);

// A character class as in a regex, from its '[' on; `at` moves behind its ']'.
Result<CharSet> parse_char_class(std::u32string_view pattern, size_t& at);

}  // namespace cedra::decode

// Reading UTF-8 that may be broken: one character at a time, the incomplete end of a byte stream,
// and the replacement of what is not UTF-8 by U+FFFD. Well-formed means RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cedra::text {

struct DecodedChar {
  char32_t code_point = 0;  // 0xFFFD if not valid
  uint32_t length = 1;      // bytes; if not valid, those of the broken sequence (1..3)
  bool valid = false;
  bool truncated = false;  // not valid, but more bytes after the end of the text could make it so
};

// Reads the character at `position` (< text.size()). A broken sequence has the length that the
// Unicode standard calls "maximal subpart": a decoder gives one U+FFFD for it.
DecodedChar decode_char(std::string_view text, size_t position);

// Appends `bytes` to `out` with U+FFFD for each broken sequence.
void append_lossy(std::string_view bytes, std::string* out);

// Length (0..3) of the end of `bytes` that is the beginning of a sequence and lacks the rest.
size_t incomplete_suffix(std::string_view bytes);

// Appends one code point (not a surrogate, up to U+10FFFF).
void append_code_point(char32_t code_point, std::string* out);

}  // namespace cedra::text

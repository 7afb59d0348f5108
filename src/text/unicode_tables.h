// The character classes that the splits of the tokenizer ask for (spec chat.md 1.2), from one
// Unicode version (16.0). Classes are disjoint; where two apply, the split that runs first wins
// (numbers, then Han and kana).
#pragma once

#include <cstddef>
#include <cstdint>

namespace cedra::text {

enum class CharClass : uint8_t {
  kOther = 0,    // control, format, unassigned, private use; also bytes that are not UTF-8
  kLetter = 1,   // \p{L} outside kHanKana
  kMark = 2,     // \p{M} outside kHanKana
  kNumber = 3,   // \p{N}
  kSymbol = 4,   // \p{P} or \p{S} outside kHanKana
  kSpace = 5,    // White_Space without CR and LF
  kNewline = 6,  // CR, LF
  kHanKana = 7,  // U+4E00-9FA5, U+3040-309F, U+30A0-30FF
};

inline constexpr const char* kUnicodeVersion = "16.0";

extern const unsigned char kCharClassBlock[];  // [0x110000 / 256]
extern const char kCharClassDigits[];          // [blocks * 256], digits of CharClass

// Class of a code point up to U+10FFFF.
inline CharClass char_class(char32_t code_point) {
  const size_t block = kCharClassBlock[code_point >> 8];
  return static_cast<CharClass>(kCharClassDigits[block * 256 + (code_point & 255)] & 7);
}

// The same for a code point below 128: block 0 is the first one.
inline CharClass ascii_class(unsigned char byte) {
  return static_cast<CharClass>(kCharClassDigits[byte] & 7);
}

}  // namespace cedra::text

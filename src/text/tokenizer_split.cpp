// The splits, fused: numbers and Han/kana are classes of their own, so a stretch between them ends
// by itself where another class begins. Comments name the alternatives C1..C6 of chat.md 1.2.
#include "text/tokenizer_split.h"

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace cedra::text {
namespace {

struct Char {
  CharClass kind;
  uint32_t length;
};

// A reader of classes; `end()` of the text has no class, the callers check.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end(size_t i) const { return i >= text_.size(); }
  unsigned char byte(size_t i) const { return static_cast<unsigned char>(text_[i]); }

  Char at(size_t i) const {
    const unsigned char first = byte(i);
    if (first < 0x80) return {ascii_class(first), 1};
    const DecodedChar c = decode_char(text_, i);
    return {c.valid ? char_class(c.code_point) : CharClass::kOther, c.length};
  }

  static bool is_ascii_letter(unsigned char byte) {
    return static_cast<unsigned char>((byte | 0x20) - 'a') < 26;
  }

  // [\p{L}\p{M}]* from i.
  size_t letters(size_t i) const {
    for (;;) {
      while (!at_end(i) && is_ascii_letter(byte(i))) ++i;
      if (at_end(i) || byte(i) < 0x80) return i;  // no other ASCII letters, no ASCII marks
      const Char c = at(i);
      if (c.kind != CharClass::kLetter && c.kind != CharClass::kMark) return i;
      i += c.length;
    }
  }

  size_t run_of(CharClass kind, size_t i) const {
    while (!at_end(i)) {
      const Char c = at(i);
      if (c.kind != kind) break;
      i += c.length;
    }
    return i;
  }

  // [\p{P}\p{S}]+[\r\n]* from i, which stands on such a sign (C3).
  size_t symbols(size_t i) const {
    return run_of(CharClass::kNewline, run_of(CharClass::kSymbol, i));
  }

  // C4, C5, C6 from i, which stands on white space.
  size_t white_space(size_t begin) const {
    size_t i = begin;
    size_t last = begin;           // start of the last character of the run
    size_t after_newline = begin;  // end of the last CR or LF in it
    bool border = true;            // nothing, or another split's piece, follows the run
    while (!at_end(i)) {
      const Char c = at(i);
      if (c.kind != CharClass::kSpace && c.kind != CharClass::kNewline) {
        border = c.kind == CharClass::kNumber || c.kind == CharClass::kHanKana;
        break;
      }
      last = i;
      i += c.length;
      if (c.kind == CharClass::kNewline) after_newline = i;
    }
    if (after_newline > begin) return after_newline;  // C4
    if (border) return i;                             // C5, the whole run
    return last > begin ? last : i;                   // C5 all but one, else C6
  }

  // End of the match that starts at i, or i if nothing matches there.
  size_t match(size_t i) const {
    const Char c = at(i);
    const size_t next = i + c.length;
    const auto letter_follows = [&] {
      if (at_end(next)) return false;
      const CharClass kind = at(next).kind;
      return kind == CharClass::kLetter || kind == CharClass::kMark;
    };
    switch (c.kind) {
      case CharClass::kNumber: {
        size_t end = next;
        for (int more = 0; more < 2 && !at_end(end); ++more) {
          const Char d = at(end);
          if (d.kind != CharClass::kNumber) break;
          end += d.length;
        }
        return end;
      }
      case CharClass::kHanKana:
        return run_of(CharClass::kHanKana, next);
      case CharClass::kLetter:
      case CharClass::kMark:
        return letters(next);  // C2
      case CharClass::kSymbol:
        if (c.length == 1 && !at_end(next) && is_ascii_letter(byte(next))) {  // C1
          size_t end = next + 1;
          while (!at_end(end) && is_ascii_letter(byte(end))) ++end;
          return end;
        }
        return symbols(i);
      case CharClass::kSpace:
        if (letter_follows()) return letters(next);  // C2
        if (byte(i) == ' ' && !at_end(next) && at(next).kind == CharClass::kSymbol) {
          return symbols(next);
        }
        return white_space(i);
      case CharClass::kNewline:
        return white_space(i);
      case CharClass::kOther:
        return letter_follows() ? letters(next) : i;  // C2
    }
    return i;
  }

 private:
  std::string_view text_;
};

}  // namespace

size_t piece_end(std::string_view text, size_t begin) {
  const Reader reader(text);
  const size_t end = reader.match(begin);
  if (end > begin) return end;
  // A gap: everything up to the next match is one piece.
  size_t i = begin;
  do {
    i += reader.at(i).length;
  } while (!reader.at_end(i) && reader.match(i) == i);
  return i;
}

}  // namespace cedra::text

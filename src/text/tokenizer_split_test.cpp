// The scanner against the regular expressions themselves: characters are written as one letter per
// class, and std::regex (backtracking, first alternative wins) splits these in three passes.
#include "text/tokenizer_split.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace cedra::text {
namespace {

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(text, begin);
    if (end <= begin || end > text.size()) {
      ADD_FAILURE() << "no progress at " << begin;
      break;
    }
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

// Characters of each symbol of the class alphabet.
struct Symbol {
  char name;
  std::vector<std::string> characters;
};
const std::vector<Symbol>& alphabet() {
  static const std::vector<Symbol> symbols = {
      {'a', {"a", "Z", "q"}},
      {'l', {"\u00e9", "\u0416", "\uac00"}},
      {'m', {"\u0301", "\u0903", "\u20dd"}},
      {'n', {"7", "\u00bd", "\u0664", "\u2167"}},
      {'!', {"!", "_", "~", "$", "\\", "]", "^", "-", "`"}},
      {'p', {"\u3002", "\u00ac", "\U0001F600", "\u20ac"}},
      {'s', {" "}},
      {'t', {"\t", "\u00a0", "\u3000", "\u0085", "\v"}},
      {'r', {"\r", "\n"}},
      {'o', {std::string(1, '\0'), "\u200d", "\x7f", "\ue000", "\u0378"}},
      {'h', {"\u4e00", "\u9fa5", "\u3042", "\u30a0", "\u309b", "\u3099"}},
  };
  return symbols;
}

// Every match and every gap of `pattern` in each piece becomes a piece.
std::vector<std::string> isolate(const std::vector<std::string>& in, const std::regex& pattern) {
  std::vector<std::string> out;
  for (const std::string& piece : in) {
    size_t done = 0;
    for (std::sregex_iterator it(piece.begin(), piece.end(), pattern), end; it != end; ++it) {
      const auto at = static_cast<size_t>(it->position());
      if (at > done) out.push_back(piece.substr(done, at - done));
      out.push_back(it->str());
      done = at + static_cast<size_t>(it->length());
    }
    if (done < piece.size()) out.push_back(piece.substr(done));
  }
  return out;
}

std::vector<std::string> split_symbols(const std::string& symbols) {
  static const std::regex numbers("n{1,3}");
  static const std::regex han_kana("h+");
  static const std::regex words("!a+|[^ral!p]?[alm]+|s?[!p]+r*|[str]*r+|[str]+(?![^str])|[str]+");
  return isolate(isolate(isolate({symbols}, numbers), han_kana), words);
}

TEST(TokenizerSplit, EqualsTheRegularExpressions) {
  std::mt19937 random(20250101);
  for (int round = 0; round < 30000; ++round) {
    std::string symbols, text;
    std::vector<size_t> lengths;
    const size_t count = random() % 14 + 1;
    const size_t kinds = random() % alphabet().size() + 1;  // few kinds make long runs
    for (size_t i = 0; i < count; ++i) {
      const Symbol& symbol =
          alphabet()[(random() % kinds + static_cast<size_t>(round)) % alphabet().size()];
      const size_t pick = random() % symbol.characters.size();
      symbols.push_back(symbol.name);
      text += symbol.characters[pick];
      lengths.push_back(symbol.characters[pick].size());
    }
    std::vector<std::string> expected;
    size_t character = 0, byte = 0;
    for (const std::string& piece : split_symbols(symbols)) {
      size_t length = 0;
      for (size_t i = 0; i < piece.size(); ++i) length += lengths[character++];
      expected.push_back(text.substr(byte, length));
      byte += length;
    }
    ASSERT_EQ(pieces(text), expected) << symbols;
  }
}

TEST(TokenizerSplit, Examples) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces("Hello  world"), (Pieces{"Hello", " ", " world"}));
  EXPECT_EQ(pieces("1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(pieces("  5"), (Pieces{"  ", "5"}));  // the look-ahead sees the piece's end
  EXPECT_EQ(pieces("  \u4f60"), (Pieces{"  ", "\u4f60"}));
  EXPECT_EQ(pieces("  x"), (Pieces{" ", " x"}));
  EXPECT_EQ(pieces("a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(pieces("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(pieces("!!a"), (Pieces{"!!", "a"}));
  EXPECT_EQ(pieces("!\n\n\nx"), (Pieces{"!\n\n\n", "x"}));
  EXPECT_EQ(pieces("\u200dx"), (Pieces{"\u200dx"}));
  EXPECT_EQ(pieces("\U0001F468\u200d\U0001F469"), (Pieces{"\U0001F468", "\u200d", "\U0001F469"}));
  EXPECT_EQ(pieces(std::string("\0\1\2", 3)), (Pieces{std::string("\0\1\2", 3)}));
}

TEST(TokenizerSplit, BytesThatAreNotUtf8AreControlCharacters) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces("\xFF\xFE"), (Pieces{"\xFF\xFE"}));
  EXPECT_EQ(pieces("1\xFF"
                   "2"),
            (Pieces{"1", "\xFF", "2"}));
  EXPECT_EQ(pieces("\xFF"
                   "abc"),
            (Pieces{"\xFF"
                    "abc"}));
  EXPECT_EQ(pieces("abc\xE4\xBD"), (Pieces{"abc", "\xE4\xBD"}));
}

TEST(TokenizerSplit, ClassesOfSomeCodePoints) {
  EXPECT_EQ(char_class(U'A'), CharClass::kLetter);
  EXPECT_EQ(char_class(U'\u0301'), CharClass::kMark);
  EXPECT_EQ(char_class(U'\u00bd'), CharClass::kNumber);
  EXPECT_EQ(char_class(U'\u3007'), CharClass::kNumber);   // ideographic zero is Nl
  EXPECT_EQ(char_class(U'\u9fa6'), CharClass::kLetter);   // just after the Han range
  EXPECT_EQ(char_class(U'\u30fb'), CharClass::kHanKana);  // punctuation, but inside the range
  EXPECT_EQ(char_class(U'\u0085'), CharClass::kSpace);
  EXPECT_EQ(char_class(U'\u200b'), CharClass::kOther);
  EXPECT_EQ(char_class(U'\u1c89'), CharClass::kLetter);  // new in Unicode 16.0
  EXPECT_EQ(char_class(U'\ua7ce'), CharClass::kOther);   // new in Unicode 17.0
  EXPECT_EQ(char_class(0x10FFFF), CharClass::kOther);
  for (unsigned char c = 0; c < 128; ++c) EXPECT_EQ(ascii_class(c), char_class(c));
}

}  // namespace
}  // namespace cedra::text

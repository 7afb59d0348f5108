// UTF-8 reading: the ill-formed sequences of the Unicode standard (section 3.9) and stream ends.
#include "text/utf8.h"

#include <gtest/gtest.h>

namespace cedra::text {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy(bytes, &out);
  return out;
}

TEST(Utf8, ReadsEveryCodePointThatItWrites) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_code_point(c, &text);
    const DecodedChar read = decode_char(text, 0);
    ASSERT_TRUE(read.valid) << static_cast<uint32_t>(c);
    ASSERT_EQ(read.code_point, c);
    ASSERT_EQ(read.length, text.size());
    ASSERT_EQ(incomplete_suffix(text), 0u);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(incomplete_suffix("x" + text.substr(0, cut)), cut);
    }
  }
}

TEST(Utf8, ReplacesOneMaximalSubpartAtATime) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(lossy("a\x80z"), "a" + r + "z");
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(lossy("\xE4\xBD"), r);
}

TEST(Utf8, HoldsBackOnlyWhatMayBecomeValid) {
  EXPECT_EQ(incomplete_suffix(""), 0u);
  EXPECT_EQ(incomplete_suffix("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(incomplete_suffix("\xE0\x80"), 0u);  // overlong already
  EXPECT_EQ(incomplete_suffix("\xED\xA0"), 0u);  // a surrogate already
  EXPECT_EQ(incomplete_suffix("\xF4\x90"), 0u);  // above U+10FFFF already
  EXPECT_EQ(incomplete_suffix("\xF0\x9F\x91"), 3u);
  EXPECT_EQ(incomplete_suffix("\xF0\x9F\x91\x8D"), 0u);
  EXPECT_EQ(incomplete_suffix("\xF0\xF0"), 1u);
  EXPECT_EQ(incomplete_suffix("\xFF"), 0u);
}

}  // namespace
}  // namespace cedra::text

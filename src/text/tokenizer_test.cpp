// The tokenizer on the small golden vocabularies: encoding, decoding, segments, streaming.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "text/special_tokens.h"
#include "text/utf8.h"

namespace cedra::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string golden(const std::string& name) {
  return std::string(CEDRA_SOURCE_DIR) + "/tests/golden/" + name;
}

Tokenizer tiny() {
  auto tokenizer = Tokenizer::load(golden("tiny"));
  EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
  return std::move(tokenizer).value();
}

Json tiny_json() { return Json::parse(std::ifstream(golden("tiny/tokenizer.json"))); }

void add_token(Json* file, int id, const std::string& content, bool normalized = false) {
  (*file)["added_tokens"].push_back({{"id", id},
                                     {"content", content},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", normalized},
                                     {"special", false}});
}

Tokenizer parsed(const Json& file) {
  auto tokenizer = Tokenizer::parse(file.dump());
  EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
  return std::move(tokenizer).value();
}

// Bytes of all tokens: what encode() must keep whatever the text.
std::string bytes(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string all;
  for (const int32_t id : ids) all += tokenizer.token_bytes(id);
  return all;
}

// Text of many scripts, controls, white space, and pieces of added tokens.
std::string random_text(std::mt19937* random) {
  static const std::vector<std::string> parts = {"the ",
                                                 "Hello",
                                                 " ",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "123456",
                                                 "\u00e9",
                                                 "\u4f60\u597d",
                                                 "\u3042",
                                                 "\U0001F468\u200d\U0001F469",
                                                 "\u0301",
                                                 "<",
                                                 "think>",
                                                 "<think",
                                                 "\uff5c",
                                                 "DSML",
                                                 "</",
                                                 std::string(1, '\0'),
                                                 "\ufffd",
                                                 "\U0010FFFF",
                                                 "!!",
                                                 "'s",
                                                 "   ",
                                                 "\u00a0",
                                                 "aaaaaaaaaa"};
  std::string text;
  const size_t count = (*random)() % 30;
  for (size_t i = 0; i < count; ++i) {
    if ((*random)() % 4 == 0) {
      char32_t c = static_cast<char32_t>((*random)() % 0x110000);
      if (c >= 0xD800 && c < 0xE000) c = 0xE000;
      append_code_point(c, &text);
    } else {
      text += parts[(*random)() % parts.size()];
    }
  }
  return text;
}

TEST(Tokenizer, LoadsTheGoldenFiles) {
  const Tokenizer tokenizer = tiny();
  EXPECT_EQ(tokenizer.size(), 512);
  EXPECT_EQ(tokenizer.added_tokens().size(), 20u);
  EXPECT_EQ(tokenizer.added_id("<think>"), 501);
  EXPECT_EQ(tokenizer.added_id("think"), std::nullopt);
  EXPECT_EQ(tokenizer.token_string(501), "<think>");
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(501));
  for (const int32_t id : {-1, 512, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_string(id), "");
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  const auto deep = Tokenizer::load(golden("deep"));
  ASSERT_TRUE(deep.has_value());
  EXPECT_EQ(deep->size(), 640);
  const auto missing = Tokenizer::load(golden("nowhere"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

TEST(Tokenizer, EmptyTextHasNoTokens) {
  const Tokenizer tokenizer = tiny();
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_TRUE(tokenizer.encode_plain("").empty());
  EXPECT_TRUE(tokenizer.encode(std::span<const Segment>()).empty());
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Tokenizer, AddedTokensBreakMergesAndWinLongestLeftmost) {
  Json file = tiny_json();
  add_token(&file, 512, "<think>ing");
  add_token(&file, 513, "ing ab");
  const Tokenizer tokenizer = parsed(file);
  const int32_t a = tokenizer.encode("a").at(0), b = tokenizer.encode("b").at(0);
  EXPECT_THAT(tokenizer.encode("a<think>b"), ElementsAre(a, 501, b));
  EXPECT_THAT(tokenizer.encode("<think><think>"), ElementsAre(501, 501));
  EXPECT_THAT(tokenizer.encode("<think>ing"), ElementsAre(512));
  // Leftmost first: "<think>ing" takes the letters that "ing ab" would need.
  EXPECT_EQ(tokenizer.encode("<think>ing ab").at(0), 512);
  EXPECT_THAT(tokenizer.encode("ing ab"), ElementsAre(513));
  EXPECT_EQ(bytes(tokenizer, tokenizer.encode_plain("a<think>b")), "a<think>b");
  EXPECT_THAT(tokenizer.encode_plain("a<think>b"), ::testing::Not(::testing::Contains(501)));
}

TEST(Tokenizer, NormalizedAddedTokensComeSecond) {
  Json file = tiny_json();
  add_token(&file, 512, "x<think", true);
  const Tokenizer tokenizer = parsed(file);
  // "<think>" is not "normalized", so it is cut out before "x<think" is looked for.
  EXPECT_THAT(tokenizer.encode("x<think>"), ElementsAre(tokenizer.encode("x").at(0), 501));
  EXPECT_THAT(tokenizer.encode("x<think"), ElementsAre(512));
}

TEST(Tokenizer, RoundTripsAnyText) {
  const Tokenizer tokenizer = tiny();
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(&random);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode_plain(text)), text);
  }
}

TEST(Tokenizer, KeepsBytesThatAreNotUtf8) {
  const Tokenizer tokenizer = tiny();
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string text = random_text(&random);
    for (size_t i = 0; i < text.size(); ++i) {
      if (random() % 8 == 0) text[i] = static_cast<char>(random());
    }
    const auto ids = tokenizer.encode(text);
    ASSERT_EQ(bytes(tokenizer, ids), text);
    std::string repaired;
    append_lossy(text, &repaired);
    ASSERT_EQ(tokenizer.decode(ids), repaired);
  }
}

TEST(Tokenizer, SegmentsEqualPlainEncodingWithoutLiterals) {
  const Tokenizer tokenizer = tiny();
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(&random);
    if (tokenizer.encode(text) != tokenizer.encode_plain(text)) continue;  // holds a literal
    std::vector<Segment> segments;
    for (size_t begin = 0; begin < text.size();) {  // borders also inside characters
      const size_t length = std::min<size_t>(random() % 9, text.size() - begin);
      segments.push_back({text.substr(begin, length), random() % 2 == 0});
      begin += length;
    }
    ASSERT_EQ(tokenizer.encode(segments), tokenizer.encode_plain(text));
  }
}

TEST(Tokenizer, TrustedSegmentsEqualTheWholeText) {
  const Tokenizer tokenizer = tiny();
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_text(&random) + "<think>" + random_text(&random);
    std::vector<Segment> segments;
    for (size_t begin = 0; begin < text.size();) {
      const size_t length = std::min<size_t>(random() % 9, text.size() - begin);
      segments.push_back({text.substr(begin, length), true});
      begin += length;
    }
    ASSERT_EQ(tokenizer.encode(segments), tokenizer.encode(text));
  }
}

TEST(Tokenizer, OnlyTrustedSegmentsHoldAddedTokens) {
  const Tokenizer tokenizer = tiny();
  const auto encode = [&](std::vector<Segment> segments) { return tokenizer.encode(segments); };
  const auto plain = tokenizer.encode_plain("<think>");
  EXPECT_THAT(encode({{"<think>", true}}), ElementsAre(501));
  EXPECT_EQ(encode({{"<think>", false}}), plain);
  // A literal that only the border makes: neither half may complete it.
  EXPECT_EQ(encode({{"<thi", true}, {"nk>", false}}), plain);
  EXPECT_EQ(encode({{"<thi", false}, {"nk>", true}}), plain);
  EXPECT_EQ(encode({{"<thi", false}, {"nk>", false}}), plain);
  // Neighbouring trusted segments are one text.
  EXPECT_THAT(encode({{"<thi", true}, {"", true}, {"nk>", true}}), ElementsAre(501));
  auto expected = plain;
  expected.insert(expected.begin(), 501);
  expected.push_back(502);
  EXPECT_EQ(encode({{"<think>", true}, {"<think>", false}, {"</think>", true}}), expected);
}

TEST(Tokenizer, IncrementalDecodingEqualsWholeDecoding) {
  const Tokenizer tokenizer = tiny();
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids;
    if (round % 2 == 0) {
      ids = tokenizer.encode(random_text(&random));
    } else {  // any ids: mostly broken UTF-8
      for (size_t i = 0; i < 40; ++i) ids.push_back(static_cast<int32_t>(random() % 520));
    }
    const bool skip = round % 3 == 0;
    IncrementalDecoder decoder(tokenizer, skip);
    std::string text;
    for (const int32_t id : ids) {
      const std::string part = decoder.push(id);
      for (size_t i = 0; i < part.size();) {
        const DecodedChar c = decode_char(part, i);
        ASSERT_TRUE(c.valid) << "every part is text by itself";
        i += c.length;
      }
      text += part;
    }
    text += decoder.finish();
    ASSERT_EQ(text, tokenizer.decode(ids, skip));
  }
}

TEST(Tokenizer, IncrementalDecodingOfEveryByteOfACharacter) {
  const Tokenizer tokenizer = tiny();
  // This vocabulary has no merges of these bytes, so each is a token.
  const auto ids = tokenizer.encode("\U0001F44D");
  ASSERT_EQ(ids.size(), 4u);
  for (size_t cut = 1; cut <= 4; ++cut) {
    IncrementalDecoder decoder(tokenizer);
    std::string text;
    for (size_t i = 0; i < cut; ++i) text += decoder.push(ids[i]);
    EXPECT_EQ(text, cut == 4 ? "\U0001F44D" : "");
    EXPECT_EQ(decoder.finish(), cut == 4 ? "" : "\uFFFD");
    EXPECT_EQ(decoder.finish(), "") << "only once";
  }
}

TEST(Tokenizer, SkipSpecialHidesOnlySpecialTokens) {
  const Tokenizer tokenizer = tiny();
  const std::vector<int32_t> ids = {0, 501, 499, 1};
  EXPECT_EQ(tokenizer.decode(ids, true), "<think><\uff5cUser\uff5c>");
  EXPECT_EQ(tokenizer.decode(ids),
            std::string(kBosText) + "<think><\uff5cUser\uff5c>" + std::string(kEosText));
}

TEST(SpecialTokens, AreFoundByText) {
  const auto tokens = SpecialTokens::find(tiny());
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->bos, 0);
  EXPECT_EQ(tokens->eos, 1);
  EXPECT_EQ(tokens->pad, 2);
  EXPECT_EQ(tokens->system, 495);
  EXPECT_EQ(tokens->dsml, 503);
  EXPECT_EQ(tokens->image, 511);
  EXPECT_EQ(tokens->read_url, 510);
}

TEST(SpecialTokens, RefusesTheTokenizerOfV4ByName) {
  Json file = tiny_json();
  auto& added = file["added_tokens"];
  for (auto& token : added) {
    if (token["content"] == std::string(kSystemText)) token["content"] = "<place holder>";
  }
  const auto tokens = SpecialTokens::find(parsed(file));
  ASSERT_FALSE(tokens.has_value());
  EXPECT_THAT(tokens.error().message, HasSubstr("DeepSeek-V4 or older"));
  EXPECT_THAT(tokens.error().message, HasSubstr(std::string(kSystemText)));
}

TEST(SpecialTokens, AcceptsTheToolkitsSpellingOfTheImageToken) {
  Json file = tiny_json();
  for (auto& token : file["added_tokens"]) {
    if (token["content"] == std::string(kImageText)) {
      token["content"] = std::string(kImageTextToolkit);
    }
  }
  const auto tokens = SpecialTokens::find(parsed(file));
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->image, 511);
}

}  // namespace
}  // namespace cedra::text

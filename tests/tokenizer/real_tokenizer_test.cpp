// The released vocabulary: published cases, ids, the compressed token map, and that long runs take
// work in proportion to their length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace cedra::text {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json constants() {
  return Json::parse(
      std::ifstream(std::string(CEDRA_SOURCE_DIR) + "/docs/spec/engram_constants.json"));
}

class RealTokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded = Tokenizer::load(CEDRA_REAL_TOKENIZER);
    ASSERT_TRUE(loaded.has_value())
        << loaded.error().message << "\nscripts/fetch_tokenizer.sh makes this file";
    tokenizer_ = new Tokenizer(std::move(loaded).value());
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(tokenizer_, nullptr); }
  static Tokenizer* tokenizer_;
};
Tokenizer* RealTokenizer::tokenizer_ = nullptr;

TEST_F(RealTokenizer, PublishedCases) {
  const Json file =
      Json::parse(std::ifstream(std::string(CEDRA_SOURCE_DIR) + "/tests/data/chat/tokenizer.json"));
  ASSERT_EQ(file["cases"].size(), 88u);
  for (const Json& test : file["cases"]) {
    const std::string text = test["text"];
    const auto ids = test["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->encode(text), ids) << test["text"];
    EXPECT_EQ(tokenizer_->decode(ids), text);
  }
}

TEST_F(RealTokenizer, HandyIds) {
  EXPECT_EQ(tokenizer_->size(), 129280);
  EXPECT_THAT(tokenizer_->encode("\n\n"), ElementsAre(271));
  EXPECT_THAT(tokenizer_->encode(">\n"), ElementsAre(1018));
  EXPECT_THAT(tokenizer_->encode("<\uff5cDSML\uff5c calls>\n"),
              ElementsAre(30, 128825, 10699, 1018));
  EXPECT_THAT(tokenizer_->encode_plain("<\uff5cUser\uff5c>"),
              ElementsAre(30, 28217, 6756, 28217, 32));
  EXPECT_EQ(tokenizer_->encode_plain("<think>").size(), 3u);
}

TEST_F(RealTokenizer, SpecialTokens) {
  const auto tokens = SpecialTokens::find(*tokenizer_);
  ASSERT_TRUE(tokens.has_value()) << tokens.error().message;
  EXPECT_EQ(tokens->system, 128799);
  EXPECT_EQ(tokens->user, 128803);
  EXPECT_EQ(tokens->think, 128821);
  EXPECT_EQ(tokens->dsml, 128825);
  EXPECT_EQ(tokens->image, 129264);
}

TEST_F(RealTokenizer, CompressedTokenMap) {
  const Json expected = constants()["token_map"];
  const auto map = compressed_token_map(*tokenizer_, 129280);
  ASSERT_EQ(map.map.size(), 129280u);
  EXPECT_EQ(map.size, 99092);
  for (const auto& [id, value] : expected["samples"].items()) {
    EXPECT_EQ(map.map[std::stoul(id)], value) << id;
  }
  unsigned char digest[32];
  unsigned int length = 0;
  ASSERT_EQ(EVP_Digest(map.map.data(), map.map.size() * sizeof(int32_t), digest, &length,
                       EVP_sha256(), nullptr),
            1);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(Json(hex), expected["sha256_le_int32"]);
}

// Token counts of long runs: what the merges give, without a limit on the piece.
TEST_F(RealTokenizer, LongRunsOfOneCharacter) {
  for (const std::string unit : {"a", " ", "\n", "\u4f60", "\u00e9", "!", "7", "\u0301"}) {
    std::string text;
    while (text.size() < size_t{1} << 18) text += unit;
    const auto ids = tokenizer_->encode(text);
    EXPECT_EQ(tokenizer_->decode(ids), text);
    EXPECT_LT(ids.size(), text.size());
  }
}

// Segments against plain text on the real vocabulary, where merges cross every border.
TEST_F(RealTokenizer, SegmentsAreJoinedBeforeMerging) {
  const std::string text =
      "\n\n\n  The quick brown fox: 12345 \u4f60\u597d, string=\"true\">value</x>\n\n\u00e9t\u00e9";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::vector<Segment> segments = {{text.substr(0, cut), true}, {text.substr(cut), false}};
    ASSERT_EQ(tokenizer_->encode(segments), tokenizer_->encode_plain(text)) << cut;
  }
}

}  // namespace
}  // namespace cedra::text

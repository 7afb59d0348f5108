// The compressed token map against the golden folders. The map of the real vocabulary is tested in
// tests/tokenizer.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace cedra::text {
namespace {

using Json = nlohmann::json;

TEST(EngramMap, EqualsTheGoldenFolders) {
  for (const char* name : {"tiny", "deep"}) {
    const std::string folder = std::string(CEDRA_SOURCE_DIR) + "/tests/golden/" + name;
    const Json expected = Json::parse(std::ifstream(folder + "/engram_token_map.json"));
    const Json config = Json::parse(std::ifstream(folder + "/config.json"));
    const auto tokenizer = Tokenizer::load(folder);
    ASSERT_TRUE(tokenizer.has_value());
    const auto map = compressed_token_map(*tokenizer, config["text_config"]["vocab_size"]);
    EXPECT_EQ(map.map, expected["token_map"].get<std::vector<int32_t>>()) << name;
    EXPECT_EQ(map.size, expected["size"].get<int64_t>()) << name;
  }
}

// The texts are added tokens, so each case states exactly what is normalised.
TEST(EngramMap, JoinsWhatDiffersInCaseAccentsAndSpacing) {
  const Json file = Json::parse(
      std::ifstream(std::string(CEDRA_SOURCE_DIR) + "/tests/golden/tiny/tokenizer.json"));
  const auto same = [&](const std::string& left, const std::string& right) {
    Json changed = file;
    int id = 512;
    for (const std::string& content : {left, right}) {
      changed["added_tokens"].push_back({{"id", id++}, {"content", content}, {"special", true}});
    }
    const auto tokenizer = Tokenizer::parse(changed.dump());
    EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
    const auto map = compressed_token_map(*tokenizer, 514).map;
    return map[512] == map[513];
  };
  const std::string x = "\uff5c";  // outside the byte alphabet: the text stands for itself
  EXPECT_TRUE(same(x + "The", " " + x + "THE\t"));
  EXPECT_TRUE(same(x + "\u00e9", x + "e\u0301\u0302"));
  EXPECT_TRUE(same(x + "a \t\r\n b", x + "a b"));
  EXPECT_TRUE(same(x + "\uff21", x + "a"));       // NFKC
  EXPECT_TRUE(same(x + "\u03a3", x + "\u03c3"));  // no final-sigma rule
  EXPECT_FALSE(same(x + "\u03a3", x + "\u03c2"));
  EXPECT_TRUE(same(x + "\u0130", x + "i"));       // the dot is a mark after NFD
  EXPECT_TRUE(same(x + "\u0903", x + "\u20dd"));  // Mc and Me go as well
  EXPECT_TRUE(same("\u2028" + x, x + "\u0085"));  // White_Space at the ends
  EXPECT_FALSE(same("\x1c" + x, x));              // which U+001C is not
  EXPECT_FALSE(same(x + "a  b", x + "ab"));
  EXPECT_FALSE(same(x + "a\vb", x + "a b"));  // only the four are collapsed
}

}  // namespace
}  // namespace cedra::text

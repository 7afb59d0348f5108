// Every rule about tokenizer.json: the golden file with one thing changed, and what is said then.
#include "text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace cedra::text {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

Json tiny_json() {
  return Json::parse(
      std::ifstream(std::string(CEDRA_SOURCE_DIR) + "/tests/golden/tiny/tokenizer.json"));
}

struct Case {
  const char* name;
  std::function<void(Json&)> change;
  std::string message;  // must occur in the error; "" = the file stays good
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"unchanged", [](Json&) {}, ""},
      {"null normalizer", [](Json& f) { f["normalizer"] = nullptr; }, ""},
      {"no normalizer", [](Json& f) { f.erase("normalizer"); }, ""},
      {"NFC", [](Json& f) { f["normalizer"] = {{"type", "NFC"}}; },
       "normalizer.type must be \"Sequence\", found \"NFC\""},
      {"NFC in a sequence",
       [](Json& f) { f["normalizer"]["normalizers"].push_back({{"type", "NFC"}}); },
       "normalizer must be empty"},
      {"no pre_tokenizer", [](Json& f) { f["pre_tokenizer"] = nullptr; },
       "pre_tokenizer must be an object, found null"},
      {"one split less", [](Json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); },
       "three splits and ByteLevel, found 3 steps"},
      {"another pattern",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{N}"; },
       "pre_tokenizer.pretokenizers[0].pattern.Regex must be"},
      {"splits in another order",
       [](Json& f) {
         auto& steps = f["pre_tokenizer"]["pretokenizers"];
         std::swap(steps[0], steps[1]);
       },
       "pretokenizers[0].pattern.Regex"},
      {"behavior", [](Json& f) { f["pre_tokenizer"]["pretokenizers"][2]["behavior"] = "Removed"; },
       "pretokenizers[2].behavior must be \"Isolated\", found \"Removed\""},
      {"invert", [](Json& f) { f["pre_tokenizer"]["pretokenizers"][2]["invert"] = true; },
       "pretokenizers[2].invert must be false"},
      {"prefix space",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = true; },
       "add_prefix_space must be false, found true"},
      {"own regex", [](Json& f) { f["pre_tokenizer"]["pretokenizers"][3].erase("use_regex"); },
       "use_regex must be false, found nothing"},
      {"a decoder of another kind", [](Json& f) { f["decoder"]["type"] = "Metaspace"; },
       "decoder.type must be \"ByteLevel\", found \"Metaspace\""},
      {"a post-processor that adds tokens",
       [](Json& f) { f["post_processor"]["type"] = "TemplateProcessing"; },
       "post_processor.type must be \"ByteLevel\""},
      {"truncation", [](Json& f) { f["truncation"] = {{"max_length", 5}}; },
       "truncation must be null, found an object"},
      {"a unigram model", [](Json& f) { f["model"]["type"] = "Unigram"; },
       "model.type must be \"BPE\", found \"Unigram\""},
      {"dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout must be null"},
      {"unknown token", [](Json& f) { f["model"]["unk_token"] = "<unk>"; },
       "model.unk_token must be null, found \"<unk>\""},
      {"byte fallback", [](Json& f) { f["model"]["byte_fallback"] = true; },
       "model.byte_fallback must be false, found true"},
      {"ignore_merges", [](Json& f) { f["model"]["ignore_merges"] = true; },
       "model.ignore_merges must be false, found true"},
      {"a byte is missing", [](Json& f) { f["model"]["vocab"].erase("\u0100"); },
       "lacks byte 0x00"},
      {"no vocab", [](Json& f) { f["model"].erase("vocab"); }, "model.vocab is missing"},
      {"an id twice", [](Json& f) { f["model"]["vocab"]["zz"] = 7; }, "id 7 already belongs to"},
      {"a negative id", [](Json& f) { f["model"]["vocab"]["zz"] = -1; },
       "the id must be an integer from 0 to 1048575, found -1"},
      {"a huge id", [](Json& f) { f["model"]["vocab"]["zz"] = 1 << 20; }, "found 1048576"},
      {"a fractional id", [](Json& f) { f["model"]["vocab"]["zz"] = 700.5; }, "found 700.5"},
      {"an empty token", [](Json& f) { f["model"]["vocab"][""] = 700; }, "a token has 1 to"},
      {"a merge of an unknown token", [](Json& f) { f["model"]["merges"].push_back("zqz b"); },
       "needs the token \"zqz\", which model.vocab lacks"},
      {"a merge into an unknown token", [](Json& f) { f["model"]["merges"].push_back("~ ~"); },
       "needs the token \"~~\""},
      {"a merge of three", [](Json& f) { f["model"]["merges"].push_back("a b c"); },
       "must be \"left right\""},
      {"a merge of one", [](Json& f) { f["model"]["merges"].push_back({"a"}); },
       "a list of two tokens, found a list"},
      {"a merge twice", [](Json& f) { f["model"]["merges"].push_back(f["model"]["merges"][0]); },
       "join the same pair"},
      {"merges as lists",
       [](Json& f) {
         for (auto& merge : f["model"]["merges"]) {
           const std::string text = merge;
           merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
         }
       },
       ""},
      {"an added id twice", [](Json& f) { f["added_tokens"][5]["id"] = 495; },
       "id 495 already belongs to"},
      {"an added text twice",
       [](Json& f) { f["added_tokens"][5]["content"] = f["added_tokens"][6]["content"]; },
       "stands twice"},
      {"an added token against the vocabulary", [](Json& f) { f["added_tokens"][5]["id"] = 100; },
       "contradicts model.vocab"},
      {"lstrip", [](Json& f) { f["added_tokens"][3]["lstrip"] = true; },
       "added_tokens[3].lstrip must be false, found true"},
      {"an empty added token", [](Json& f) { f["added_tokens"][3]["content"] = ""; },
       "added_tokens[3].content must be a string of 1 to"},
      {"an added token without id", [](Json& f) { f["added_tokens"][3].erase("id"); },
       "added_tokens[3].id is missing"},
  };
  return all;
}

TEST(TokenizerJson, NamesWhatIsWrong) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    Json file = tiny_json();
    test.change(file);
    const auto tokenizer = Tokenizer::parse(file.dump());
    if (test.message.empty()) {
      EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
    } else if (tokenizer.has_value()) {
      ADD_FAILURE() << "accepted, expected: " << test.message;
    } else {
      EXPECT_THAT(tokenizer.error().message, HasSubstr(test.message));
    }
  }
}

TEST(TokenizerJson, MergesAsListsGiveTheSameTokens) {
  Json file = tiny_json();
  const auto strings = Tokenizer::parse(file.dump());
  for (auto& merge : file["model"]["merges"]) {
    const std::string text = merge;
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  const auto lists = Tokenizer::parse(file.dump());
  ASSERT_TRUE(strings.has_value() && lists.has_value());
  const std::string text = "The weather in the other place is there";
  EXPECT_EQ(strings->encode(text), lists->encode(text));
  EXPECT_LT(lists->encode(text).size(), text.size());
}

TEST(TokenizerJson, RefusesWhatIsNotTheFile) {
  for (const std::string text : {"", "{", "[]", "null", "{}", "{\"model\":{}}"}) {
    const auto tokenizer = Tokenizer::parse(text);
    EXPECT_FALSE(tokenizer.has_value()) << text;
  }
  const auto nested = Tokenizer::parse(std::string(100, '[') + std::string(100, ']'));
  ASSERT_FALSE(nested.has_value());
  EXPECT_THAT(nested.error().message, HasSubstr("not valid JSON"));
  const auto large = Tokenizer::parse(std::string(kMaxTokenizerBytes + 1, ' '));
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, Code::kTooLarge);
}

TEST(TokenizerJson, ByteAlphabetIsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(byte_of_alphabet(alphabet_of_byte(static_cast<unsigned char>(byte))), byte);
  }
  EXPECT_EQ(alphabet_of_byte(' '), U'\u0120');
  EXPECT_EQ(alphabet_of_byte('A'), U'A');
  EXPECT_EQ(byte_of_alphabet(' '), -1);
  EXPECT_EQ(byte_of_alphabet(0x144), -1);
}

}  // namespace
}  // namespace cedra::text

// Runs encode, parse and tokenize as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/test_program.h"

namespace cedra::cli::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kChat = std::string(CEDRA_SOURCE_DIR) + "/tests/data/chat/";
const std::string kTokenizer = std::string(" --tokenizer ") + CEDRA_SOURCE_DIR + "/models/tiny";

TEST(TextCommands, CheckTheVectors) {
  const Ran encode = run("encode --check " + kChat + "encode_reference.json");
  EXPECT_EQ(encode.status, 0) << encode.output;
  EXPECT_EQ(encode.output, "42 of 42 cases hold\n");
  EXPECT_EQ(run("encode --check " + kChat + "requests.json").output, "32 of 32 cases hold\n");
  EXPECT_EQ(run("parse --check " + kChat + "parse.json").output, "27 of 27 cases hold\n");
  EXPECT_EQ(run("parse --split 3 --check " + kChat + "parse.json").output, "27 of 27 cases hold\n");
}

TEST(TextCommands, CheckSaysWhatDiffersAndFails) {
  const std::string path = file_with(
      "cases",
      R"([{"name":"good","text":"a","expect":{"reasoning_content":"","content":"a","tool_calls":[]},"finish_reason":"stop"},)"
      R"({"name":"bad","text":"a","expect":{"reasoning_content":"","content":"b","tool_calls":[]},"finish_reason":"stop"}])");
  const Ran result = run("parse --check " + path);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, StartsWith("bad: message: differs at byte 38\n"));
  EXPECT_THAT(result.output, EndsWith("1 of 2 cases hold\n"));
  EXPECT_EQ(run("parse --check " + path + ".absent").status, 2);
  std::filesystem::remove(path);
}

TEST(TextCommands, RefuseWhatIsNoText) {
  const std::string path = file_with("bytes", "ab\xff");
  for (const std::string& command : {"parse " + path, "tokenize " + path + kTokenizer}) {
    const Ran result = run(command);
    EXPECT_EQ(result.status, 2) << command;
    EXPECT_EQ(result.output, "cedra: the input is not UTF-8: byte 2 is 0xff\n");
  }
  const std::string ids = file_with("ids", "5 512");
  const Ran result = run("tokenize --decode " + ids + kTokenizer);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "cedra: token id 512 is outside the vocabulary (0 to 511)\n");
  std::filesystem::remove(path);
  std::filesystem::remove(ids);
}

TEST(TextCommands, EncodeAndParse) {
  const std::string request = file_with(
      "request",
      R"({"messages":[{"role":"user","content":"<think>"}],"thinking":{"type":"disabled"}})");
  EXPECT_EQ(run("encode " + request).output,
            "<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c><think><"
            "\uff5cAssistant\uff5c></think>");
  const Ran explained = run("encode --explain " + request);
  EXPECT_THAT(explained.output, HasSubstr("text     \"<think>\"\ntemplate \"<\uff5cAssistant"));
  EXPECT_EQ(run("encode --ids " + request).status, 2);
  const Ran ids = run("encode --ids " + request + kTokenizer);
  EXPECT_EQ(ids.status, 0);
  EXPECT_THAT(ids.output, StartsWith("0 "));
  const std::string id_file = file_with("ids", ids.output);
  EXPECT_EQ(run("tokenize --decode " + id_file + kTokenizer).output,
            run("encode " + request).output);

  const std::string answer = file_with("answer", "r</think>a");
  EXPECT_EQ(run("parse --split 1 " + answer).output,
            "{\"reasoning_content\": \"r\", \"content\": \"a\", \"tool_calls\": []}\n"
            "finish_reason: stop\n");
  for (const std::string& path : {request, id_file, answer}) std::filesystem::remove(path);
}

}  // namespace
}  // namespace cedra::cli::testing

// Runs encode, parse and tokenize as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Ran {
  int status = -1;
  std::string output;  // standard output and error
};

Ran run(const std::string& arguments) {
  const std::string command = std::string(CEDRA_BINARY) + " " + arguments + " 2>&1";
  Ran result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> block;
  while (const size_t got = std::fread(block.data(), 1, block.size(), pipe)) {
    result.output.append(block.data(), got);
  }
  result.status = WEXITSTATUS(::pclose(pipe));
  return result;
}

const std::string kChat = std::string(CEDRA_SOURCE_DIR) + "/tests/data/chat/";
const std::string kTokenizer = std::string(" --tokenizer ") + CEDRA_SOURCE_DIR + "/models/tiny";

std::string file_with(const std::string& name, const std::string& text) {
  const std::string path =
      (std::filesystem::temp_directory_path() / (name + "." + std::to_string(::getpid()))).string();
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

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

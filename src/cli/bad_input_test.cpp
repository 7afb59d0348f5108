// Bad folders, prompts and flags through the program itself: a clear message and exit status 2,
// never a crash and never half a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/test_program.h"

namespace cedra::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kTiny = fs::path(CEDRA_SOURCE_DIR) / "models/tiny";

// A copy of the bundled folder that a test may spoil.
class BadFolder : public ::testing::Test {
 protected:
  BadFolder()
      : folder_(fs::temp_directory_path() / ("cedra_bad_folder." + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::copy(kTiny, folder_, fs::copy_options::recursive);
  }
  ~BadFolder() override { fs::remove_all(folder_); }

  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::ostringstream text;
    text << std::ifstream(folder_ / file, std::ios::binary).rdbuf();
    std::string all = text.str();
    const size_t at = all.find(from);
    ASSERT_NE(at, std::string::npos) << file << " has no " << from;
    all.replace(at, from.size(), to);
    std::ofstream(folder_ / file, std::ios::binary) << all;
  }

  void expect_refused(const ::testing::Matcher<std::string>& message) const {
    const Ran result = run("run " + folder_.string() + " hi -n 1");
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, message);
  }

  const fs::path folder_;
};

TEST_F(BadFolder, AsItIsItRuns) {
  const Ran result = run("run " + folder_.string() + " hi -n 1");
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST_F(BadFolder, AnyMissingFileIsNamed) {
  for (const char* name :
       {"config.json", "tokenizer.json", "model.safetensors.index.json",
        "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}) {
    fs::rename(folder_ / name, folder_ / "away");
    expect_refused(HasSubstr(name));
    fs::rename(folder_ / "away", folder_ / name);
  }
}

TEST_F(BadFolder, AByteLessInAnyShardIsNamed) {
  for (const char* name : {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                           "model-00003-of-00003.safetensors"}) {
    const auto size = fs::file_size(folder_ / name);
    fs::resize_file(folder_ / name, size - 1);
    expect_refused(AllOf(HasSubstr(name), HasSubstr("truncated"), HasSubstr(std::to_string(size))));
    fs::resize_file(folder_ / name, size);
  }
}

TEST_F(BadFolder, AnotherArchitectureIsNamed) {
  replace("config.json", "DeepseekV41ForCausalLM", "LlamaForCausalLM");
  expect_refused(AllOf(HasSubstr("LlamaForCausalLM"), HasSubstr("DeepseekV41ForCausalLM")));
}

TEST_F(BadFolder, TheTokenizerOfAnEarlierModelIsKnown) {
  replace("tokenizer.json", "<\uff5cSystem\uff5c>", "<\uff5cplace\u2581holder\uff5c>");
  expect_refused(AllOf(HasSubstr("V4"), HasSubstr("<\uff5cSystem\uff5c>")));
}

TEST_F(BadFolder, RenamedTensorsAreMissingAndExtra) {
  replace("model-00001-of-00003.safetensors", "aligner.w2.weight", "aligner.w3.weight");
  expect_refused(AllOf(HasSubstr("aligner.w2.weight"), HasSubstr("aligner.w3.weight")));
}

struct BadCall {
  std::string arguments;
  std::string message;
};

TEST(BadInput, IsRefusedWithAMessage) {
  const std::string tiny = kTiny.string();
  const std::string bytes = file_with("bytes", "a\xff");
  const std::string long_prompt = file_with("long", std::string(5000, 'x'));
  const std::vector<BadCall> calls = {
      {"frob", "unknown command 'frob'"},
      {"", "subcommand is required"},
      {"run", "model is required"},
      {"run " + tiny, "no prompt"},
      {"run " + tiny + " ''", "no prompt"},
      {"run " + tiny + " a --file b", "excludes"},
      {"run " + tiny + " --file " + bytes, "the prompt is not UTF-8: byte 1 is 0xff"},
      {"run " + tiny + " a --system \"$(printf '\\377')\"", "--system is not UTF-8"},
      {"run " + tiny + " --file " + long_prompt, "context length is 1024 tokens"},
      {"run " + tiny + " --ids 0,512", "token id 512 is outside the vocabulary (0 to 511)"},
      {"run " + tiny + " --ids 0,x", "found \"x\""},
      {"run " + tiny + " a --isa frob", "'frob'"},
      {"run " + tiny + " a --memory-budget -5", "not in range"},
      {"run " + tiny + " a --threads 100000", "not in range 0 to 1024"},
      {"run " + tiny + " a --threads -1", "not in range 0 to 1024"},
      {"run " + tiny + " a --seed -1", "must not be negative, got -1"},
      {"run " + tiny + " a --temperature nan", "temperature must be between"},
      {"run " + tiny + " a -n 0", "max_tokens must be at least 1, got 0"},
      {"chat " + tiny + " --system \"$(printf '\\377')\"", "--system is not UTF-8"},
      {"serve " + tiny + " --max-body-bytes 0", "not in range"},
      {"serve " + tiny + " --max-connections -1", "not in range"},
      {"serve " + tiny + " --host frob --port 0", "--host frob: not an IP address"},
      {"golden " + tiny, "expected.safetensors"},
      {"golden " + std::string(CEDRA_SOURCE_DIR) + "/tests/golden/tiny --only frob",
       "no item's name contains 'frob'"},
  };
  for (const BadCall& call : calls) {
    const Ran result = run(call.arguments);
    EXPECT_EQ(result.status, 2) << call.arguments << "\n" << result.output;
    EXPECT_THAT(result.output, HasSubstr(call.message)) << call.arguments;
  }
  fs::remove(bytes);
  fs::remove(long_prompt);
}

// Help names the levels as --isa takes them.
TEST(Help, NamesTheLevels) {
  for (const char* command : {"run", "chat", "serve", "golden"}) {
    const Ran result = run(std::string(command) + " --help");
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr("oracle, avx2, avx512, amx")) << command;
  }
  EXPECT_EQ(run("run " + kTiny.string() + " a -n 1 --isa oracle").status, 0);
}

// All of it went to the reasoning, on standard error: the figures have a line of their own.
TEST(Run, ReasoningEndsItsLine) {
  const Ran result = run("run " + kTiny.string() + " hi -n 3 --seed 1");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("\nprompt: "));
}

// What the answer was, without the figures.
std::string text_of(const std::string& arguments) {
  const Ran result = run("run " + kTiny.string() + " " + arguments + " --raw -n 20 --isa oracle");
  EXPECT_EQ(result.status, 0) << result.output;
  return result.output.substr(0, result.output.find("\nprompt: "));
}

TEST(Run, SameSeedSameText) {
  const std::string first = text_of("hi --seed 7");
  EXPECT_GT(first.size(), 10U);
  EXPECT_EQ(text_of("hi --seed 7"), first);
  EXPECT_NE(text_of("hi --seed 8"), first);
  const std::string prompt = file_with("prompt", "hi");
  EXPECT_EQ(text_of("--file - --seed 7 <" + prompt + " "), first);
  fs::remove(prompt);
}

}  // namespace
}  // namespace cedra::cli::testing

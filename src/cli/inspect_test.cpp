// Runs the built program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

struct Outcome {
  int status = -1;
  std::string output;
};

// Arguments are ours, without shell characters. stderr joins the output where `with_stderr`.
Outcome run(const std::string& arguments, bool with_stderr = false) {
  const std::string command =
      std::string(CEDRA_BINARY) + " " + arguments + (with_stderr ? " 2>&1" : " 2>/dev/null");
  Outcome result;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> block;
  while (const size_t got = std::fread(block.data(), 1, block.size(), pipe)) {
    result.output.append(block.data(), got);
  }
  result.status = WEXITSTATUS(::pclose(pipe));
  return result;
}

const std::string kRoot = CEDRA_SOURCE_DIR;

TEST(Inspect, GoldenFolders) {
  for (const char* folder : {"/models/tiny", "/tests/golden/tiny", "/tests/golden/deep"}) {
    const Outcome text = run("inspect --verify " + kRoot + folder);
    EXPECT_EQ(text.status, 0);
    EXPECT_THAT(text.output, HasSubstr("routed experts"));
    EXPECT_THAT(text.output, HasSubstr("every value was checked"));
  }
}

TEST(Inspect, Json) {
  const Outcome result = run("inspect --json --hash " + kRoot + "/models/tiny");
  ASSERT_EQ(result.status, 0);
  const json report = json::parse(result.output);
  EXPECT_EQ(report["tensors"], 696);
  EXPECT_EQ(report["bytes"], 8873548);
  EXPECT_EQ(report["config"]["experts"], 8);
  EXPECT_EQ(report["shards"][2]["bytes"], 50708);
  EXPECT_EQ(report["shards"][2]["sha256"],
            "69d654cce652a5b33d3694ea813122f6273b068d61faa0013aa7b8e7d62cb4de");
  EXPECT_THAT(report["skipped"], IsEmpty());
  EXPECT_THAT(report["warnings"], IsEmpty());
}

TEST(Inspect, NamesWhatIsSkipped) {
  const Outcome result =
      run("inspect --json --language-model-only --skip-draft " + kRoot + "/models/tiny");
  ASSERT_EQ(result.status, 0);
  const json report = json::parse(result.output);
  EXPECT_EQ(report["config"]["vision_layers"], 0);
  EXPECT_EQ(report["config"]["draft_stages"], 0);
  EXPECT_EQ(report["tensors"].get<int>() + static_cast<int>(report["skipped"].size()), 696);
}

TEST(Inspect, ErrorsGoToStderrWithStatusOne) {
  const Outcome quiet = run("inspect /nonexistent");
  EXPECT_EQ(quiet.status, 1);
  EXPECT_THAT(quiet.output, IsEmpty());
  EXPECT_THAT(run("inspect /nonexistent", true).output, HasSubstr("cedra inspect: /nonexistent"));
}

}  // namespace

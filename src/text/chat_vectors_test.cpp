// All published and recovered vectors, and the fault cases (tests/data/chat), byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/chat_cases.h"

namespace cedra::text {
namespace {

namespace fs = std::filesystem;

const fs::path kData = fs::path(CEDRA_SOURCE_DIR) / "tests/data/chat";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void expect_holds(const fs::path& path, const CaseOptions& options, size_t count) {
  const auto report = check_cases(read_file(path), options);
  ASSERT_TRUE(report.has_value()) << path << ": " << report.error().message;
  EXPECT_EQ(report->run, count) << path;
  for (const auto& difference : report->differences) {
    ADD_FAILURE() << path.filename() << ", " << difference.name << ": " << difference.text;
  }
}

// Spellings of the control tokens are the official ones, ids are not.
const Tokenizer& small_tokenizer() {
  static const auto tokenizer =
      Tokenizer::load(fs::path(CEDRA_SOURCE_DIR) / "tests/golden/tiny/tokenizer.json");
  return *tokenizer;
}

TEST(ChatVectors, EncodeReference) { expect_holds(kData / "encode_reference.json", {}, 42); }

TEST(ChatVectors, Requests) { expect_holds(kData / "requests.json", {}, 15 + 17); }

// The same bodies under this server's own rules: the choices of chat.md 2.12, 3.7, 4.2.
TEST(ChatVectors, RequestsLocally) { expect_holds(kData / "requests_local.json", {}, 15 + 15 + 2); }

TEST(ChatVectors, PromptIds) {
  const fs::path official = fs::path(CEDRA_SOURCE_DIR) / "build/tokenizer/tokenizer.json";
#ifdef CEDRA_REQUIRE_REAL_TOKENIZER
  ASSERT_TRUE(fs::exists(official)) << "run scripts/fetch_tokenizer.sh first";
#else
  if (!fs::exists(official)) GTEST_SKIP() << "run scripts/fetch_tokenizer.sh first";
#endif
  const auto tokenizer = Tokenizer::load(official);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  expect_holds(kData / "prompt_ids.json", {{}, &*tokenizer}, 4);
}

TEST(ChatVectors, ParseWhole) { expect_holds(kData / "parse.json", {}, 27); }

TEST(ChatVectors, ParseInPiecesOfEverySize) {
  for (size_t size = 1; size <= 40; ++size) {
    expect_holds(kData / "parse.json", {{FeedPlan::Kind::kPieces, size}, nullptr}, 27);
  }
}

TEST(ChatVectors, ParseAtEveryTwoWaySplit) {
  // The longest text of the file has fewer bytes than this.
  for (size_t at = 0; at < 1400; ++at) {
    expect_holds(kData / "parse.json", {{FeedPlan::Kind::kTwoParts, at}, nullptr}, 27);
  }
}

TEST(ChatVectors, ParseInRandomPieces) {
  for (size_t seed = 0; seed < 300; ++seed) {
    expect_holds(kData / "parse.json", {{FeedPlan::Kind::kRandom, seed}, nullptr}, 27);
  }
}

// One test per file of tests/data/chat/faults; the file's name says what it shows.
class Faults : public testing::TestWithParam<std::string> {};

void expect_fault_holds(const std::string& file, const std::string& text, const FeedPlan& feed) {
  const auto report = check_cases(text, {feed, &small_tokenizer()});
  ASSERT_TRUE(report.has_value()) << file << ": " << report.error().message;
  for (const auto& difference : report->differences) {
    ADD_FAILURE() << file << ", " << difference.name << ", feed " << static_cast<int>(feed.kind)
                  << "/" << feed.number << ": " << difference.text;
  }
}

TEST_P(Faults, Hold) {
  const std::string text = read_file(kData / "faults" / GetParam());
  expect_fault_holds(GetParam(), text, {});
  // Files with model text once more, in pieces.
  if (text.find("\"expect\"") == std::string::npos) return;
  for (size_t size = 1; size <= 12; ++size) {
    expect_fault_holds(GetParam(), text, {FeedPlan::Kind::kPieces, size});
  }
  for (size_t at = 1; at < 500; ++at) {
    expect_fault_holds(GetParam(), text, {FeedPlan::Kind::kTwoParts, at});
  }
  for (size_t seed = 0; seed < 50; ++seed) {
    expect_fault_holds(GetParam(), text, {FeedPlan::Kind::kRandom, seed});
  }
}

std::vector<std::string> fault_files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kData / "faults")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Chat, Faults, testing::ValuesIn(fault_files()), [](const auto& file) {
  return file.param.substr(0, file.param.find('.'));
});

}  // namespace
}  // namespace cedra::text

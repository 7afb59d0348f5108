// All published and recovered vectors, and the fault cases (tests/data/chat), byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ChatVectors, EncodeReference) { expect_holds(kData / "encode_reference.json", {}, 42); }

TEST(ChatVectors, Requests) { expect_holds(kData / "requests.json", {}, 15 + 17); }

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

}  // namespace
}  // namespace cedra::text

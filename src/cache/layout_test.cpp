// Byte places inside a block: every record has its own bytes, and all of them are counted.
#include "cache/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

namespace cedra::cache {
namespace {

TextConfig released() {
  std::ifstream file(CEDRA_SOURCE_DIR "/tests/data/config/released.json");
  std::stringstream text;
  text << file.rdbuf();
  const Result<Config> config = parse_config(text.str());
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config ? config->text : TextConfig{};
}

TextConfig golden(const std::string& name) {
  const Result<Config> config = load_config(CEDRA_SOURCE_DIR "/tests/golden/" + name);
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config ? config->text : TextConfig{};
}

// The pieces of a block are disjoint and cover it without a gap.
void expect_partition(const CacheLayout& layout) {
  std::vector<std::pair<int64_t, int64_t>> pieces;
  for (const SourceLayout& source : layout.sources) {
    const int64_t rows = source.rows_per_block;
    EXPECT_EQ(rows * source.ratio, layout.block_tokens);
    pieces.emplace_back(source.main_codes, rows * layout.main_code_bytes);
    pieces.emplace_back(source.main_scales, rows * layout.main_scale_bytes);
    pieces.emplace_back(source.index_codes, rows * layout.index_code_bytes);
    pieces.emplace_back(source.index_scales, rows * layout.index_scale_bytes);
  }
  std::ranges::sort(pieces);
  int64_t at = 0;
  for (const auto& [begin, bytes] : pieces) {
    EXPECT_EQ(begin, at);
    EXPECT_GT(bytes, 0);
    at = begin + bytes;
  }
  EXPECT_EQ(at, layout.block_bytes);
}

TEST(CacheLayout, OfTheReleaseTakes890BytesPerToken) {
  for (const int64_t tokens : {2, 64, 128, 256}) {
    const Result<CacheLayout> layout = make_layout(released(), tokens);
    ASSERT_TRUE(layout.has_value()) << layout.error().message;
    EXPECT_EQ(layout->block_bytes, 890 * tokens);
    expect_partition(*layout);
  }
}

TEST(CacheLayout, OfTheReleaseHasTheRecordsOfTheSpec) {
  const Result<CacheLayout> layout = make_layout(released(), 128);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->main_code_bytes + layout->main_scale_bytes, 288);
  EXPECT_EQ(layout->index_code_bytes + layout->index_scale_bytes, 68);
  EXPECT_EQ(layout->window_record_bytes(), 528);
  EXPECT_EQ(layout->window, 128);
  EXPECT_EQ(layout->layers, 40);
  EXPECT_EQ(layout->tails, 3);
  EXPECT_EQ(layout->max_ratio, 2);
  ASSERT_EQ(layout->sources.size(), 4U);
  const int64_t layers[] = {2, 8, 14, 20};
  const int64_t ratios[] = {2, 2, 2, 1};
  const int64_t tails[] = {0, 1, 2, -1};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(layout->sources[i].layer, layers[i]);
    EXPECT_EQ(layout->sources[i].ratio, ratios[i]);
    EXPECT_EQ(layout->sources[i].tail_index, tails[i]);
  }
}

TEST(CacheLayout, SourceOfIsTheNewestAtOrBelowALayer) {
  const Result<CacheLayout> layout = make_layout(released(), 128);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  const auto source = [&](int64_t layer) { return layout->source_of(layer); };
  EXPECT_EQ(source(0), -1);
  EXPECT_EQ(source(1), -1);
  EXPECT_EQ(source(2), 0);
  EXPECT_EQ(source(7), 0);
  EXPECT_EQ(source(8), 1);
  EXPECT_EQ(source(19), 2);
  EXPECT_EQ(source(20), 3);
  EXPECT_EQ(source(39), 3);
}

TEST(CacheLayout, OfTheGoldenFoldersIsAPartition) {
  for (const char* name : {"tiny", "deep"}) {
    for (const int64_t tokens : {2, 16, 34}) {
      const Result<CacheLayout> layout = make_layout(golden(name), tokens);
      ASSERT_TRUE(layout.has_value()) << layout.error().message;
      expect_partition(*layout);
    }
  }
}

TEST(CacheLayout, BlocksForRoundsUp) {
  const Result<CacheLayout> layout = make_layout(golden("tiny"), 16);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->blocks_for(0), 0);
  EXPECT_EQ(layout->blocks_for(1), 1);
  EXPECT_EQ(layout->blocks_for(16), 1);
  EXPECT_EQ(layout->blocks_for(17), 2);
}

TEST(CacheLayout, RefusesBlocksThatSplitAGroup) {
  for (const int64_t tokens : {-2, 0, 1, 127}) {
    const Result<CacheLayout> layout = make_layout(released(), tokens);
    ASSERT_FALSE(layout.has_value()) << tokens;
    EXPECT_EQ(layout.error().code, Code::kInvalid);
    EXPECT_NE(layout.error().message.find("layer 2"), std::string::npos) << layout.error().message;
  }
}

}  // namespace
}  // namespace cedra::cache

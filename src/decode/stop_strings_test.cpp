// The matcher against a plain search, at every split; held-back text; linear time.
#include "decode/stop_strings.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace cedra::decode {
namespace {

// By definition: the first position at which a stop string ends; of those the longest.
std::pair<std::string, int64_t> by_definition(const std::string& text,
                                              const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int64_t best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      if (stop.empty() || stop.size() > end) continue;
      if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (best < 0 || stop.size() > stops[static_cast<size_t>(best)].size()) {
        best = static_cast<int64_t>(i);
      }
    }
    if (best >= 0) return {text.substr(0, end - stops[static_cast<size_t>(best)].size()), best};
  }
  return {text, -1};
}

TEST(StopStrings, FindsAStringAcrossPieces) {
  StopStrings stop(std::vector<std::string>{"STOP"});
  EXPECT_EQ(stop.push("one S"), "one ");
  EXPECT_EQ(stop.push("T"), "");
  EXPECT_EQ(stop.push("AR ST"), "STAR ");
  EXPECT_EQ(stop.push("OP two"), "");
  EXPECT_TRUE(stop.matched());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.flush(), "");
}

TEST(StopStrings, ReleasesWhatWasHeldAtTheEnd) {
  StopStrings stop(std::vector<std::string>{"abc"});
  EXPECT_EQ(stop.push("xab"), "x");
  EXPECT_EQ(stop.flush(), "ab");
  EXPECT_EQ(stop.flush(), "");
  // Text on both sides of a flush does not make a match.
  EXPECT_EQ(stop.push("c"), "c");
  EXPECT_FALSE(stop.matched());
}

TEST(StopStrings, WithoutStringsTextPassesThrough) {
  StopStrings none;
  EXPECT_EQ(none.push("abc"), "abc");
  StopStrings empty(std::vector<std::string>{"", ""});
  EXPECT_EQ(empty.push("abc"), "abc");
  EXPECT_FALSE(empty.matched());
}

TEST(StopStrings, EqualsThePlainSearchAtRandomSplits) {
  std::mt19937 random(11);
  const auto word = [&](size_t length) {
    std::string out;
    for (size_t i = 0; i < length; ++i) out.push_back(static_cast<char>('a' + random() % 2));
    return out;
  };
  int matches = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0, n = 1 + random() % 4; i < n; ++i) stops.push_back(word(2 + random() % 6));
    const std::string text = word(random() % 40);
    const auto [shown, index] = by_definition(text, stops);
    StopStrings matcher(stops);
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 5;
      got += matcher.push(std::string_view(text).substr(at, length));
      ASSERT_TRUE(shown.starts_with(got));
      at += length;
    }
    got += matcher.flush();
    ASSERT_EQ(got, shown);
    ASSERT_EQ(matcher.matched(), index >= 0);
    if (index >= 0) {
      ++matches;
      EXPECT_EQ(stops[static_cast<size_t>(matcher.matched_index())],
                stops[static_cast<size_t>(index)]);
    }
  }
  EXPECT_GT(matches, 500);
}

TEST(StopStrings, LinearOnHostileText) {
  const std::string stop = std::string(1000, 'a') + "b";
  StopStrings matcher(std::vector<std::string>{stop, std::string(900, 'a') + "c"});
  const auto start = std::chrono::steady_clock::now();
  std::string piece(1 << 20, 'a');
  const size_t shown = matcher.push(piece).size();
  EXPECT_EQ(shown, piece.size() - 1000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace cedra::decode

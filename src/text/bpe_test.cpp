// Merging against the rule read literally, on both sides of the length where the method changes.
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <random>

namespace cedra::text {
namespace {

// Tokens: byte b has id b; merge i makes id 256 + i.
std::array<int32_t, 256> plain_bytes() {
  std::array<int32_t, 256> ids;
  for (int32_t i = 0; i < 256; ++i) ids[static_cast<size_t>(i)] = i;
  return ids;
}

std::vector<int32_t> literally(std::string_view piece, std::span<const Bpe::Merge> merges) {
  std::vector<int32_t> ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t m = 0; m < best; ++m) {
        if (merges[m].left == ids[i] && merges[m].right == ids[i + 1]) {
          best = m;
          at = i;
        }
      }
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

std::vector<int32_t> encode(const Bpe& bpe, std::string_view piece, BpeScratch* scratch) {
  std::vector<int32_t> ids;
  bpe.encode(piece, scratch, &ids);
  return ids;
}

TEST(Bpe, EqualsTheLiteralRule) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    // Random merges over a small alphabet, the later ones of earlier results. Different pairs may
    // make the same token.
    std::vector<Bpe::Merge> merges;
    for (int i = 0; i < 40; ++i) {
      const auto pick = [&] {
        return merges.empty() || random() % 3 == 0 ? static_cast<int32_t>('a' + random() % 3)
                                                   : merges[random() % merges.size()].result;
      };
      const Bpe::Merge merge{pick(), pick(), 256 + i};
      const bool known = std::any_of(merges.begin(), merges.end(), [&](const Bpe::Merge& m) {
        return m.left == merge.left && m.right == merge.right;
      });
      if (!known) merges.push_back(merge);
    }
    const auto bpe = Bpe::build(plain_bytes(), merges);
    ASSERT_TRUE(bpe.has_value());
    BpeScratch scratch;
    for (const size_t length : {1, 2, 3, 7, 47, 48, 49, 50, 130}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece += static_cast<char>('a' + random() % 4);
      ASSERT_EQ(encode(*bpe, piece, &scratch), literally(piece, merges)) << piece;
    }
  }
}

TEST(Bpe, WholePiecesFollowTheMerges) {
  // "abc" is a token, but "bc" merges first and nothing joins "a" to it.
  const std::vector<Bpe::Merge> merges = {{'b', 'c', 256}, {'a', 'b', 257}, {257, 'c', 258}};
  auto bpe = Bpe::build(plain_bytes(), merges);
  ASSERT_TRUE(bpe.has_value());
  BpeScratch scratch;
  bpe->add_whole_piece("bc", 256, &scratch);
  bpe->add_whole_piece("abc", 258, &scratch);
  EXPECT_EQ(encode(*bpe, "abc", &scratch), (std::vector<int32_t>{'a', 256}));
  const uint64_t before = scratch.steps;
  EXPECT_EQ(encode(*bpe, "bc", &scratch), (std::vector<int32_t>{256}));
  EXPECT_EQ(scratch.steps, before) << "a registered piece needs no look-up of pairs";
}

TEST(Bpe, RefusesAPairThatStandsTwice) {
  const std::vector<Bpe::Merge> merges = {{'b', 'c', 256}, {'b', 'c', 257}};
  const auto bpe = Bpe::build(plain_bytes(), merges);
  ASSERT_FALSE(bpe.has_value());
  EXPECT_EQ(bpe.error().code, Code::kCorrupt);
}

// Work, not time: at most three pair look-ups per byte, whatever the text.
TEST(Bpe, StepsAreLinearInTheLength) {
  std::vector<Bpe::Merge> merges = {{'a', 'a', 256}};
  for (int32_t i = 0; i < 12; ++i) merges.push_back({256 + i, 256 + i, 257 + i});
  const auto bpe = Bpe::build(plain_bytes(), merges);
  ASSERT_TRUE(bpe.has_value());
  for (const size_t length : {40, 1 << 10, 1 << 20}) {
    BpeScratch scratch;
    const auto ids = encode(*bpe, std::string(length, 'a'), &scratch);
    EXPECT_LE(ids.size(), length / 4096 + 13);
    EXPECT_LE(scratch.steps, 3 * length);
  }
}

}  // namespace
}  // namespace cedra::text

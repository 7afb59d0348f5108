// The plan against the specification's table, the bicubic against Pillow, patches against the
// specification's hashes.
#include "image/resize.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "image/test_files.h"

namespace cedra::image {
namespace {

using namespace testing;

TEST(Plan, TableOfTheSpecification) {
  const auto rows = read_table("plans.txt");
  EXPECT_GE(rows.size(), 36U);
  for (const auto& row : rows) {
    std::vector<int64_t> n;
    for (const std::string& word : row) n.push_back(std::stoll(word));
    ASSERT_EQ(n.size(), 8U);
    const ResizePlan plan = plan_resize({}, n[0], n[1]);
    EXPECT_EQ(plan, (ResizePlan{n[2], n[3], n[4], n[5], n[6], n[7]})) << n[0] << " x " << n[1];
  }
}

TEST(Plan, TokensOfTheOfficialList) {
  const std::vector<std::array<int64_t, 3>> cases = {
      {516, 517, 184},  {1091, 397, 272}, {743, 870, 401},  {906, 740, 416},  {1107, 873, 590},
      {493, 243, 202},  {354, 476, 197},  {766, 642, 322},  {972, 672, 402},  {1167, 486, 350},
      {1134, 389, 282}, {275, 346, 197},  {560, 1029, 377}, {482, 725, 236},  {782, 879, 422},
      {434, 272, 200},  {40, 50, 197},    {50, 40, 194},    {1920, 330, 378}, {4200, 100, 305},
      {100, 4200, 402}, {20, 16, 194},    {200, 160, 194},  {1000, 800, 502}, {2500, 2000, 1010},
      {640, 420, 189},  {8192, 1, 1024}};
  for (const auto& [width, height, tokens] : cases) {
    EXPECT_EQ(plan_resize({}, width, height).span_tokens(), tokens) << width << " x " << height;
  }
}

TEST(Plan, NeverOverTheBudgetAndNeverEmpty) {
  std::mt19937_64 random(7);
  PatchRules small;
  small.max_image_tokens = 64;
  small.min_pixels = 7056;
  PatchRules least = small;
  least.max_image_tokens = 4;
  for (const PatchRules& rules : {PatchRules{}, small, least}) {
    for (int i = 0; i < 20000; ++i) {
      // Sides of every magnitude.
      const auto side = [&] {
        return 1 + static_cast<int64_t>(random() % (2ULL << random() % 17));
      };
      const int64_t width = side(), height = side();
      const ResizePlan plan = plan_resize(rules, width, height);
      ASSERT_LE(plan.span_tokens(), rules.max_image_tokens) << width << " x " << height;
      ASSERT_GE(plan.vit_rows, 1);
      ASSERT_GE(plan.vit_columns, 1);
      ASSERT_EQ(plan.width, plan.vit_columns * rules.patch_size);
      ASSERT_EQ(plan.height, plan.vit_rows * rules.patch_size);
    }
  }
}

TEST(Resize, EqualsPillow) {
  const auto rows = read_table("resize.txt");
  EXPECT_GE(rows.size(), 18U);
  for (const auto& row : rows) {
    std::vector<int64_t> n;
    for (size_t i = 0; i < 5; ++i) n.push_back(std::stoll(row[i]));
    const Picture resized = resize(pattern(n[0], n[1], n[2]), n[3], n[4]);
    EXPECT_EQ(resized.width, n[3]);
    EXPECT_EQ(resized.height, n[4]);
    EXPECT_EQ(fnv(resized.rgb), row[5]) << n[0] << " x " << n[1] << " to " << n[3] << " x " << n[4];
  }
}

TEST(Preprocess, HashesOfTheSpecification) {
  struct Case {
    int64_t width, height, seed, target_width, target_height;
    const char *rgb, *patches;
  };
  const std::vector<Case> cases = {
      {64, 48, 0, 630, 476, "9e93f9a8cddcca67", "15f8a6c52b8c7031"},
      {100, 100, 3, 546, 546, "11c875f0b028457a", "c7d556db00ba0885"},
      {640, 480, 7, 644, 490, "329d6fd8a25e1822", "4edd2858c4f8b1c5"},
      {50, 900, 31, 140, 2310, "33f2ec789e533382", "f59246454f479f80"},
      {41, 56, 37, 476, 644, "d2a3e9b612032011", "23b2da6dacc33d90"},
      {28, 351, 41, 154, 1932, "2242ad99cc94168b", "1571666e0c2af807"}};
  for (const Case& c : cases) {
    const Picture picture = pattern(c.width, c.height, c.seed);
    const Patches patches = preprocess({}, picture);
    EXPECT_EQ(patches.plan.width, c.target_width);
    EXPECT_EQ(patches.plan.height, c.target_height);
    EXPECT_EQ(fnv(fit(picture, patches.plan).rgb), c.rgb) << c.width << " x " << c.height;
    EXPECT_EQ(fnv(patches.values), c.patches) << c.width << " x " << c.height;
  }
}

// The thinnest pictures that pass the side limit, and one beyond it that the reference fails on.
TEST(Preprocess, ThinPictures) {
  for (const auto& [width, height] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {8192, 1}, {1, 8192}, {1, 20000}, {100000, 1}, {3, 8192}}) {
    const Patches patches = preprocess({}, pattern(width, height, 1));
    EXPECT_EQ(static_cast<int64_t>(patches.values.size()), patches.plan.patches() * 3 * 14 * 14);
    EXPECT_LE(patches.plan.span_tokens(), 1024);
  }
}

TEST(Preprocess, NormalisedValues) {
  Picture picture{14, 14, std::vector<uint8_t>(14 * 14 * 3, 255)};
  picture.rgb[0] = 0;
  picture.rgb[1] = 127;
  picture.rgb[2] = 128;
  PatchRules rules;
  rules.min_pixels = 0;
  const Patches patches = preprocess(rules, picture);
  ASSERT_EQ(patches.values.size(), 588U);
  EXPECT_EQ(patches.values[0], 0xBF80);        // R of the first pixel
  EXPECT_EQ(patches.values[196], 0xBB81);      // G
  EXPECT_EQ(patches.values[2 * 196], 0x3B81);  // B
  EXPECT_EQ(patches.values[587], 0x3F80);
}

TEST(Detail, LowShrinksTheLongSideOnly) {
  Picture picture = shrink_to_side(pattern(1920, 1080, 0), 512);
  EXPECT_EQ(picture.width, 512);
  EXPECT_EQ(picture.height, 288);
  EXPECT_EQ(plan_resize({}, picture.width, picture.height).span_tokens(), 192);
  picture = shrink_to_side(pattern(3, 2000, 0), 512);
  EXPECT_EQ(picture.width, 1);
  EXPECT_EQ(picture.height, 512);
  EXPECT_EQ(shrink_to_side(pattern(512, 9, 0), 512).rgb, pattern(512, 9, 0).rgb);
}

}  // namespace
}  // namespace cedra::image

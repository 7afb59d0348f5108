// The vision side on the small golden checkpoint: span layout, positions, edges, independence of
// threads. Its numbers against the reference are golden/'s.
#include "model/vision.h"

#include <gtest/gtest.h>

#include <random>

#include "model/rope.h"

namespace cedra::model {
namespace {

std::vector<int> roles_of(int64_t rows, int64_t columns) {
  std::vector<int> numbers;
  for (const SpanRole role : span_roles({0, 0, rows, columns})) {
    numbers.push_back(static_cast<int>(role));
  }
  return numbers;
}

TEST(Span, Roles) {
  EXPECT_EQ(roles_of(1, 1), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(roles_of(2, 3), (std::vector<int>{0, 1, 1, 1, 2, 1, 1, 1, 2, 3}));
  EXPECT_EQ(roles_of(1, 1021).size(), 1024U);
  EXPECT_EQ((ImageGrid{0, 0, 1, 1021}.span_tokens()), 1024);
}

TEST(Span, EmbeddingsFollowTheRoles) {
  const bf16 start{1}, newline{2}, end{3};
  Weights weights;
  weights.image_start = &start;
  weights.image_newline = &newline;
  weights.image_end = &end;
  const std::vector<bf16> rows(4 * 5);
  const std::vector<const bf16*> span = span_embeddings(weights, {0, 0, 2, 2}, rows.data(), 5);
  EXPECT_EQ(span, (std::vector<const bf16*>{&start, rows.data(), rows.data() + 5, &newline,
                                            rows.data() + 10, rows.data() + 15, &newline, &end}));
}

// vision.md 6: the values at (y = 1, x = 2) for heads of 64.
TEST(VisionRope, SampleValues) {
  const std::vector<float> frequencies = rope_frequencies(10000, 32);
  ASSERT_EQ(frequencies.size(), 16U);
  std::vector<float> cos(16), sin(16);
  rope_angles(frequencies, 1, cos.data(), sin.data());
  EXPECT_NEAR(cos[0], 0.5403023, 1e-7);
  EXPECT_NEAR(sin[0], 0.8414710, 1e-7);
  EXPECT_NEAR(cos[1], 0.8460091, 1e-7);
  rope_angles(frequencies, 2, cos.data(), sin.data());
  EXPECT_NEAR(cos[0], -0.4161468, 1e-7);
  EXPECT_NEAR(sin[0], 0.9092974, 1e-7);
}

class Tower : public testing::Test {
 protected:
  void SetUp() override {
    Result<Checkpoint> checkpoint = Checkpoint::open(CEDRA_SOURCE_DIR "/tests/golden/tiny");
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    const int64_t tokens = checkpoint->config().text.engram_compressed_vocab_size;
    // The text side is not run: any map of the right size will do.
    std::vector<int32_t> map(static_cast<size_t>(checkpoint->config().text.vocab_size));
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<int32_t>(i) % tokens;
    Result<std::unique_ptr<Model>> model =
        Model::create(*std::move(checkpoint), std::move(map), tokens);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = *std::move(model);
  }

  std::vector<bf16> random_patches(const ImageGrid& grid) const {
    const int64_t patch = model_->config().vision->patch_size;
    std::mt19937 random(static_cast<unsigned>(grid.patches()));
    std::uniform_real_distribution<float> value(-1, 1);
    std::vector<bf16> patches(static_cast<size_t>(grid.patches() * 3 * patch * patch));
    for (bf16& x : patches) x = to_bf16(value(random));
    return patches;
  }

  std::vector<uint16_t> encode(const kernels::Ops& ops, int threads, const ImageGrid& grid,
                               int64_t max_patches = 0) const {
    Team team({.threads = threads});
    Result<std::unique_ptr<VisionTower>> tower =
        VisionTower::create(*model_, ops, team, max_patches);
    EXPECT_TRUE(tower.has_value());
    std::vector<bf16> rows(static_cast<size_t>(grid.image_tokens() * model_->text().hidden_size));
    const Result<> done = (*tower)->encode(random_patches(grid), grid, rows.data());
    EXPECT_TRUE(done.has_value()) << done.error().message;
    std::vector<uint16_t> bits;
    for (const bf16 x : rows) bits.push_back(x.bits);
    return bits;
  }

  std::unique_ptr<Model> model_;
};

TEST_F(Tower, ThreadsAndRoomChangeNothing) {
  for (const kernels::Ops* ops : kernels::available_ops()) {
    for (const ImageGrid& grid : {ImageGrid{1, 1, 1, 1}, ImageGrid{7, 11, 3, 4}}) {
      const std::vector<uint16_t> one = encode(*ops, 1, grid);
      EXPECT_EQ(encode(*ops, 3, grid), one) << ops->name;
      EXPECT_EQ(encode(*ops, 1, grid, grid.patches()), one) << ops->name;
    }
  }
}

// Rows and columns are not the same to the tower.
TEST_F(Tower, PositionsHaveTwoAxes) {
  const kernels::Ops& ops = *kernels::find_ops("");
  EXPECT_NE(encode(ops, 1, {3, 6, 1, 2}), encode(ops, 1, {6, 3, 2, 1}));
}

TEST_F(Tower, RefusesWhatDoesNotFit) {
  Team team({.threads = 1});
  const auto tower = VisionTower::create(*model_, *kernels::find_ops(""), team, 20);
  ASSERT_TRUE(tower.has_value());
  std::vector<bf16> rows(static_cast<size_t>(100 * model_->text().hidden_size));
  const auto refused = [&](const ImageGrid& grid, const std::vector<bf16>& patches) {
    const Result<> result = (*tower)->encode(patches, grid, rows.data());
    return !result.has_value() && result.error().code == Code::kInvalid;
  };
  const ImageGrid good{4, 5, 2, 2};
  EXPECT_FALSE(refused(good, random_patches(good)));
  EXPECT_TRUE(refused({7, 3, 3, 1}, random_patches({7, 3, 3, 1})));  // 21 patches
  EXPECT_TRUE(refused({4, 5, 2, 1}, random_patches(good)));          // token grid
  EXPECT_TRUE(refused({0, 0, 0, 0}, {}));
  std::vector<bf16> short_by_one = random_patches(good);
  short_by_one.pop_back();
  EXPECT_TRUE(refused(good, short_by_one));
}

TEST_F(Tower, SizesOfTheRelease) {
  VisionConfig vision;
  vision.max_image_tokens = 1024;
  vision.downsample_ratio = 3;
  EXPECT_EQ(VisionTower::most_patches(vision), 9189);
}

}  // namespace
}  // namespace cedra::model

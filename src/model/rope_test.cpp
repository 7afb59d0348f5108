// Frequencies of the released config bit by bit (spec model.md 4.4), and the FP32 angle.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

namespace cedra::model {
namespace {

constexpr std::array<uint32_t, 32> kWindow = {
    0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
    0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cc2434f, 0x3c91ad39, 0x3c5a7bf2,
    0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e38, 0x3b1b690d, 0x3ae91528, 0x3aaec98e,
    0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1725, 0x39a5cb60, 0x3978a815, 0x393a7753, 0x390bd472};
constexpr std::array<uint32_t, 32> kCompressed = {
    0x3f800000, 0x3f300a3a, 0x3ef21c1f, 0x3ea67d01, 0x3e64f92e, 0x3e1d7475, 0x3dd88cb4, 0x3d94e963,
    0x3d4ccccd, 0x3d0cd4fb, 0x3cc1b019, 0x3c8530ce, 0x3c372dbf, 0x3bfbed88, 0x3bad3d5e, 0x3b6e4237,
    0x3b147ae1, 0x3ab714e0, 0x3a5ebdb6, 0x3a0530ce, 0x399bb3af, 0x39305978, 0x38be904d, 0x383e9b5f,
    0x37a3d70c, 0x36b443d0, 0x3677eba6, 0x362a7be8, 0x35ea77ff, 0x35a13bdc, 0x355dbf30, 0x35187c4d};

TextConfig released() {
  std::ifstream file(CEDRA_SOURCE_DIR "/tests/data/config/released.json");
  std::stringstream text;
  text << file.rdbuf();
  const Result<Config> config = parse_config(text.str());
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config ? config->text : TextConfig{};
}

TEST(Rope, WindowFrequenciesOfTheRelease) {
  const TextConfig text = released();
  const std::vector<float> f = rope_frequencies(text.rope_theta, text.qk_rope_head_dim);
  ASSERT_EQ(f.size(), kWindow.size());
  for (size_t k = 0; k < f.size(); ++k) EXPECT_EQ(std::bit_cast<uint32_t>(f[k]), kWindow[k]) << k;
}

TEST(Rope, CompressedFrequenciesOfTheRelease) {
  const TextConfig text = released();
  const std::vector<float> f =
      yarn_frequencies(text.compress_rope_theta, text.qk_rope_head_dim, text.rope_scaling);
  ASSERT_EQ(f.size(), kCompressed.size());
  for (size_t k = 0; k < f.size(); ++k) {
    EXPECT_EQ(std::bit_cast<uint32_t>(f[k]), kCompressed[k]) << k;
  }
}

// 4.4: the cosine of the double product is another number at long positions.
TEST(Rope, AngleIsAnFp32Product) {
  const TextConfig text = released();
  const std::vector<float> f =
      yarn_frequencies(text.compress_rope_theta, text.qk_rope_head_dim, text.rope_scaling);
  std::vector<float> cos(f.size());
  std::vector<float> sin(f.size());
  rope_angles(f, 1048575, cos.data(), sin.data());
  EXPECT_NEAR(cos[16], 0.805849, 1e-6);
  for (size_t k = 0; k < f.size(); ++k) {
    EXPECT_NEAR(cos[k] * cos[k] + sin[k] * sin[k], 1, 1e-6);
  }
  rope_angles(f, 0, cos.data(), sin.data());
  for (size_t k = 0; k < f.size(); ++k) {
    EXPECT_EQ(cos[k], 1);
    EXPECT_EQ(sin[k], 0);
  }
}

// A small original length makes both bounds negative: low clamps to 0, and low == high is moved
// apart instead of dividing by zero.
TEST(Rope, YarnOfATinyOriginalLength) {
  RopeScaling scaling;
  scaling.factor = 4;
  scaling.original_max_position_embeddings = 4;
  const std::vector<float> plain = rope_frequencies(160000, 16);
  const std::vector<float> yarn = yarn_frequencies(160000, 16, scaling);
  EXPECT_EQ(yarn[0], plain[0]);
  for (size_t k = 1; k < yarn.size(); ++k) EXPECT_EQ(yarn[k], plain[k] / 4) << k;
}

}  // namespace
}  // namespace cedra::model

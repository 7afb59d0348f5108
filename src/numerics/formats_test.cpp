// All codes of the small formats, all thresholds of the roundings, and the check values of
// model.md 3.2.
#include "numerics/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cedra {
namespace {

TEST(E4m3, DecodesEveryCode) {
  EXPECT_EQ(decode_e4m3(0x7E), 448.0f);
  EXPECT_EQ(decode_e4m3(0x08), 0x1p-6f);
  EXPECT_EQ(decode_e4m3(0x01), 0x1p-9f);
  EXPECT_EQ(decode_e4m3(0x38), 1.0f);
  EXPECT_TRUE(std::isnan(decode_e4m3(0x7F)));
  EXPECT_TRUE(std::isnan(decode_e4m3(0xFF)));
  EXPECT_TRUE(std::signbit(decode_e4m3(0x80)));
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3;
    const double expected =
        exponent == 0 ? std::ldexp(code & 7, -9) : std::ldexp(1 + (code & 7) / 8.0, exponent - 7);
    EXPECT_EQ(decode_e4m3(static_cast<uint8_t>(code)), expected) << code;
    EXPECT_EQ(decode_e4m3(static_cast<uint8_t>(code | 0x80)), -expected) << code;
  }
}

TEST(E4m3, EncodesItsOwnValues) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    EXPECT_EQ(encode_e4m3(decode_e4m3(static_cast<uint8_t>(code))), code);
  }
}

TEST(E4m3, RoundsToNearestEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = decode_e4m3(static_cast<uint8_t>(code));
    const float high = decode_e4m3(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;  // exact
    const int even = (code & 1) == 0 ? code : code + 1;
    EXPECT_EQ(encode_e4m3(middle), even) << code;
    EXPECT_EQ(encode_e4m3(std::nextafter(middle, 0.0f)), code) << code;
    EXPECT_EQ(encode_e4m3(std::nextafter(middle, 1e9f)), code + 1) << code;
    EXPECT_EQ(encode_e4m3(-middle), even | 0x80) << code;
  }
}

TEST(E4m3, ClampsAndKeepsTheSignOfZero) {
  EXPECT_EQ(encode_e4m3(1e30f), 0x7E);
  EXPECT_EQ(encode_e4m3(-465.0f), 0xFE);
  EXPECT_EQ(encode_e4m3(INFINITY), 0x7E);
  EXPECT_EQ(encode_e4m3(0.0f), 0x00);
  EXPECT_EQ(encode_e4m3(-0.0f), 0x80);
  EXPECT_EQ(encode_e4m3(-1e-30f), 0x80);
}

TEST(E8m0, DecodesEveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(decode_e8m0(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
}

TEST(E2m1, ThresholdsAndTies) {
  const std::vector<float> thresholds = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const std::vector<float> on_tie = {0, 1, 1, 2, 2, 4, 4};
  for (size_t i = 0; i < thresholds.size(); ++i) {
    const float t = thresholds[i];
    EXPECT_EQ(decode_e2m1(encode_e2m1(t)), on_tie[i]) << t;
    EXPECT_EQ(decode_e2m1(encode_e2m1(-t)), -on_tie[i]) << t;
    EXPECT_EQ(encode_e2m1(std::nextafter(t, 0.0f)), i) << t;
    EXPECT_EQ(encode_e2m1(std::nextafter(t, 9.0f)), i + 1) << t;
  }
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(encode_e2m1(decode_e2m1(code)), code);
  EXPECT_EQ(encode_e2m1(100.0f), 7);
  EXPECT_EQ(encode_e2m1(-100.0f), 15);
  EXPECT_EQ(encode_e2m1(-0.0f), 8);
}

TEST(Scales, CheckValuesOfTheSpecification) {
  auto q8 = [](float amax) {
    return pow2ceil_byte(std::max(amax, kFp8AmaxFloor), kInverseE4m3Max);
  };
  EXPECT_EQ(q8(0), 105);
  EXPECT_EQ(q8(1e-4f), 105);
  EXPECT_EQ(q8(448), 127);
  EXPECT_EQ(q8(450), 128);
  auto index = [](float amax) {
    return pow2ceil_byte(std::max(amax, kIndexAmaxFloor), kInverseE2m1Max);
  };
  EXPECT_EQ(index(6), 127);
  EXPECT_EQ(index(6.03125f), 128);
  EXPECT_EQ(index(0), 1);
  auto latent = [](float amax) {
    return decode_e4m3(latent_scale_byte(std::max(amax, kLatentAmaxFloor)));
  };
  EXPECT_EQ(latent(1), 0.171875f);
  EXPECT_EQ(decode_e2m1(encode_e2m1(1 / latent(1))) * latent(1), 1.03125f);
  EXPECT_EQ(decode_e2m1(encode_e2m1(0.5f / latent(1))) * latent(1), 0.515625f);
  EXPECT_EQ(latent(7), 1.125f);
  EXPECT_EQ(decode_e2m1(encode_e2m1(7 / latent(7))) * latent(7), 6.75f);
  EXPECT_EQ(latent(0), 0x1p-9f);
}

// 448 * 2^k and 6 * 2^k have exactly 2^k, the next BF16 has twice that.
TEST(Scales, ExactAtPowersOfTwo) {
  for (int k = -20; k < 100; ++k) {
    EXPECT_EQ(pow2ceil_byte(std::ldexp(448.0f, k), kInverseE4m3Max), 127 + k);
    EXPECT_EQ(pow2ceil_byte(std::ldexp(450.0f, k), kInverseE4m3Max), 128 + k);
    EXPECT_EQ(pow2ceil_byte(std::ldexp(6.0f, k), kInverseE2m1Max), 127 + k);
    EXPECT_EQ(pow2ceil_byte(std::ldexp(6.03125f, k), kInverseE2m1Max), 128 + k);
  }
}

TEST(Scales, BothFormsOfTheLatentScaleAgreeForEveryBf16) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float amax = std::max(to_float({static_cast<uint16_t>(bits)}), kLatentAmaxFloor);
    ASSERT_EQ(latent_scale_byte(amax), encode_e4m3(amax * kInverseE2m1Max)) << bits;
  }
}

TEST(Bf16, RoundsToNearestEvenOnceAndTwice) {
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(round_bf16(1.0f + 0x3p-8f), 1.0f + 0x1p-6f);
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);
  // Just above the tie in double, on it in FP32: two roundings go down.
  EXPECT_EQ(to_float(to_bf16_twice(1.0 + 0x1p-8 + 0x1p-40)), 1.0f);
  EXPECT_EQ(to_float(to_bf16(-0x1p-133f)), -0x1p-133f);
}

}  // namespace
}  // namespace cedra

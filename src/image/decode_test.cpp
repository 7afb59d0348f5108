// Decoders against Pillow's pixels, and against files that lie.
#include "image/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "image/codecs.h"
#include "image/test_files.h"

namespace cedra::image {
namespace {

using namespace testing;

TEST(Decode, FilesGiveTheExpectedPixels) {
  int64_t files = 0;
  for (const auto& row : read_table("expected.txt")) {
    ASSERT_EQ(row.size(), 5U);
    DecodeOptions options;
    if (row[1] == "white") options.alpha = AlphaRule::kWhite;
    if (row[1] == "drop") options.alpha = AlphaRule::kDrop;
    options.exif_orientation = row[1] == "turned";
    const Result<Picture> picture = decode(read_bytes(row[0]), options);
    ASSERT_TRUE(picture.has_value()) << row[0] << ": " << picture.error().message;
    EXPECT_EQ(picture->width, std::stoll(row[2])) << row[0];
    EXPECT_EQ(picture->height, std::stoll(row[3])) << row[0];
    EXPECT_EQ(fnv(picture->rgb), row[4]) << row[0] << " " << row[1];
    ++files;
  }
  EXPECT_GE(files, 50);
}

std::vector<std::string> file_names() {
  std::set<std::string> names;
  for (const auto& row : read_table("expected.txt")) names.insert(row[0]);
  return {names.begin(), names.end()};
}

TEST(Decode, TheBytesNameTheFormat) {
  EXPECT_EQ(sniff(read_bytes("rgb.png")), Format::kPng);
  EXPECT_EQ(sniff(read_bytes("grey.jpg")), Format::kJpeg);
  EXPECT_EQ(sniff(read_bytes("lossy.webp")), Format::kWebp);
  EXPECT_EQ(sniff(read_bytes("plain.gif")), Format::kGif);
  EXPECT_EQ(sniff(read_bytes("rgb.bmp")), Format::kBmp);
  EXPECT_EQ(sniff(read_bytes("os2.bmp")), Format::kBmp);
  EXPECT_EQ(sniff({}), Format::kUnknown);
  std::vector<uint8_t> bytes = read_bytes("rgb.png");
  bytes[1] ^= 1;
  EXPECT_EQ(sniff(bytes), Format::kUnknown);
  const Result<Picture> picture = decode(bytes, {});
  ASSERT_FALSE(picture.has_value());
  EXPECT_EQ(picture.error().code, Code::kUnsupported);
}

TEST(Decode, NoBytesAndTooManyBytes) {
  const Result<Picture> none = decode({}, {});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kInvalid);
  DecodeOptions options;
  options.max_bytes = 50;
  const Result<Picture> many = decode(read_bytes("rgb.png"), options);
  ASSERT_FALSE(many.has_value());
  EXPECT_EQ(many.error().code, Code::kTooLarge);
}

TEST(Decode, LimitsHoldForEveryFormat) {
  for (const char* name : {"rgb.png", "quarter.jpg", "lossy.webp", "animated.webp", "plain.gif",
                           "rgb.bmp", "runs8.bmp"}) {
    const std::vector<uint8_t> bytes = read_bytes(name);
    const Result<Picture> picture = decode(bytes, {});
    ASSERT_TRUE(picture.has_value());
    DecodeOptions side;
    side.max_side = picture->width;  // the longer one in all of them
    EXPECT_TRUE(decode(bytes, side).has_value()) << name;
    --side.max_side;
    DecodeOptions area;
    area.max_pixels = picture->width * picture->height;
    EXPECT_TRUE(decode(bytes, area).has_value()) << name;
    --area.max_pixels;
    for (const DecodeOptions& options : {side, area}) {
      const Result<Picture> refused = decode(bytes, options);
      ASSERT_FALSE(refused.has_value()) << name;
      EXPECT_EQ(refused.error().code, Code::kTooLarge) << name;
    }
  }
}

// A header that promises more than the file holds is refused by its numbers, before memory.
TEST(Decode, HugeHeaders) {
  std::vector<uint8_t> png = read_bytes("rgb.png");
  for (const size_t at : {16U, 20U}) {  // IHDR width, height; the CRC no longer fits either
    png[at] = png[at + 1] = 0;
    png[at + 2] = png[at + 3] = 0xFF;
  }
  EXPECT_FALSE(decode(png, {}).has_value());
  std::vector<uint8_t> jpeg = read_bytes("quarter.jpg");
  const std::vector<uint8_t> sof = {0xFF, 0xC0, 0x00, 0x11, 0x08};
  const auto found = std::ranges::search(jpeg, sof);
  ASSERT_FALSE(found.empty());
  for (int i = 0; i < 4; ++i) found.end()[i] = 0xFF;  // 65535: over the format's own limit
  EXPECT_FALSE(decode(jpeg, {}).has_value());
  for (int i = 0; i < 4; i += 2) found.end()[i] = 0x7F;
  Result<Picture> picture = decode(jpeg, {});
  ASSERT_FALSE(picture.has_value());
  EXPECT_EQ(picture.error().code, Code::kTooLarge) << picture.error().message;
  std::vector<uint8_t> gif = read_bytes("plain.gif");
  for (size_t i = 6; i < 10; ++i) gif[i] = 0xFF;
  picture = decode(gif, {});
  ASSERT_FALSE(picture.has_value());
  EXPECT_EQ(picture.error().code, Code::kTooLarge) << picture.error().message;
  for (const char* name : {"rgb.bmp", "runs8.bmp"}) {
    std::vector<uint8_t> bmp = read_bytes(name);
    bmp[19] = bmp[23] = 0x40;
    picture = decode(bmp, {});
    ASSERT_FALSE(picture.has_value());
    EXPECT_EQ(picture.error().code, Code::kTooLarge) << picture.error().message;
    bmp[25] = 0x80;  // the most negative height has no positive twin in 32 bits
    bmp[22] = bmp[23] = bmp[24] = 0;
    EXPECT_FALSE(decode(bmp, {}).has_value());
  }
}

// Every cut gives an error or, where only trailing bytes are gone, the same picture.
TEST(Decode, TruncatedFiles) {
  for (const std::string& name : file_names()) {
    const std::vector<uint8_t> bytes = read_bytes(name);
    const Result<Picture> whole = decode(bytes, {});
    ASSERT_TRUE(whole.has_value());
    const size_t step = bytes.size() > 1000 ? 13 : 3;
    for (size_t length = 0; length < bytes.size(); length += step) {
      // A copy of its own, so that reading past the end is seen by sanitizers.
      const std::vector<uint8_t> part(bytes.begin(),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(length));
      const Result<Picture> picture = decode(part, {});
      if (picture.has_value()) {
        EXPECT_EQ(picture->rgb, whole->rgb) << name << " cut to " << length;
      } else {
        EXPECT_FALSE(picture.error().message.empty());
      }
    }
    // The first frame of an animation may be whole.
    if (name.starts_with("animated")) continue;
    EXPECT_FALSE(decode(Bytes(bytes).first(bytes.size() / 2), {}).has_value()) << name;
  }
}

TEST(Decode, DamagedFilesGiveAPictureOrAnError) {
  std::mt19937 random(1);
  for (const std::string& name : file_names()) {
    const std::vector<uint8_t> bytes = read_bytes(name);
    DecodeOptions options;
    options.max_side = 500;
    options.exif_orientation = true;
    for (int round = 0; round < 60; ++round) {
      std::vector<uint8_t> damaged = bytes;
      for (int i = 0; i < 4; ++i) damaged[random() % bytes.size()] = static_cast<uint8_t>(random());
      const Result<Picture> picture = decode(damaged, options);
      if (!picture.has_value()) continue;
      EXPECT_EQ(picture->rgb.size(), static_cast<size_t>(3 * picture->width * picture->height));
      EXPECT_LE(picture->width, options.max_side);
      EXPECT_LE(picture->height, options.max_side);
    }
  }
}

TEST(Decode, AJpegOfManyScansIsRefused) {
  std::vector<uint8_t> bytes = read_bytes("progressive.jpg");
  const std::vector<uint8_t> copy(bytes);
  for (int i = 0; i < 120; ++i) bytes.insert(bytes.end() - 2, {0xFF, 0xDA});
  const Result<Picture> picture = decode(bytes, {});
  ASSERT_FALSE(picture.has_value());
  EXPECT_EQ(picture.error().code, Code::kTooLarge);
  EXPECT_TRUE(decode(copy, {}).has_value());
}

// Stray bytes are a warning of the library and common in the wild; an early end is not forgiven.
TEST(Decode, JpegWarnings) {
  std::vector<uint8_t> bytes = read_bytes("quarter.jpg");
  const Result<Picture> whole = decode(bytes, {});
  ASSERT_TRUE(whole.has_value());
  bytes.insert(bytes.begin() + 20, {0x00, 0x11, 0x22});  // behind the JFIF segment
  const Result<Picture> stray = decode(bytes, {});
  ASSERT_TRUE(stray.has_value()) << stray.error().message;
  EXPECT_EQ(stray->rgb, whole->rgb);
}

TEST(Decode, ExifOrientationOfGarbageIsOne) {
  EXPECT_EQ(exif_orientation({}), 1);
  // Big endian, one entry: orientation 6.
  std::vector<uint8_t> tiff = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0,
                               3,   0,   0, 0,  1, 0, 6, 0, 0, 0, 0, 0,    0};
  EXPECT_EQ(exif_orientation(tiff), 6);
  for (size_t length = 0; length + 4 < tiff.size(); ++length) {
    EXPECT_EQ(exif_orientation(Bytes(tiff).first(length)), 1) << length;
  }
  tiff[19] = 9;
  EXPECT_EQ(exif_orientation(tiff), 1);
  for (size_t i = 4; i < 8; ++i) tiff[i] = 0xFF;
  EXPECT_EQ(exif_orientation(tiff), 1);
}

}  // namespace
}  // namespace cedra::image

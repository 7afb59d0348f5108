// Container recognition, limits, transparency and orientation.
#include "image/decode.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "image/codecs.h"

namespace cedra::image {
namespace {

bool has_at(Bytes bytes, size_t offset, std::string_view magic) {
  return bytes.size() >= offset + magic.size() &&
         std::memcmp(bytes.data() + offset, magic.data(), magic.size()) == 0;
}

Result<Picture> decode_format(Bytes bytes, const DecodeOptions& options) {
  switch (sniff(bytes)) {
    case Format::kPng:
      return decode_png(bytes, options);
    case Format::kJpeg:
      return decode_jpeg(bytes, options);
    case Format::kWebp:
      return decode_webp(bytes, options);
    case Format::kGif:
      return decode_gif(bytes, options);
    case Format::kBmp:
      return decode_bmp(bytes, options);
    case Format::kUnknown:
      break;
  }
  return err(Code::kUnsupported, "the data is not a PNG, JPEG, WebP, GIF or BMP image");
}

}  // namespace

Format sniff(Bytes bytes) {
  if (has_at(bytes, 0, "\x89PNG\r\n\x1a\n")) return Format::kPng;
  if (has_at(bytes, 0, "\xff\xd8\xff")) return Format::kJpeg;
  if (has_at(bytes, 0, "RIFF") && has_at(bytes, 8, "WEBP")) return Format::kWebp;
  if (has_at(bytes, 0, "GIF87a") || has_at(bytes, 0, "GIF89a")) return Format::kGif;
  // Two letters are little to go by: the size of the header that follows has to be one of those.
  constexpr uint8_t kBmpHeaders[] = {12, 40, 52, 56, 64, 108, 124};
  if (has_at(bytes, 0, "BM") && has_at(bytes, 15, std::string_view("\0\0\0", 3)) &&
      std::ranges::count(kBmpHeaders, bytes[14]) > 0) {
    return Format::kBmp;
  }
  return Format::kUnknown;
}

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kPng:
      return "PNG";
    case Format::kJpeg:
      return "JPEG";
    case Format::kWebp:
      return "WebP";
    case Format::kGif:
      return "GIF";
    case Format::kBmp:
      return "BMP";
    case Format::kUnknown:
      break;
  }
  return "unknown";
}

Result<> check_size(const DecodeOptions& options, int64_t width, int64_t height) {
  if (width <= 0 || height <= 0) {
    return err(Code::kCorrupt, "the image header says {} x {} pixels", width, height);
  }
  if (width > options.max_side || height > options.max_side) {
    return err(Code::kTooLarge, "the image is {} x {} pixels; a side may have at most {}", width,
               height, options.max_side);
  }
  if (width * height > options.max_pixels) {
    return err(Code::kTooLarge, "the image is {} x {} pixels; at most {} pixels are allowed", width,
               height, options.max_pixels);
  }
  return {};
}

Picture flatten(int64_t width, int64_t height, std::vector<uint8_t> rgba, AlphaRule rule) {
  const int ground = rule == AlphaRule::kWhite ? 255 : 253;
  const size_t pixels = static_cast<size_t>(width * height);
  // In place: the RGB of a pixel never lies behind its RGBA.
  for (size_t i = 0; i < pixels; ++i) {
    const int alpha = rule == AlphaRule::kDrop ? 255 : rgba[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int blended = (rgba[4 * i + c] * alpha + ground * (255 - alpha) + 127) / 255;
      rgba[3 * i + c] = static_cast<uint8_t>(blended);
    }
  }
  rgba.resize(pixels * 3);
  return {width, height, std::move(rgba)};
}

int exif_orientation(Bytes tiff) {
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(tiff[at]); };
  if (tiff.size() < 8) return 1;
  const bool little = tiff[0] == 'I' && tiff[1] == 'I';
  if (!little && !(tiff[0] == 'M' && tiff[1] == 'M')) return 1;
  const auto word = [&](size_t at) {
    return little ? byte(at) | byte(at + 1) << 8 : byte(at) << 8 | byte(at + 1);
  };
  const auto dword = [&](size_t at) {
    return little ? word(at) | word(at + 2) << 16 : word(at) << 16 | word(at + 2);
  };
  if (word(2) != 42) return 1;
  const size_t directory = dword(4);
  if (directory > tiff.size() - 2) return 1;
  constexpr uint32_t kOrientation = 0x0112;
  constexpr uint32_t kShort = 3;
  constexpr size_t kEntry = 12;
  const size_t entries = word(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > tiff.size()) return 1;
    if (word(at) != kOrientation) continue;
    const uint32_t value = word(at + 8);
    return word(at + 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Picture orient(Picture picture, int orientation) {
  if (orientation <= 1 || orientation > 8) return picture;
  const int64_t right = picture.width - 1;
  const int64_t bottom = picture.height - 1;
  const bool turned = orientation >= 5;
  Picture out{turned ? picture.height : picture.width, turned ? picture.width : picture.height,
              std::vector<uint8_t>(picture.rgb.size())};
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      const int64_t along = turned ? y : x;  // before mirroring
      const int64_t across = turned ? x : y;
      const bool mirror_x =
          orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
      const bool mirror_y =
          orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
      const int64_t from_x = mirror_x ? right - along : along;
      const int64_t from_y = mirror_y ? bottom - across : across;
      std::memcpy(to, picture.rgb.data() + 3 * (from_y * picture.width + from_x), 3);
    }
  }
  return out;
}

Result<Picture> decode(Bytes bytes, const DecodeOptions& options) {
  if (bytes.empty()) return err(Code::kInvalid, "the image is empty");
  if (static_cast<int64_t>(bytes.size()) > options.max_bytes) {
    return err(Code::kTooLarge, "the image has {} bytes; at most {} are allowed", bytes.size(),
               options.max_bytes);
  }
  try {
    return decode_format(bytes, options);
  } catch (const std::bad_alloc&) {
    return err(Code::kExhausted, "no memory to decode the image");
  }
}

}  // namespace cedra::image

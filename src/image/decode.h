// Bytes of an image file -> RGB (vision.md 3). The container is recognised from the bytes, its
// header is held to the limits before pixels get memory, and whatever a file says, the result is a
// picture or an error. Colour profiles and gamma are ignored; of an animation the first frame
// counts.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "image/picture.h"

namespace cedra::image {

enum class Format { kUnknown, kPng, kJpeg, kWebp, kGif, kBmp };

// By the first bytes alone.
Format sniff(std::span<const uint8_t> bytes);
std::string_view format_name(Format format);

// What becomes of transparency.
enum class AlphaRule {
  kHosted,  // blended on #FDFDFD, as the hosted API does
  kWhite,   // blended on white
  kDrop,    // alpha ignored, hidden colours show: the checkpoint's own loader
};

struct DecodeOptions {
  int64_t max_bytes = int64_t{32} << 20;  // of the file
  int64_t max_side = 8192;                // pixels
  int64_t max_pixels = int64_t{8192} * 8192;
  AlphaRule alpha = AlphaRule::kHosted;
  bool exif_orientation = false;  // turn the picture as its EXIF orientation says
};

// Errors: kInvalid for no bytes, kTooLarge over a limit, kUnsupported for another container or
// variant, kCorrupt for a damaged or truncated file.
Result<Picture> decode(std::span<const uint8_t> bytes, const DecodeOptions& options);

}  // namespace cedra::image

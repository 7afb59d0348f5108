// One decoder per container; they share limits and the way transparency is laid on RGB. Internal to
// image/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "image/decode.h"

namespace cedra::image {

using Bytes = std::span<const uint8_t>;

// kTooLarge if a picture of this size is over the limits, kCorrupt if a side is zero. To be called
// before memory is taken for pixels.
Result<> check_size(const DecodeOptions& options, int64_t width, int64_t height);

// RGBA rows -> RGB by the rule.
Picture flatten(int64_t width, int64_t height, std::vector<uint8_t> rgba, AlphaRule rule);

// EXIF orientation, 1..8, of a TIFF block; 1 for anything that cannot be read.
int exif_orientation(Bytes tiff);
// The picture as orientation 1..8 wants it shown.
Picture orient(Picture picture, int orientation);

Result<Picture> decode_png(Bytes bytes, const DecodeOptions& options);
Result<Picture> decode_jpeg(Bytes bytes, const DecodeOptions& options);
Result<Picture> decode_webp(Bytes bytes, const DecodeOptions& options);
Result<Picture> decode_gif(Bytes bytes, const DecodeOptions& options);
Result<Picture> decode_bmp(Bytes bytes, const DecodeOptions& options);

}  // namespace cedra::image

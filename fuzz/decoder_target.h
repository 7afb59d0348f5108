// What the targets of the single decoders share: any bytes give an error with a sentence, or a
// picture within the limits.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>

#include "image/codecs.h"

namespace cedra::fuzz {

using Decoder = Result<image::Picture> (*)(image::Bytes, const image::DecodeOptions&);

// The picture, if it is one. The first byte chooses options.
inline Result<image::Picture> decode_checked(Decoder decoder, const uint8_t* data, size_t size) {
  if (size == 0) return err(Code::kInvalid, "no options");
  image::DecodeOptions options;
  options.max_side = 300;  // larger pictures are only slower
  options.alpha = static_cast<image::AlphaRule>(data[0] % 3);
  options.exif_orientation = (data[0] & 4) != 0;
  auto picture = decoder(std::span(data + 1, size - 1), options);
  if (!picture) {
    if (picture.error().message.empty()) std::abort();
    return picture;
  }
  if (picture->width < 1 || picture->height < 1 || picture->width > options.max_side ||
      picture->height > options.max_side ||
      static_cast<int64_t>(picture->rgb.size()) != 3 * picture->width * picture->height) {
    std::abort();
  }
  return picture;
}

inline int decode_with(Decoder decoder, const uint8_t* data, size_t size) {
  (void)decode_checked(decoder, data, size);
  return 0;
}

}  // namespace cedra::fuzz

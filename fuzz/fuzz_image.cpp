// Image files of every container, through decoding, orientation and preprocessing. Any bytes must
// give an error or a picture within the limits whose patches fit the token budget.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "image/decode.h"
#include "image/resize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  cedra::image::DecodeOptions options;
  options.max_side = 300;  // larger pictures are only slower
  options.alpha = static_cast<cedra::image::AlphaRule>(data[0] % 3);
  options.exif_orientation = (data[0] & 4) != 0;
  const auto picture = cedra::image::decode(std::span(data + 1, size - 1), options);
  if (!picture) {
    if (picture.error().message.empty()) std::abort();
    return 0;
  }
  if (picture->width < 1 || picture->height < 1 || picture->width > options.max_side ||
      picture->height > options.max_side ||
      static_cast<int64_t>(picture->rgb.size()) != 3 * picture->width * picture->height) {
    std::abort();
  }
  cedra::image::PatchRules rules;
  rules.max_image_tokens = 64;
  rules.min_pixels = 7056;
  const cedra::image::Patches patches = cedra::image::preprocess(rules, *picture);
  if (patches.plan.span_tokens() > rules.max_image_tokens ||
      static_cast<int64_t>(patches.values.size()) != patches.plan.patches() * 3 * 14 * 14) {
    std::abort();
  }
  return 0;
}

// Image files of every container, through decoding, orientation and preprocessing. Any bytes must
// give an error or a picture within the limits whose patches fit the token budget.
#include <cstdint>
#include <cstdlib>

#include "decoder_target.h"
#include "image/decode.h"
#include "image/resize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto picture = cedra::fuzz::decode_checked(cedra::image::decode, data, size);
  if (!picture) return 0;
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

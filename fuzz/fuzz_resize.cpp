// Any size under any rules: the plan keeps to the token budget, is never empty, and the picture
// comes out in it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "image/resize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 12) return 0;
  const auto word = [&](size_t at) { return int64_t{data[at]} | int64_t{data[at + 1]} << 8; };
  const int64_t width = std::max<int64_t>(word(0), 1);
  const int64_t height = std::max<int64_t>(word(2), 1);
  cedra::image::PatchRules rules;
  rules.patch_size = 1 + data[4] % 16;
  rules.downsample_ratio = 1 + data[5] % 4;
  rules.max_image_tokens = 4 + word(6) % 1200;
  rules.min_pixels = word(8) * 8;
  const cedra::image::ResizePlan plan = cedra::image::plan_resize(rules, width, height);
  if (plan.span_tokens() > rules.max_image_tokens || plan.vit_rows < 1 || plan.vit_columns < 1 ||
      plan.width != plan.vit_columns * rules.patch_size ||
      plan.height != plan.vit_rows * rules.patch_size) {
    std::abort();
  }
  if (width * height > 1 << 16 || plan.width * plan.height > 1 << 20) return 0;
  cedra::image::Picture picture{width, height,
                                std::vector<uint8_t>(static_cast<size_t>(3 * width * height))};
  for (size_t i = 0; i < picture.rgb.size(); ++i) picture.rgb[i] = data[10 + i % (size - 10)];
  const cedra::image::Picture fitted = cedra::image::fit(picture, plan);
  if (fitted.width != plan.width || fitted.height != plan.height ||
      static_cast<int64_t>(fitted.rgb.size()) != 3 * plan.width * plan.height) {
    std::abort();
  }
  const auto values = cedra::image::patchify(fitted, rules.patch_size);
  if (values.size() != fitted.rgb.size()) std::abort();
  return 0;
}

// From a decoded picture to the patches that the vision tower reads (vision.md 4 and 5): the resize
// plan, Pillow's antialiased bicubic to the bit, centring on grey, BF16 patches.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "image/picture.h"

namespace cedra::image {

// The numbers of `vision_config` that the plan depends on.
struct PatchRules {
  int64_t patch_size = 14;
  int64_t downsample_ratio = 3;
  int64_t max_image_tokens = 1024;  // at least 4
  int64_t min_pixels = 295936;
};

struct ResizePlan {
  int64_t width = 0;  // target pixels, multiples of the patch size
  int64_t height = 0;
  int64_t vit_rows = 0;  // grid of patches
  int64_t vit_columns = 0;
  int64_t llm_rows = 0;  // grid of image tokens
  int64_t llm_columns = 0;

  int64_t patches() const { return vit_rows * vit_columns; }
  // Tokens of the span in the prompt: start, a newline after every row, end.
  int64_t span_tokens() const { return llm_rows * (llm_columns + 1) + 2; }
  bool operator==(const ResizePlan&) const = default;
};

// Target size of a picture of width x height, both at least 1. span_tokens() never exceeds
// max_image_tokens.
ResizePlan plan_resize(const PatchRules& rules, int64_t width, int64_t height);

// Bicubic with antialiasing, horizontal pass first; sides at least 1.
Picture resize(const Picture& picture, int64_t width, int64_t height);

// `detail: low`: a picture whose long side is over `side` shrinks to it.
Picture shrink_to_side(Picture picture, int64_t side);

// Contained in the plan's size and centred on grey 127.
Picture fit(const Picture& picture, const ResizePlan& plan);

// BF16 bits [patches, 3, P, P], row by row of the patch grid. Sides are multiples of `patch_size`.
std::vector<uint16_t> patchify(const Picture& canvas, int64_t patch_size);

struct Patches {
  ResizePlan plan;
  std::vector<uint16_t> values;  // of patchify()
};

Patches preprocess(const PatchRules& rules, const Picture& picture);

}  // namespace cedra::image

// A picture file as far as the model's side needs it: decoded, resized and padded, still 8 bits a
// sample, with the hash that stands for its content.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "image/decode.h"
#include "image/resize.h"

namespace cedra::image {

// SHA-256 over the grid and the pixels as the tower sees them (vision.md 8.9): equal keys, equal
// embeddings. Other options that give other pixels give another key.
using ContentKey = std::array<uint8_t, 32>;

struct Prepared {
  // Of the picture before fitting, after shrinking: the plan follows from it.
  int64_t source_width = 0;
  int64_t source_height = 0;
  ResizePlan plan;
  Picture pixels;  // plan.width x plan.height; patchify() makes the tower's input of it
  ContentKey key{};
};

struct PrepareOptions {
  DecodeOptions decode;
  PatchRules rules;
  int64_t shrink_side = 0;  // `detail: low`: shrink to this side first; 0: no
};

// Decoding and fitting without the key, in this process. Errors as those of decode().
Result<Prepared> prepare(std::span<const uint8_t> bytes, const PrepareOptions& options);

ContentKey content_key(const Prepared& image);

}  // namespace cedra::image

#include "engine/image_spans.h"

#include <xxhash.h>

#include <algorithm>
#include <unordered_set>

namespace cedra::engine {
namespace {

int64_t bytes_of(const image::Prepared& image) {
  return static_cast<int64_t>(image.pixels.rgb.size());
}

}  // namespace

Result<> check_images(const Request& request, const Info& info) {
  if (request.images.empty()) return {};
  if (!info.vision) {
    return err(Code::kUnsupported, "this model does not accept images, and the prompt has {}",
               request.images.size());
  }
  const image::PatchRules& rules = info.vision->rules;
  const auto size = static_cast<int64_t>(request.prompt.size());
  int64_t end = 0;  // of the span before
  for (size_t i = 0; i < request.images.size(); ++i) {
    const ImageSpan& span = request.images[i];
    if (span.image == nullptr) return err(Code::kInvalid, "image {} is missing", i);
    const image::Prepared& image = *span.image;
    if (image.plan != image::plan_resize(rules, std::max<int64_t>(image.source_width, 1),
                                         std::max<int64_t>(image.source_height, 1)) ||
        image.pixels.width != image.plan.width || image.pixels.height != image.plan.height ||
        bytes_of(image) != 3 * image.plan.width * image.plan.height) {
      return err(Code::kInvalid, "image {} was not prepared for this model", i);
    }
    const int64_t tokens = image.plan.span_tokens();
    if (span.position < end || span.position + tokens > size) {
      return err(
          Code::kInvalid,
          "image {} at position {} has {} tokens; it overlaps another or leaves the prompt of "
          "{} tokens",
          i, span.position, tokens, size);
    }
    end = span.position + tokens;
    for (int64_t p = span.position; p < end; ++p) {
      if (request.prompt[static_cast<size_t>(p)] != info.vision->token_id) {
        return err(Code::kInvalid, "image {}: the prompt has id {} at position {}, expected {}", i,
                   request.prompt[static_cast<size_t>(p)], p, info.vision->token_id);
      }
    }
  }
  return {};
}

void mark_images(std::span<const ImageSpan> images, std::span<int32_t> tokens) {
  for (const ImageSpan& span : images) {
    const image::ContentKey& key = span.image->key;
    for (int64_t k = 0; k < span.image->plan.span_tokens(); ++k) {
      const uint64_t hash = XXH3_64bits_withSeed(key.data(), key.size(), static_cast<uint64_t>(k));
      tokens[static_cast<size_t>(span.position + k)] = -1 - static_cast<int32_t>(hash & 0x7FFFFFFF);
    }
  }
}

const bf16* span_row(const model::Weights& weights, const ImageStore& store, const SpanUse& span,
                     int64_t offset) {
  const model::SpanPlace place = model::span_place(span.grid, offset);
  if (place.role == model::SpanRole::kImage) return store.row(span.entry, place.token);
  return model::span_delimiter(weights, place.role);
}

int64_t PixelCount::added(std::span<const ImageSpan> images) const {
  std::unordered_set<const image::Prepared*> seen;
  int64_t bytes = 0;
  for (const ImageSpan& span : images) {
    const image::Prepared* image = span.image.get();
    if (!uses_.contains(image) && seen.insert(image).second) bytes += bytes_of(*image);
  }
  return bytes;
}

void PixelCount::add(const std::shared_ptr<const image::Prepared>& image) {
  if (uses_[image.get()]++ == 0) bytes_ += bytes_of(*image);
}

void PixelCount::remove(const std::shared_ptr<const image::Prepared>& image) {
  const auto found = uses_.find(image.get());
  if (found == uses_.end() || --found->second > 0) return;
  bytes_ -= bytes_of(*image);
  uses_.erase(found);
}

}  // namespace cedra::engine

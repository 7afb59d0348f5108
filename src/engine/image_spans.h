// Images in the tokens of a request: checks, the ids that stand for them inside the engine, and the
// embedding of each position of a span (vision.md 8). Internal to engine/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/image_store.h"
#include "model/vision.h"

namespace cedra::engine {

// kUnsupported without a tower; kInvalid for spans that overlap, leave the prompt, do not hold the
// image token, or pictures that were prepared by other rules.
Result<> check_images(const Request& request, const Info& info);

// Inside the engine a position of a span has a negative id, made from the image's content and the
// place in its span. So whatever compares tokens compares images: keys of the prefix cache above
// all. Two different images agree in one position by chance of 2^-31, and the first that depends on
// the image has one before it.
inline bool is_image_row(int32_t token) { return token < 0; }
void mark_images(std::span<const ImageSpan> images, std::span<int32_t> tokens);

// A span of a running request.
struct SpanUse {
  int64_t begin = 0;  // positions
  int64_t end = 0;
  model::ImageGrid grid;
  std::shared_ptr<const image::Prepared> image;  // until it is encoded
  ImageStore::Entry entry = ImageStore::kNone;   // held from the encoding to the span's end
};

// Embedding row of position `offset` of a span. The entry is ready.
const bf16* span_row(const model::Weights& weights, const ImageStore& store, const SpanUse& span,
                     int64_t offset);

// Bytes of the pixels that accepted requests hold, a picture that several share counted once.
class PixelCount {
 public:
  // What `images` would add.
  int64_t added(std::span<const ImageSpan> images) const;
  void add(const std::shared_ptr<const image::Prepared>& image);
  void remove(const std::shared_ptr<const image::Prepared>& image);
  int64_t bytes() const { return bytes_; }

 private:
  std::unordered_map<const image::Prepared*, int64_t> uses_;
  int64_t bytes_ = 0;
};

}  // namespace cedra::engine

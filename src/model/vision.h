// The vision side of the model (spec vision.md 6 to 8.3): patches of one image -> the rows that
// replace text embeddings, and which row stands where in the span of an image.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/vision_weights.h"
#include "parallel/team.h"

namespace cedra::model {

// Grid of patches of one image, and of the image tokens made from R x R of them.
struct ImageGrid {
  int64_t vit_rows = 0;
  int64_t vit_columns = 0;
  int64_t llm_rows = 0;
  int64_t llm_columns = 0;

  int64_t patches() const { return vit_rows * vit_columns; }
  int64_t image_tokens() const { return llm_rows * llm_columns; }
  int64_t span_tokens() const { return llm_rows * (llm_columns + 1) + 2; }
};

// What a position of a span holds; the numbers are the reference's token types. Text is -1 there.
enum class SpanRole : int8_t { kStart = 0, kImage = 1, kNewline = 2, kEnd = 3 };

// Position `offset` of a span: start, every row of image tokens with a newline behind it, end.
struct SpanPlace {
  SpanRole role = SpanRole::kStart;
  int64_t token = 0;  // kImage: which of the image tokens
};
SpanPlace span_place(const ImageGrid& grid, int64_t offset);

// The embedding row [D] of a role that is no image token.
const bf16* span_delimiter(const Weights& weights, SpanRole role);

// Of all positions of a span.
std::vector<SpanRole> span_roles(const ImageGrid& grid);

// The embedding row [D] of every position of a span: what Segment::embeddings takes. `rows` are the
// encoded image tokens [image_tokens, D]; they and the weights outlive the result.
std::vector<const bf16*> span_embeddings(const Weights& weights, const ImageGrid& grid,
                                         const bf16* rows, int64_t hidden_size);

// One thread drives a tower; the team works inside encode(). No allocation after create().
class VisionTower {
 public:
  // Room for images of up to `max_patches` patches; 0: whatever max_image_tokens allows.
  // kUnsupported for a model without a tower.
  static Result<std::unique_ptr<VisionTower>> create(const Model& model, const kernels::Ops& ops,
                                                     Team& team, int64_t max_patches = 0);
  ~VisionTower();

  // patches [N, 3, P, P] -> embeddings [image_tokens, D]. kInvalid if the patches are not those of
  // the grid, the token grid does not follow from it, or there are too many.
  Result<> encode(std::span<const bf16> patches, const ImageGrid& grid, bf16* embeddings);

  // The same in pieces, so that other work can run in between: start() takes the patches in, which
  // are not needed after it, and every advance() runs one block, the last one the aligner. True:
  // `embeddings` are written. Starting again gives up what is under way.
  Result<> start(std::span<const bf16> patches, const ImageGrid& grid);
  bool advance(bf16* embeddings);

  // The most patches that a span of max_image_tokens can hold.
  static int64_t most_patches(const VisionConfig& vision);
  // Bytes of the workspace, weights not counted.
  static int64_t workspace_bytes(const Config& config, int64_t max_patches, int threads);

 private:
  struct Impl;
  explicit VisionTower(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cedra::model

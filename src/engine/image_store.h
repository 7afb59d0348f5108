// Encoded images: found again by their content, computed by the vision tower piece by piece, kept
// in pages of rows while a request needs them and, as room allows, for later. Engine thread only;
// all memory is taken at construction. Internal to engine/.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "image/prepared.h"
#include "model/vision.h"

namespace cedra::engine {

// What images take, from the config alone. The config has a tower.
struct ImageSizes {
  static constexpr int64_t kPageRows = 32;
  static constexpr int64_t kRowBytes = 2 * int64_t{sizeof(void*)};  // of a step, to place images

  explicit ImageSizes(const Config& config);
  int64_t max_patches = 0;
  int64_t max_rows = 0;  // image tokens of the largest image
  int64_t page_bytes = 0;
  int64_t pages_per_image = 0;  // of the largest
  int64_t pixel_bytes = 0;      // likewise, as prepared
  static int64_t page_overhead();
  // Workspace, the patches on their way in and the rows on their way out.
  int64_t tower_bytes(const Config& config, int threads) const;
};

model::ImageGrid grid_of(const image::ResizePlan& plan);

class ImageStore {
 public:
  using Entry = int32_t;
  static constexpr Entry kNone = -1;

  // pages: at least those of the largest image. Errors as VisionTower::create().
  static Result<std::unique_ptr<ImageStore>> create(const model::Model& model,
                                                    const kernels::Ops& ops, Team& team,
                                                    int64_t pages);

  // The place of an image, held until release(); unused images make room. kNone: all room is held.
  Entry hold(const image::Prepared& image);
  void release(Entry entry);
  // Whether its rows are there.
  bool ready(Entry entry) const { return entries_[static_cast<size_t>(entry)].ready; }
  // One piece of work on `entry`, or on the image that is under way already. Errors as
  // VisionTower::encode().
  Result<> work_on(Entry entry, const image::Prepared& image);
  // Row [D] of an image token.
  const bf16* row(Entry entry, int64_t token) const;

  int64_t encoded() const { return encoded_; }
  int64_t reused() const { return reused_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_pages_.size()); }

 private:
  struct Image {
    image::ContentKey key{};
    std::vector<int32_t> pages;  // empty: unused
    int64_t rows = 0;
    int64_t holders = 0;
    uint64_t used = 0;
    bool ready = false;
  };

  ImageStore(const model::Model& model, int64_t pages);
  void drop(Entry entry);
  void keep_rows(Image& image);

  int64_t width_;
  int64_t patch_size_;
  std::unique_ptr<model::VisionTower> tower_;
  std::vector<bf16> patches_;  // of the image that starts
  std::vector<bf16> rows_;     // of the image under way
  std::vector<bf16> memory_;   // [pages, kPageRows, D]
  std::vector<int32_t> free_pages_;
  std::vector<Image> entries_;  // at most one per page
  Entry under_way_ = kNone;
  uint64_t clock_ = 0;
  int64_t encoded_ = 0;
  int64_t reused_ = 0;
};

}  // namespace cedra::engine

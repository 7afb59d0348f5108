#include "engine/image_store.h"

#include <algorithm>
#include <cassert>

namespace cedra::engine {

ImageSizes::ImageSizes(const Config& config) {
  const VisionConfig& vision = *config.vision;
  max_patches = model::VisionTower::most_patches(vision);
  max_rows = vision.max_image_tokens;
  page_bytes = kPageRows * config.text.hidden_size * int64_t{sizeof(bf16)};
  pages_per_image = (max_rows + kPageRows - 1) / kPageRows;
  pixel_bytes = max_patches * 3 * vision.patch_size * vision.patch_size;
}

int64_t ImageSizes::page_overhead() { return sizeof(int32_t) * 2 + 160; }

int64_t ImageSizes::tower_bytes(const Config& config, int threads) const {
  return model::VisionTower::workspace_bytes(config, max_patches, threads) +
         (pixel_bytes + max_rows * config.text.hidden_size) * int64_t{sizeof(bf16)};
}

model::ImageGrid grid_of(const image::ResizePlan& plan) {
  return {plan.vit_rows, plan.vit_columns, plan.llm_rows, plan.llm_columns};
}

ImageStore::ImageStore(const model::Model& model, int64_t pages)
    : width_(model.text().hidden_size), patch_size_(model.config().vision->patch_size) {
  const ImageSizes sizes(model.config());
  patches_.reserve(static_cast<size_t>(sizes.pixel_bytes));
  rows_.resize(static_cast<size_t>(sizes.max_rows * width_));
  memory_.resize(static_cast<size_t>(pages * ImageSizes::kPageRows * width_));
  entries_.resize(static_cast<size_t>(pages));
  for (int64_t page = pages; page > 0; --page) {
    free_pages_.push_back(static_cast<int32_t>(page - 1));
  }
}

Result<std::unique_ptr<ImageStore>> ImageStore::create(const model::Model& model,
                                                       const kernels::Ops& ops, Team& team,
                                                       int64_t pages) {
  CEDRA_ASSIGN(auto tower, model::VisionTower::create(model, ops, team));
  std::unique_ptr<ImageStore> store(new ImageStore(model, pages));
  store->tower_ = std::move(tower);
  return store;
}

ImageStore::Entry ImageStore::hold(const image::Prepared& image) {
  const auto used = [](const Image& entry) { return !entry.pages.empty(); };
  for (Image& entry : entries_) {
    if (!used(entry) || entry.key != image.key) continue;
    ++entry.holders;
    entry.used = ++clock_;
    ++reused_;
    return static_cast<Entry>(&entry - entries_.data());
  }
  const int64_t rows = grid_of(image.plan).image_tokens();
  const auto pages =
      static_cast<size_t>((rows + ImageSizes::kPageRows - 1) / ImageSizes::kPageRows);
  while (free_pages_.size() < pages) {
    Image* oldest = nullptr;
    for (Image& entry : entries_) {
      if (!used(entry) || entry.holders > 0) continue;
      if (oldest == nullptr || entry.used < oldest->used) oldest = &entry;
    }
    if (oldest == nullptr) return kNone;
    drop(static_cast<Entry>(oldest - entries_.data()));
  }
  Image& entry = *std::ranges::find_if_not(entries_, used);
  entry.key = image.key;
  entry.rows = rows;
  entry.holders = 1;
  entry.used = ++clock_;
  entry.pages.assign(free_pages_.end() - static_cast<std::ptrdiff_t>(pages), free_pages_.end());
  free_pages_.resize(free_pages_.size() - pages);
  return static_cast<Entry>(&entry - entries_.data());
}

void ImageStore::release(Entry id) {
  Image& entry = entries_[static_cast<size_t>(id)];
  assert(entry.holders > 0);
  // Nobody waits for what is not finished.
  if (--entry.holders == 0 && !entry.ready) drop(id);
}

void ImageStore::drop(Entry id) {
  Image& entry = entries_[static_cast<size_t>(id)];
  free_pages_.insert(free_pages_.end(), entry.pages.begin(), entry.pages.end());
  entry = {};
  if (under_way_ == id) under_way_ = kNone;
}

Result<> ImageStore::work_on(Entry id, const image::Prepared& image) {
  if (under_way_ == kNone) {
    const std::vector<uint16_t> values = image::patchify(image.pixels, patch_size_);
    patches_.clear();
    for (const uint16_t bits : values) patches_.push_back(bf16{bits});
    CEDRA_TRY(tower_->start(patches_, grid_of(image.plan)));
    under_way_ = id;
    return {};
  }
  if (!tower_->advance(rows_.data())) return {};
  keep_rows(entries_[static_cast<size_t>(under_way_)]);
  under_way_ = kNone;
  ++encoded_;
  return {};
}

void ImageStore::keep_rows(Image& image) {
  for (size_t page = 0; page < image.pages.size(); ++page) {
    const int64_t first = static_cast<int64_t>(page) * ImageSizes::kPageRows;
    const int64_t count = std::min(ImageSizes::kPageRows, image.rows - first);
    std::copy_n(rows_.data() + first * width_, count * width_,
                memory_.data() + image.pages[page] * ImageSizes::kPageRows * width_);
  }
  image.ready = true;
}

const bf16* ImageStore::row(Entry id, int64_t token) const {
  const Image& entry = entries_[static_cast<size_t>(id)];
  assert(entry.ready && token < entry.rows);
  const int64_t page = entry.pages[static_cast<size_t>(token / ImageSizes::kPageRows)];
  return memory_.data() + (page * ImageSizes::kPageRows + token % ImageSizes::kPageRows) * width_;
}

}  // namespace cedra::engine

// Images of running requests: encoded between steps, in pieces, in the order in which prompts reach
// them; their rows go into the steps that cover their spans.
#include <algorithm>

#include "engine/clock.h"
#include "engine/local_engine.h"

namespace cedra::engine {

// Before the prefix is looked up: the ids in the slot stand for the images from here on.
void LocalEngine::take_images(Job& job) {
  mark_images(job.request.images, *job.tokens);
  for (ImageSpan& span : job.request.images) {
    const model::ImageGrid grid = grid_of(span.image->plan);
    job.images.push_back({.begin = span.position,
                          .end = span.position + grid.span_tokens(),
                          .grid = grid,
                          .image = std::move(span.image)});
  }
  job.request.images.clear();
}

void LocalEngine::drop_pixels(std::shared_ptr<const image::Prepared>& image) {
  if (image == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    pixels_.remove(image);
  }
  image.reset();
}

// Spans that end at or before `position` are done with.
void LocalEngine::leave_images(Job& job, int64_t position) {
  for (ImageSpan& span : job.request.images) {  // of a request that never ran
    drop_pixels(span.image);
  }
  job.request.images.clear();
  for (; job.next_image < job.images.size() && job.images[job.next_image].end <= position;
       ++job.next_image) {
    SpanUse& span = job.images[job.next_image];
    drop_pixels(span.image);
    if (span.entry != ImageStore::kNone) images_->release(span.entry);
    span.entry = ImageStore::kNone;
  }
}

// Rows of the prompt that can run: up to the first image that is not encoded.
int64_t LocalEngine::rows_ready(const Job& job) const {
  for (size_t i = job.next_image; i < job.images.size(); ++i) {
    const SpanUse& span = job.images[i];
    if (span.entry != ImageStore::kNone && images_->ready(span.entry)) continue;
    return std::max<int64_t>(span.begin - job.sequence->length, 0);
  }
  return job.prompt_size - job.sequence->length;
}

// Finds the images that the next steps may reach, and does one piece of work on the first that is
// not encoded. A request holds its images in order, so one of those that hold room can always go
// on.
void LocalEngine::encode_images() {
  const Clock::time_point begin = Clock::now();
  for (const auto& job : running_) {
    const int64_t reach = job->sequence->length + options_.max_num_batched_tokens;
    for (size_t i = job->next_image; i < job->images.size(); ++i) {
      SpanUse& span = job->images[i];
      if (span.begin >= reach) break;
      if (span.entry == ImageStore::kNone) span.entry = images_->hold(*span.image);
      if (span.entry == ImageStore::kNone) break;  // no room yet
      if (!images_->ready(span.entry)) {
        const Result<> worked = images_->work_on(span.entry, *span.image);
        totals_.forward_seconds += seconds_since(begin);
        if (!worked) {
          finish(*job, FinishReason::kError, std::nullopt, worked.error());
          std::erase_if(running_, [](const auto& other) { return other->sink == nullptr; });
          return;
        }
        if (!images_->ready(span.entry)) return;
      }
      drop_pixels(span.image);
    }
  }
}

// The rows of image spans among the next `segment.tokens`.
void LocalEngine::place_images(const Job& job, model::Segment& segment) {
  const int64_t begin = job.sequence->length;
  const auto count = static_cast<int64_t>(segment.tokens.size());
  if (job.next_image >= job.images.size() || job.images[job.next_image].begin >= begin + count) {
    return;
  }
  // Behind the rows of the segments before; never more in all than a step has rows.
  const size_t first = row_kinds_.size();
  row_kinds_.resize(first + segment.tokens.size(), model::RowKind::kText);
  row_embeddings_.resize(first + segment.tokens.size(), nullptr);
  for (size_t i = job.next_image; i < job.images.size(); ++i) {
    const SpanUse& span = job.images[i];
    for (int64_t p = std::max(span.begin, begin); p < std::min(span.end, begin + count); ++p) {
      const size_t at = first + static_cast<size_t>(p - begin);
      row_kinds_[at] = model::RowKind::kImage;
      row_embeddings_[at] = span_row(model_->weights(), *images_, span, p - span.begin);
    }
  }
  segment.kinds = std::span(row_kinds_).subspan(first);
  segment.embeddings = std::span(row_embeddings_).subspan(first);
}

}  // namespace cedra::engine

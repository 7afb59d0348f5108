// The k best of a stream of scored rows, in bounded memory: a context of a million rows is never
// held as one score buffer (spec kv_cache.md 8).
//
// Total order: higher score first, then lower index. Rows are pushed in ascending index order, so a
// row that only ties with the k-th best so far can never enter.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace cedra::model {

struct Scored {
  float score;
  int32_t index;
};

inline bool better(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

class RunningTopK {
 public:
  // storage has room for capacity(k) entries and outlives this.
  static int64_t capacity(int64_t k) { return 2 * k + 64; }
  RunningTopK(Scored* storage, int64_t k) : items_(storage), k_(k), capacity_(capacity(k)) {}

  void push(float score, int32_t index) {
    if (full_ && !(score > threshold_)) return;
    if (size_ == capacity_) {
      prune();
      if (!(score > threshold_)) return;
    }
    items_[size_++] = {score, index};
  }

  void push_run(const float* scores, int64_t first_index, int64_t n) {
    for (int64_t i = 0; i < n; ++i) push(scores[i], static_cast<int32_t>(first_index + i));
  }

  // The min(k, pushed) best, sorted by index ascending; the storage's front.
  int64_t finish() {
    if (size_ > k_) prune();
    std::sort(items_, items_ + size_,
              [](const Scored& a, const Scored& b) { return a.index < b.index; });
    return size_;
  }
  const Scored* items() const { return items_; }

 private:
  void prune() {
    if (k_ > 0) {
      std::nth_element(items_, items_ + (k_ - 1), items_ + size_, better);
      threshold_ = items_[k_ - 1].score;
    }
    size_ = std::min(size_, k_);
    full_ = true;
  }

  Scored* items_;
  int64_t k_;
  int64_t capacity_;
  int64_t size_ = 0;
  bool full_ = false;  // k entries at or above threshold_ are kept
  float threshold_ = 0;
};

}  // namespace cedra::model

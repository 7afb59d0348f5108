// From token ids to rows of the Engram tables (spec model.md 5.3). Depends on ids only, so rows can
// be fetched long before the layer runs. Immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"

namespace cedra::model {

class EngramHasher {
 public:
  // Compressed id at image positions; look-back stops there.
  static constexpr int32_t kDead = -1;

  // Whether these make a hasher: the map covers the vocabulary and the pad token, its values stay
  // below engram_compressed_vocab_size, and the tables have as many rows as the primes ask for.
  static Result<> check(const TextConfig& text, std::span<const int32_t> token_map);

  // What check() accepts. token_map: compressed id of every token id (text::compressed_token_map).
  EngramHasher(const TextConfig& text, std::vector<int32_t> token_map);

  int64_t tables() const { return static_cast<int64_t>(tables_.size()); }
  // Rows per table and position: (max_ngram_size - 1) * heads.
  int64_t columns() const { return columns_; }
  // How many of the ids before a chunk its rows depend on.
  int64_t look_back() const { return max_ngram_size_ - 1; }
  // Token ids that compress() accepts: 0 .. map_size() - 1.
  int64_t map_size() const { return static_cast<int64_t>(token_map_.size()); }

  int32_t compress(int64_t token_id, bool is_image) const {
    return is_image ? kDead : token_map_[static_cast<size_t>(token_id)];
  }

  // Writes the rows of positions first .. end of `compressed_ids`: int64 [T, tables, columns]. The
  // ids before `first` are the look-back: at least look_back() of them, or all since the start of
  // the sequence.
  void rows(std::span<const int32_t> compressed_ids, int64_t first, int64_t* out) const;

 private:
  struct Table {
    std::vector<int64_t> multipliers;  // [max_ngram_size]
    std::vector<int64_t> primes;       // [columns]
    std::vector<int64_t> offsets;      // [columns], exclusive sums of the primes
  };

  std::vector<int32_t> token_map_;
  std::vector<Table> tables_;
  int64_t max_ngram_size_ = 0;
  int64_t heads_ = 0;
  int64_t columns_ = 0;
  int64_t pad_ = 0;  // compressed
};

}  // namespace cedra::model

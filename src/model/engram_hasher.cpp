// Hashing of n-grams (engram_hasher.h).
#include "model/engram_hasher.h"

#include "checkpoint/engram_primes.h"
#include "model/engram_rng.h"

namespace cedra::model {

Result<> EngramHasher::check(const TextConfig& text, std::span<const int32_t> token_map) {
  const auto map_size = static_cast<int64_t>(token_map.size());
  if (map_size < text.vocab_size || text.engram_pad_token_id < 0 ||
      text.engram_pad_token_id >= map_size) {
    return err(Code::kCorrupt,
               "the compressed token map has {} entries, expected vocab_size {} with the "
               "engram_pad_token_id {} among them",
               map_size, text.vocab_size, text.engram_pad_token_id);
  }
  // Up to 2^29 the multipliers come from NumPy's 64-bit path.
  if (text.engram_compressed_vocab_size < 1 || text.engram_compressed_vocab_size > int64_t{1}
                                                                                       << 29) {
    return err(Code::kUnsupported, "engram_compressed_vocab_size must be in 1..2^29, found {}",
               text.engram_compressed_vocab_size);
  }
  for (size_t id = 0; id < token_map.size(); ++id) {
    if (token_map[id] < 0 || token_map[id] >= text.engram_compressed_vocab_size) {
      return err(Code::kCorrupt,
                 "the compressed token map gives {} for token {}, expected a number below "
                 "engram_compressed_vocab_size {}",
                 token_map[id], id, text.engram_compressed_vocab_size);
    }
  }
  const auto primes = engram_table_primes(text);
  for (size_t table = 0; table < primes.size(); ++table) {
    int64_t rows = 0;
    for (const auto& heads : primes[table]) {
      for (const int64_t prime : heads) rows += prime;
    }
    if (table >= text.engram_num_embeddings.size() || text.engram_num_embeddings[table] != rows) {
      return err(Code::kCorrupt, "engram_num_embeddings[{}] must be {}, the sum of the primes",
                 table, rows);
    }
  }
  return {};
}

EngramHasher::EngramHasher(const TextConfig& text, std::vector<int32_t> token_map)
    : token_map_(std::move(token_map)),
      max_ngram_size_(text.engram_max_ngram_size),
      heads_(text.engram_n_heads),
      columns_(text.engram_columns()),
      pad_(token_map_[static_cast<size_t>(text.engram_pad_token_id)]) {
  const auto primes = engram_table_primes(text);
  for (size_t index = 0; index < primes.size(); ++index) {
    Table table;
    table.multipliers = engram_multipliers(text.engram_layer_ids[index],
                                           text.engram_compressed_vocab_size, max_ngram_size_);
    int64_t offset = 0;
    for (const auto& heads : primes[index]) {
      for (const int64_t prime : heads) {
        table.primes.push_back(prime);
        table.offsets.push_back(offset);
        offset += prime;
      }
    }
    tables_.push_back(std::move(table));
  }
}

void EngramHasher::rows(std::span<const int32_t> compressed_ids, int64_t first,
                        int64_t* out) const {
  const auto count = static_cast<int64_t>(compressed_ids.size());
  for (int64_t position = first; position < count; ++position) {
    for (const Table& table : tables_) {
      bool blocked = false;  // sticky: past a dead slot or the start, every older slot is the pad
      int64_t mixed = 0;     // products are below 2^63, so is their exclusive or
      size_t column = 0;
      for (int64_t back = 0; back < max_ngram_size_; ++back) {
        const int64_t source = position - back;
        blocked |= source < 0 || compressed_ids[static_cast<size_t>(source)] == kDead;
        const int64_t value = blocked ? pad_ : compressed_ids[static_cast<size_t>(source)];
        mixed ^= value * table.multipliers[static_cast<size_t>(back)];
        if (back == 0) continue;
        for (int64_t head = 0; head < heads_; ++head, ++column) {
          *out++ = mixed % table.primes[column] + table.offsets[column];
        }
      }
    }
  }
}

}  // namespace cedra::model

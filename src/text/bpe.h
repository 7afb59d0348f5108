// Byte-pair encoding of one piece by merge rank: lowest rank first, leftmost first among equals
// (spec chat.md 1.2, step 3). Owns the pair table and the table of pieces that come out as one
// token; does not know about splits or added tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace cedra::text {

// Working memory of a caller, reused from piece to piece. One per thread.
struct BpeScratch {
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
  std::vector<uint64_t> heap;
  uint64_t steps = 0;  // pair look-ups so far; a piece of n bytes takes at most 3 n
};

class Bpe {
 public:
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t result = 0;
  };

  // `byte_ids`: the token of each byte. `merges` in rank order; a pair may occur once. Ids are
  // non-negative.
  static Result<Bpe> build(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges);

  // Registers `bytes` as token `id` if merging these bytes gives exactly that token, so that
  // encode() finds it at once. The bytes must outlive this object.
  void add_whole_piece(std::string_view bytes, int32_t id, BpeScratch* scratch);

  // Appends the tokens of a non-empty piece.
  void encode(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const;

 private:
  // Pieces up to this many bytes are merged by looking through all pairs, longer ones with a heap.
  static constexpr size_t kShortPiece = 48;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Pair {
    int32_t left = -1;  // -1: an empty slot
    int32_t right = -1;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  struct Whole {
    std::string_view bytes;  // empty: an empty slot
    int32_t id = 0;
  };

  const Pair* find(int32_t left, int32_t right) const;
  uint32_t rank(int32_t left, int32_t right) const;
  int32_t find_whole(std::string_view piece) const;  // -1: none
  void grow_wholes();
  void merge(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const;
  void merge_short(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const;
  void merge_long(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Pair> pairs_;  // open addressing, at most half full
  // One bit for each pair's hash, about 16 bits per pair: most look-ups are of pairs that do not
  // merge, and this answers them from a quarter of a megabyte instead of four.
  std::vector<uint64_t> filter_;
  std::vector<int32_t> results_;  // [merges] by rank
  std::vector<Whole> wholes_;     // open addressing, at most half full
  size_t whole_count_ = 0;
  size_t longest_whole_ = 0;
};

}  // namespace cedra::text

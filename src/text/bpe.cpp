// Merging by rank. Short pieces: look for the lowest rank, merge, repeat. Long pieces: a linked
// list of symbols and a heap of (rank, position), so that a megabyte of one letter takes n log n.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace cedra::text {
namespace {

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads any pattern of bits

uint64_t mix(uint64_t value) {
  value *= kOdd;
  return value ^ value >> 32;
}

uint64_t pair_hash(int32_t left, int32_t right) {
  return mix(static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
             static_cast<uint32_t>(right));
}

// The slot of a pair comes from the low bits of its hash, the bit in the filter from the high ones.
uint64_t filter_bit(uint64_t hash, size_t filter_words) {
  return hash >> 32 & (filter_words * 64 - 1);
}

uint64_t bytes_hash(std::string_view bytes) {
  uint64_t hash = bytes.size();
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash ^ word);
    bytes.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return mix(mix(hash ^ rest));
}

}  // namespace

Result<Bpe> Bpe::build(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges) {
  Bpe bpe;
  bpe.byte_ids_ = byte_ids;
  bpe.pairs_.resize(std::bit_ceil(2 * merges.size() + 2));
  bpe.filter_.resize(std::bit_ceil(merges.size() / 4 + 1));
  bpe.results_.reserve(merges.size());
  const size_t mask = bpe.pairs_.size() - 1;
  for (const Merge& merge : merges) {
    const uint64_t hash = pair_hash(merge.left, merge.right);
    const uint64_t bit = filter_bit(hash, bpe.filter_.size());
    bpe.filter_[bit / 64] |= uint64_t{1} << bit % 64;
    size_t slot = hash & mask;
    for (; bpe.pairs_[slot].left >= 0; slot = (slot + 1) & mask) {
      if (bpe.pairs_[slot].left == merge.left && bpe.pairs_[slot].right == merge.right) {
        return err(Code::kCorrupt, "merges {} and {} join the same pair of tokens ({}, {})",
                   bpe.pairs_[slot].rank, bpe.results_.size(), merge.left, merge.right);
      }
    }
    const auto rank = static_cast<uint32_t>(bpe.results_.size());
    bpe.pairs_[slot] = {merge.left, merge.right, rank, merge.result};
    bpe.results_.push_back(merge.result);
  }
  bpe.wholes_.resize(2);
  return bpe;
}

const Bpe::Pair* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t hash = pair_hash(left, right);
  const uint64_t bit = filter_bit(hash, filter_.size());
  if ((filter_[bit / 64] >> bit % 64 & 1) == 0) return nullptr;
  const size_t mask = pairs_.size() - 1;
  for (size_t slot = hash & mask; pairs_[slot].left >= 0; slot = (slot + 1) & mask) {
    if (pairs_[slot].left == left && pairs_[slot].right == right) return &pairs_[slot];
  }
  return nullptr;
}

uint32_t Bpe::rank(int32_t left, int32_t right) const {
  const Pair* pair = find(left, right);
  return pair ? pair->rank : kNoRank;
}

int32_t Bpe::find_whole(std::string_view piece) const {
  if (piece.size() > longest_whole_) return -1;
  const size_t mask = wholes_.size() - 1;
  for (size_t slot = bytes_hash(piece) & mask; !wholes_[slot].bytes.empty();
       slot = (slot + 1) & mask) {
    if (wholes_[slot].bytes == piece) return wholes_[slot].id;
  }
  return -1;
}

void Bpe::grow_wholes() {
  std::vector<Whole> old(wholes_.size() * 2);
  old.swap(wholes_);
  const size_t mask = wholes_.size() - 1;
  for (const Whole& whole : old) {
    if (whole.bytes.empty()) continue;
    size_t slot = bytes_hash(whole.bytes) & mask;
    while (!wholes_[slot].bytes.empty()) slot = (slot + 1) & mask;
    wholes_[slot] = whole;
  }
}

void Bpe::add_whole_piece(std::string_view bytes, int32_t id, BpeScratch* scratch) {
  if (bytes.empty() || find_whole(bytes) >= 0) return;
  std::vector<int32_t> merged;
  merge(bytes, scratch, &merged);
  if (merged.size() != 1 || merged[0] != id) return;
  if (2 * (whole_count_ + 1) > wholes_.size()) grow_wholes();
  const size_t mask = wholes_.size() - 1;
  size_t slot = bytes_hash(bytes) & mask;
  while (!wholes_[slot].bytes.empty()) slot = (slot + 1) & mask;
  wholes_[slot] = {bytes, id};
  ++whole_count_;
  longest_whole_ = std::max(longest_whole_, bytes.size());
}

void Bpe::encode(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const {
  if (const int32_t id = find_whole(piece); id >= 0) {
    out->push_back(id);
    return;
  }
  merge(piece, scratch, out);
}

void Bpe::merge(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const {
  if (piece.size() <= kShortPiece) {
    merge_short(piece, scratch, out);
  } else {
    merge_long(piece, scratch, out);
  }
}

void Bpe::merge_short(std::string_view piece, BpeScratch* scratch,
                      std::vector<int32_t>* out) const {
  std::array<int32_t, kShortPiece> ids;
  std::array<uint32_t, kShortPiece> ranks;  // of the pair (i, i + 1)
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  scratch->steps += count;
  while (count > 1) {
    const size_t at = static_cast<size_t>(
        std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(count - 1)) -
        ranks.begin());
    if (ranks[at] == kNoRank) break;
    ids[at] = results_[ranks[at]];
    // Symbol at + 1 goes, and the pair that began with it.
    std::copy(ids.begin() + static_cast<ptrdiff_t>(at) + 2,
              ids.begin() + static_cast<ptrdiff_t>(count),
              ids.begin() + static_cast<ptrdiff_t>(at) + 1);
    if (at + 2 < count) {
      std::copy(ranks.begin() + static_cast<ptrdiff_t>(at) + 2,
                ranks.begin() + static_cast<ptrdiff_t>(count) - 1,
                ranks.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    --count;
    if (at + 1 < count) ranks[at] = rank(ids[at], ids[at + 1]);
    if (at > 0) ranks[at - 1] = rank(ids[at - 1], ids[at]);
    scratch->steps += 2;
  }
  out->insert(out->end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
}

void Bpe::merge_long(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* out) const {
  // Positions are 32-bit; a longer piece is refused far above (the tokenizer bounds its input).
  const auto count = static_cast<uint32_t>(piece.size());
  auto& ids = scratch->ids;
  auto& ranks = scratch->ranks;
  auto& next = scratch->next;
  auto& previous = scratch->previous;
  auto& heap = scratch->heap;
  ids.resize(count);
  ranks.assign(count, kNoRank);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  // The top of the heap is the lowest (rank, position). An entry is stale if its pair has another
  // rank by now.
  const auto entry = [](uint32_t rank_of_pair, uint32_t position) {
    return static_cast<uint64_t>(rank_of_pair) << 32 | position;
  };
  for (uint32_t i = 0; i + 1 < count; ++i) {
    ranks[i] = rank(ids[i], ids[i + 1]);
    if (ranks[i] != kNoRank) heap.push_back(entry(ranks[i], i));
  }
  scratch->steps += count;
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](uint32_t i) {
    const uint32_t now = next[i] < count ? rank(ids[i], ids[next[i]]) : kNoRank;
    ++scratch->steps;
    if (now == ranks[i]) return;  // its entry, if any, still stands
    ranks[i] = now;
    if (now == kNoRank) return;
    heap.push_back(entry(now, i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto position = static_cast<uint32_t>(top);
    const auto merged_rank = static_cast<uint32_t>(top >> 32);
    if (ranks[position] != merged_rank) continue;
    const uint32_t gone = next[position];
    ids[position] = results_[merged_rank];
    next[position] = next[gone];
    if (next[gone] < count) previous[next[gone]] = position;
    ranks[gone] = kNoRank;
    ranks[position] = kNoRank;  // this entry is used up; update() files the new pair
    update(position);
    if (position > 0) update(previous[position]);
  }
  for (uint32_t i = 0; i < count; i = next[i]) out->push_back(ids[i]);
}

}  // namespace cedra::text

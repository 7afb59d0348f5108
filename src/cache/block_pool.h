// A fixed pool of cache blocks with reference counts: one per sequence that reads a block, and a
// mark of its own for the prefix cache. A block is free when it has neither.
//
// Ownership: the engine thread alone takes and releases blocks; kernels only read and write the
// bytes of blocks that a running sequence holds. The memory is reserved once, at construction;
// nothing grows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/pages.h"
#include "base/result.h"
#include "cache/layout.h"

namespace cedra::cache {

using BlockId = int32_t;

class BlockPool {
 public:
  // kExhausted if the memory cannot be had.
  static Result<BlockPool> create(const CacheLayout& layout, int64_t blocks);
  BlockPool(BlockPool&& other) noexcept;
  BlockPool& operator=(BlockPool&&) = delete;

  const CacheLayout& layout() const { return layout_; }
  int64_t size() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_count() const { return static_cast<int64_t>(free_.size()); }

  // A block with one reference, or -1 if none is free.
  BlockId take();
  // One more reference to a block that is not free.
  void retain(BlockId id) { used_ += references_[static_cast<size_t>(id)]++ == 0; }
  // Gives one reference back; true if the block is free again: it was the last, and the prefix
  // cache does not hold the block.
  bool release(BlockId id);
  // References of sequences.
  int32_t references(BlockId id) const { return references_[static_cast<size_t>(id)]; }
  // Blocks with a reference.
  int64_t used_count() const { return used_; }

  // The prefix cache takes hold of a block, or lets go of it.
  void hold(BlockId id) { held_[static_cast<size_t>(id)] = true; }
  void unhold(BlockId id);

  uint8_t* data(BlockId id) { return memory_.data() + id * layout_.block_bytes; }
  const uint8_t* data(BlockId id) const { return memory_.data() + id * layout_.block_bytes; }
  // Of all blocks; reserved only, until somebody populates it (base/pages.h).
  std::span<uint8_t> memory() { return memory_.bytes(); }

 private:
  BlockPool() = default;
  CacheLayout layout_;
  Pages memory_;
  std::vector<int32_t> references_;
  std::vector<bool> held_;
  int64_t used_ = 0;
  std::vector<BlockId> free_;  // a stack: the block used last is taken first, it is still in cache
};

}  // namespace cedra::cache

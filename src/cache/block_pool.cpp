#include "cache/block_pool.h"

#include <cassert>
#include <utility>

namespace cedra::cache {

Result<BlockPool> BlockPool::create(const CacheLayout& layout, int64_t blocks) {
  if (blocks <= 0) return err(Code::kInvalid, "the cache needs at least one block, got {}", blocks);
  BlockPool pool;
  pool.layout_ = layout;
  Result<Pages> memory = Pages::reserve(layout.block_bytes * blocks);
  if (!memory.has_value()) {
    return err(Code::kExhausted, "{} cache blocks: {}", blocks, memory.error().message);
  }
  pool.memory_ = std::move(*memory);
  pool.references_.assign(static_cast<size_t>(blocks), 0);
  pool.held_.assign(static_cast<size_t>(blocks), false);
  pool.free_.reserve(static_cast<size_t>(blocks));
  for (int64_t id = blocks - 1; id >= 0; --id) pool.free_.push_back(static_cast<BlockId>(id));
  return pool;
}

BlockPool::BlockPool(BlockPool&& other) noexcept
    : layout_(std::move(other.layout_)),
      memory_(std::move(other.memory_)),
      references_(std::move(other.references_)),
      held_(std::move(other.held_)),
      used_(std::exchange(other.used_, 0)),
      free_(std::move(other.free_)) {}

BlockId BlockPool::take() {
  if (free_.empty()) return -1;
  const BlockId id = free_.back();
  free_.pop_back();
  assert(references_[static_cast<size_t>(id)] == 0 && !held_[static_cast<size_t>(id)]);
  references_[static_cast<size_t>(id)] = 1;
  ++used_;
  return id;
}

bool BlockPool::release(BlockId id) {
  int32_t& count = references_[static_cast<size_t>(id)];
  assert(count > 0);
  if (--count > 0) return false;
  --used_;
  if (held_[static_cast<size_t>(id)]) return false;
  free_.push_back(id);
  return true;
}

void BlockPool::unhold(BlockId id) {
  assert(held_[static_cast<size_t>(id)]);
  held_[static_cast<size_t>(id)] = false;
  if (references_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

}  // namespace cedra::cache

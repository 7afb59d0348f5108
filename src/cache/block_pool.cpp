#include "cache/block_pool.h"

#include <sys/mman.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace cedra::cache {

Result<BlockPool> BlockPool::create(const CacheLayout& layout, int64_t blocks) {
  if (blocks <= 0) return err(Code::kInvalid, "the cache needs at least one block, got {}", blocks);
  BlockPool pool;
  pool.layout_ = layout;
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(layout.block_bytes * blocks, 1));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return err(Code::kExhausted, "cannot reserve {} bytes for {} cache blocks: {}", bytes, blocks,
               std::strerror(errno));
  }
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: fewer TLB misses where it is granted
  pool.memory_ = static_cast<uint8_t*>(memory);
  pool.mapped_bytes_ = bytes;
  pool.references_.assign(static_cast<size_t>(blocks), 0);
  pool.held_.assign(static_cast<size_t>(blocks), false);
  pool.free_.reserve(static_cast<size_t>(blocks));
  for (int64_t id = blocks - 1; id >= 0; --id) pool.free_.push_back(static_cast<BlockId>(id));
  return pool;
}

BlockPool::BlockPool(BlockPool&& other) noexcept
    : layout_(std::move(other.layout_)),
      memory_(std::exchange(other.memory_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      references_(std::move(other.references_)),
      held_(std::move(other.held_)),
      used_(std::exchange(other.used_, 0)),
      free_(std::move(other.free_)) {}

BlockPool::~BlockPool() {
  if (memory_ != nullptr) ::munmap(memory_, mapped_bytes_);
}

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

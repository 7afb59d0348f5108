// Blocks and their reference counts, against a plain model of both.
#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

namespace cedra::cache {
namespace {

CacheLayout layout() {
  CacheLayout made;
  made.block_tokens = 4;
  made.block_bytes = 100;  // no power of two: neighbours must not overlap
  return made;
}

BlockPool pool_of(int64_t blocks) {
  Result<BlockPool> pool = BlockPool::create(layout(), blocks);
  EXPECT_TRUE(pool.has_value()) << (pool ? "" : pool.error().message);
  return std::move(*pool);
}

TEST(BlockPool, GivesEveryBlockOnceAndThenNone) {
  BlockPool pool = pool_of(7);
  EXPECT_EQ(pool.size(), 7);
  EXPECT_EQ(pool.free_count(), 7);
  std::set<BlockId> taken;
  for (int i = 0; i < 7; ++i) {
    const BlockId id = pool.take();
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 7);
    EXPECT_TRUE(taken.insert(id).second);
    EXPECT_EQ(pool.references(id), 1);
  }
  EXPECT_EQ(pool.free_count(), 0);
  EXPECT_EQ(pool.take(), -1);
}

TEST(BlockPool, LastReferenceFreesTheBlock) {
  BlockPool pool = pool_of(2);
  const BlockId id = pool.take();
  pool.retain(id);
  pool.retain(id);
  EXPECT_EQ(pool.references(id), 3);
  EXPECT_FALSE(pool.release(id));
  EXPECT_FALSE(pool.release(id));
  EXPECT_EQ(pool.free_count(), 1);
  EXPECT_TRUE(pool.release(id));
  EXPECT_EQ(pool.free_count(), 2);
  EXPECT_EQ(pool.take(), id) << "the block used last is taken first";
}

TEST(BlockPool, BlocksDoNotOverlap) {
  BlockPool pool = pool_of(5);
  for (BlockId id = 0; id < 5; ++id) std::memset(pool.data(id), id + 1, 100);
  for (BlockId id = 0; id < 5; ++id) {
    const BlockPool& read = pool;
    for (int i = 0; i < 100; ++i) ASSERT_EQ(read.data(id)[i], id + 1);
  }
}

TEST(BlockPool, MovingKeepsTheBlocks) {
  BlockPool pool = pool_of(3);
  const BlockId id = pool.take();
  pool.data(id)[99] = 42;
  BlockPool moved(std::move(pool));
  EXPECT_EQ(moved.references(id), 1);
  EXPECT_EQ(moved.free_count(), 2);
  EXPECT_EQ(moved.data(id)[99], 42);
}

TEST(BlockPool, FollowsAPlainModelOfCounts) {
  BlockPool pool = pool_of(16);
  std::map<BlockId, int> model;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    if (random() % 3 == 0 || model.empty()) {
      const BlockId id = pool.take();
      if (model.size() == 16) {
        ASSERT_EQ(id, -1);
      } else {
        ASSERT_TRUE(model.emplace(id, 1).second) << "block " << id << " was in use";
      }
      continue;
    }
    auto at = std::next(model.begin(), static_cast<int>(random() % model.size()));
    if (random() % 2 == 0) {
      pool.retain(at->first);
      ++at->second;
    } else {
      const bool last = --at->second == 0;
      ASSERT_EQ(pool.release(at->first), last);
      if (last) model.erase(at);
    }
    ASSERT_EQ(pool.free_count(), 16 - static_cast<int64_t>(model.size()));
    for (const auto& [id, count] : model) ASSERT_EQ(pool.references(id), count);
  }
}

TEST(BlockPool, RefusesNoBlocksAndMoreThanThereIs) {
  for (const int64_t blocks : {0, -1}) {
    const Result<BlockPool> pool = BlockPool::create(layout(), blocks);
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(pool.error().code, Code::kInvalid);
  }
  CacheLayout large = layout();
  large.block_bytes = int64_t{1} << 40;
  const Result<BlockPool> pool = BlockPool::create(large, int64_t{1} << 20);  // 2^60 bytes
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace cedra::cache

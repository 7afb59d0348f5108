// The prefix tree against a plain model of it, and its corners by hand.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>

#define XXH_INLINE_ALL  // for the secret: the collision below is built from it
#include <xxhash.h>

namespace cedra::cache {
namespace {

constexpr int64_t kBlock = 4;

CacheLayout layout() {
  CacheLayout made;
  made.block_tokens = kBlock;
  made.block_bytes = 64;
  made.layers = 2;
  made.window = 4;
  made.window_code_bytes = 32;
  made.window_scale_bytes = 1;
  return made;
}

using Tokens = std::vector<int32_t>;

class Cache {
 public:
  explicit Cache(int64_t blocks, int64_t windows = 0)
      : pool(std::move(*BlockPool::create(layout(), blocks))), prefix(pool, windows) {}

  // As the engine does it: own blocks, one after the other, published as they fill.
  std::vector<BlockId> run(const Tokens& tokens, uint64_t seed = 1) {
    std::vector<BlockId> blocks;
    NodeId parent = kNoNode;
    for (size_t i = 0; i + kBlock <= tokens.size(); i += kBlock) {
      if (pool.free_count() == 0) prefix.make_room(1);
      blocks.push_back(pool.take());
      EXPECT_GE(blocks.back(), 0);
      parent = prefix.publish(seed, parent, std::span(tokens).subspan(i, kBlock), blocks.back());
    }
    return blocks;
  }
  void release(const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) pool.release(block);
  }
  std::vector<NodeId> match(const Tokens& tokens, uint64_t seed = 1) {
    std::vector<NodeId> chain;
    prefix.match(seed, tokens, chain);
    return chain;
  }

  BlockPool pool;
  PrefixCache prefix;
};

Tokens sequence(int64_t count, int32_t first) {
  Tokens tokens(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    tokens[static_cast<size_t>(i)] = first + static_cast<int32_t>(i);
  }
  return tokens;
}

TEST(PrefixCache, FindsWholeBlocksOfTheLongestPrefix) {
  Cache cache(8);
  const std::vector<BlockId> blocks = cache.run(sequence(14, 0));
  ASSERT_EQ(blocks.size(), 3u);
  for (int64_t length = 0; length <= 14; ++length) {
    EXPECT_EQ(std::ssize(cache.match(sequence(length, 0))), std::min<int64_t>(length / kBlock, 3));
  }
  Tokens other = sequence(14, 0);
  other[6] = 99;
  const std::vector<NodeId> chain = cache.match(other);
  ASSERT_EQ(chain.size(), 1u);
  EXPECT_EQ(cache.prefix.block(chain[0]), blocks[0]);
  EXPECT_TRUE(cache.match(sequence(14, 1)).empty());
}

TEST(PrefixCache, TheSameBlockElsewhereIsAnotherBlock) {
  Cache cache(8);
  Tokens twice = sequence(4, 0);
  twice.insert(twice.end(), {0, 1, 2, 3});
  cache.run(twice);
  const std::vector<NodeId> chain = cache.match(twice);
  ASSERT_EQ(chain.size(), 2u);
  EXPECT_NE(chain[0], chain[1]);
}

TEST(PrefixCache, SeedsDoNotMeet) {
  Cache cache(8);
  const uint64_t a = PrefixCache::chain_seed("model", "alice");
  const uint64_t b = PrefixCache::chain_seed("model", "bob");
  EXPECT_NE(a, b);
  EXPECT_NE(a, PrefixCache::chain_seed("other", "alice"));
  cache.run(sequence(8, 0), a);
  EXPECT_EQ(cache.match(sequence(8, 0), a).size(), 2u);
  EXPECT_TRUE(cache.match(sequence(8, 0), b).empty());
}

// Two blocks with the same hash, made from XXH3's rule for 16 bytes: with the secret's two words
// folded in, low and high give length + swap(low) + high + fold(low * high). A zero in either half
// silences the product, so (0, x) and (swap(x), 0) meet.
TEST(PrefixCache, IdsDecideWhereHashesMeet) {
  constexpr uint64_t kSeed = 1;
  const auto word = [](int at) {
    uint64_t value = 0;
    std::memcpy(&value, XXH3_kSecret + at, sizeof value);
    return value;
  };
  const uint64_t flip_low = (word(24) ^ word(32)) + kSeed;
  const uint64_t flip_high = (word(40) ^ word(48)) - kSeed;
  const auto block = [&](uint64_t low, uint64_t high) {
    const uint64_t words[] = {low ^ flip_low, high ^ flip_high};
    Tokens tokens(kBlock);
    std::memcpy(tokens.data(), words, sizeof words);
    return tokens;
  };
  constexpr uint64_t kX = 0x0123456789ABCDEF;
  const Tokens a = block(0, kX);
  const Tokens b = block(__builtin_bswap64(kX), 0);
  ASSERT_NE(a, b);
  ASSERT_EQ(XXH3_64bits_withSeed(a.data(), 16, kSeed), XXH3_64bits_withSeed(b.data(), 16, kSeed));
  Cache cache(4);
  const std::vector<BlockId> blocks = cache.run(a, kSeed);
  EXPECT_TRUE(cache.match(b, kSeed).empty());
  cache.run(b, kSeed);
  ASSERT_EQ(cache.match(b, kSeed).size(), 1u);
  ASSERT_EQ(cache.match(a, kSeed).size(), 1u);
  EXPECT_EQ(cache.prefix.block(cache.match(a, kSeed)[0]), blocks[0]);
  EXPECT_NE(cache.prefix.block(cache.match(b, kSeed)[0]), blocks[0]);
}

TEST(PrefixCache, AnOlderBlockOfTheSameTokensStays) {
  Cache cache(8);
  const std::vector<BlockId> first = cache.run(sequence(4, 0));
  const std::vector<BlockId> second = cache.run(sequence(4, 0));
  EXPECT_NE(first, second);
  EXPECT_EQ(cache.prefix.block(cache.match(sequence(4, 0))[0]), first[0]);
  cache.release(second);
  EXPECT_EQ(cache.pool.free_count(), 7) << "the private copy is free at once";
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedAndTailsFirst) {
  Cache cache(6);
  cache.release(cache.run(sequence(12, 0)));     // 3 blocks
  cache.release(cache.run(sequence(12, 1000)));  // 3 blocks
  cache.prefix.touch(cache.match(sequence(12, 0)));
  EXPECT_EQ(cache.pool.free_count(), 0);
  EXPECT_EQ(cache.prefix.evictable(), 6);
  ASSERT_TRUE(cache.prefix.make_room(2));
  EXPECT_EQ(cache.match(sequence(12, 0)).size(), 3u);
  EXPECT_EQ(cache.match(sequence(12, 1000)).size(), 1u);
  ASSERT_TRUE(cache.prefix.make_room(4));
  EXPECT_TRUE(cache.match(sequence(12, 1000)).empty());
  EXPECT_EQ(cache.match(sequence(12, 0)).size(), 2u);
  cache.prefix.clear();
  EXPECT_EQ(cache.pool.free_count(), 6);
  EXPECT_EQ(cache.prefix.cached_blocks(), 0);
}

TEST(PrefixCache, BlocksInUseStay) {
  Cache cache(4);
  const std::vector<BlockId> used = cache.run(sequence(8, 0));
  cache.release(cache.run(sequence(8, 1000)));
  EXPECT_FALSE(cache.prefix.make_room(3));
  EXPECT_EQ(cache.pool.free_count(), 2);
  EXPECT_EQ(cache.match(sequence(8, 0)).size(), 2u);
  cache.release(used);
  EXPECT_TRUE(cache.prefix.make_room(4));
}

// Two sequences compute the same front at the same time; the one whose blocks the cache holds ends
// first. Its blocks are then above blocks in use, and must still be had when memory is short.
TEST(PrefixCache, ACachedFrontAboveBlocksInUseCanGo) {
  Cache cache(6);
  const std::vector<BlockId> first = cache.run(sequence(8, 0));    // held
  const std::vector<BlockId> second = cache.run(sequence(16, 0));  // 2 private, 2 held
  cache.release(first);
  EXPECT_EQ(cache.pool.free_count(), 0);
  EXPECT_EQ(cache.prefix.evictable(), 2);
  ASSERT_TRUE(cache.prefix.make_room(2));
  EXPECT_TRUE(cache.match(sequence(16, 0)).empty());
  EXPECT_EQ(cache.pool.used_count(), 4);
  for (const BlockId block : second) EXPECT_EQ(cache.pool.references(block), 1);
  cache.release(second);
  EXPECT_EQ(cache.pool.free_count(), 6);
}

TEST(PrefixCache, AStaleNodeIsKnownByItsGeneration) {
  Cache cache(1);
  cache.release(cache.run(sequence(4, 0)));
  const NodeId node = cache.match(sequence(4, 0))[0];
  const uint32_t generation = cache.prefix.generation(node);
  EXPECT_TRUE(cache.prefix.alive(node, generation));
  cache.release(cache.run(sequence(4, 50)));
  EXPECT_FALSE(cache.prefix.alive(node, generation));
  EXPECT_FALSE(cache.prefix.alive(kNoNode, 0));
}

TEST(PrefixCache, KeepsTheWindowsUsedLast) {
  Cache cache(8, 2);
  cache.run(sequence(12, 0));
  const std::vector<NodeId> chain = cache.match(sequence(12, 0));
  EXPECT_EQ(cache.prefix.deepest_window(chain), -1);
  uint8_t* first = cache.prefix.store_window(chain[0]);
  ASSERT_NE(first, nullptr);
  std::fill_n(first, cache.prefix.window_bytes(), uint8_t{7});
  ASSERT_NE(cache.prefix.store_window(chain[1]), nullptr);
  EXPECT_EQ(cache.prefix.deepest_window(chain), 1);
  EXPECT_EQ(cache.prefix.store_window(chain[0]), first) << "one record per node";
  EXPECT_EQ(cache.prefix.store_window(chain[2], false), nullptr) << "both are in use";
  // chain[0] was used last: chain[1] goes.
  cache.prefix.use_window(chain[1]);
  cache.prefix.use_window(chain[0]);
  ASSERT_NE(cache.prefix.store_window(chain[2]), nullptr);
  EXPECT_EQ(cache.prefix.window(chain[1]), nullptr);
  EXPECT_EQ(cache.prefix.window(chain[0])[0], 7);
  EXPECT_EQ(cache.prefix.deepest_window(chain), 2);
  cache.prefix.drop_window(chain[2]);
  EXPECT_EQ(cache.prefix.deepest_window(chain), 0);
  Cache none(2, 0);
  none.run(sequence(4, 0));
  EXPECT_EQ(none.prefix.store_window(none.match(sequence(4, 0))[0]), nullptr);
}

TEST(PrefixCache, AnEvictedBlockTakesItsWindowAlong) {
  Cache cache(1, 1);
  cache.release(cache.run(sequence(4, 0)));
  ASSERT_NE(cache.prefix.store_window(cache.match(sequence(4, 0))[0]), nullptr);
  cache.release(cache.run(sequence(4, 50)));
  const NodeId node = cache.match(sequence(4, 50))[0];
  EXPECT_EQ(cache.prefix.window(node), nullptr);
  EXPECT_NE(cache.prefix.store_window(node, false), nullptr) << "the record is free again";
}

// Random sequences over a tiny alphabet, so that they share, collide and evict all the time. The
// model: which token strings were published with which block, minus those whose block went away.
TEST(PrefixCache, FollowsAPlainModel) {
  constexpr int64_t kBlocks = 12;
  Cache cache(kBlocks, 3);
  std::mt19937 random(5);
  std::map<Tokens, BlockId> model;  // whole prefixes
  struct Running {
    Tokens tokens;
    std::vector<BlockId> blocks;
  };
  std::vector<Running> running;
  const auto forget = [&] {
    // What the cache no longer finds must have been taken from it by eviction: forget it.
    std::erase_if(model, [&](const auto& entry) {
      const std::vector<NodeId> chain = cache.match(entry.first);
      return std::ssize(chain) * kBlock < std::ssize(entry.first);
    });
  };
  int64_t hits = 0;
  for (int round = 0; round < 20000; ++round) {
    if (running.size() == 2 || (!running.empty() && random() % 2 == 0)) {
      const size_t at = random() % running.size();
      cache.release(running[at].blocks);
      running.erase(running.begin() + static_cast<ptrdiff_t>(at));
    } else {
      Running next;
      const size_t blocks = 1 + random() % 5;
      for (size_t i = 0; i < blocks * kBlock; ++i) {
        next.tokens.push_back(i % kBlock == 0 ? static_cast<int32_t>(random() % 2) : 0);
      }
      // Adopt the hit, compute the rest.
      const std::vector<NodeId> chain = cache.match(next.tokens);
      for (size_t i = 0; i < chain.size(); ++i) {
        const Tokens prefix(next.tokens.begin(),
                            next.tokens.begin() + static_cast<ptrdiff_t>((i + 1) * kBlock));
        ASSERT_TRUE(model.contains(prefix)) << "a hit on what was never published";
        ASSERT_EQ(model[prefix], cache.prefix.block(chain[i]));
        ++hits;
      }
      NodeId parent = kNoNode;
      std::vector<uint32_t> generations;
      for (const NodeId node : chain) {
        cache.pool.retain(cache.prefix.block(node));
        next.blocks.push_back(cache.prefix.block(node));
        parent = node;
      }
      cache.prefix.touch(chain);
      bool broken = false;
      while (next.blocks.size() < blocks) {
        if (cache.pool.free_count() == 0) {
          const uint32_t generation = parent == kNoNode ? 0 : cache.prefix.generation(parent);
          ASSERT_TRUE(cache.prefix.make_room(1));
          forget();
          broken = broken || (parent != kNoNode && !cache.prefix.alive(parent, generation));
        }
        next.blocks.push_back(cache.pool.take());
        if (broken) continue;
        const Tokens prefix(
            next.tokens.begin(),
            next.tokens.begin() + static_cast<ptrdiff_t>(next.blocks.size() * kBlock));
        parent =
            cache.prefix.publish(1, parent, std::span(prefix).last(kBlock), next.blocks.back());
        ASSERT_NE(parent, kNoNode);
        model.emplace(prefix, next.blocks.back());  // an older one stays
        if (random() % 3 == 0) cache.prefix.store_window(parent, random() % 2 == 0);
      }
      running.push_back(std::move(next));
    }
    // No block is both free and held, used or held twice.
    std::set<BlockId> used;
    for (const Running& one : running) used.insert(one.blocks.begin(), one.blocks.end());
    ASSERT_EQ(cache.pool.used_count(), std::ssize(used));
    std::set<BlockId> held;
    for (const auto& [tokens, block] : model) ASSERT_TRUE(held.insert(block).second);
    ASSERT_EQ(cache.prefix.cached_blocks(), std::ssize(held));
    used.insert(held.begin(), held.end());
    ASSERT_EQ(cache.pool.free_count(), kBlocks - std::ssize(used));
  }
  EXPECT_GT(hits, 1000);
  for (const Running& one : running) cache.release(one.blocks);
  cache.prefix.clear();
  EXPECT_EQ(cache.pool.free_count(), kBlocks);
}

}  // namespace
}  // namespace cedra::cache

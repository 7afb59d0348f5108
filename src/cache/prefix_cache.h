// Which blocks hold which tokens: a tree of full, immutable blocks, found by chained hashes and
// confirmed by their token ids (spec kv_cache.md 5).
//
// The cache holds its blocks in the pool; running sequences add references. Blocks that only the
// cache holds are evicted least recently used first, leaves before their parents.
// Engine thread only. All memory is taken at construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/block_pool.h"
#include "cache/sequence.h"

namespace cedra::cache {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

class PrefixCache {
 public:
  // window_records: how many window states (exact hits) are kept at most; each has room for
  // `extra_bytes` of the caller's after the windows.
  PrefixCache(BlockPool& pool, int64_t window_records, int64_t extra_bytes = 0);

  // Seed of a chain: hits happen only between requests with the same salt and fingerprint.
  static uint64_t chain_seed(std::string_view model_fingerprint, std::string_view salt);

  // The chain of cached blocks at the front of `tokens` (whole blocks only), root first. The nodes
  // stay valid until the next call that can evict (make_room, publish).
  void match(uint64_t seed, std::span<const int32_t> tokens, std::vector<NodeId>& chain) const;

  // Marks a chain as used now; parents count as newer than their children.
  void touch(std::span<const NodeId> chain);

  // Adds a full block that a sequence just finished as the child of `parent` (kNoNode at the
  // front) and holds it. Returns the node that now stands for these tokens: an
  // older block with the same content stays, and the caller's remains private.
  NodeId publish(uint64_t seed, NodeId parent, std::span<const int32_t> tokens, BlockId block);

  BlockId block(NodeId node) const { return nodes_[static_cast<size_t>(node)].block; }
  // A count that changes whenever the node stands for other tokens: tells a stale id from a live
  // one.
  uint32_t generation(NodeId node) const { return nodes_[static_cast<size_t>(node)].generation; }
  bool alive(NodeId node, uint32_t generation) const {
    return node != kNoNode && nodes_[static_cast<size_t>(node)].block >= 0 &&
           nodes_[static_cast<size_t>(node)].generation == generation;
  }

  // Evicts until the pool has `blocks` free, or only blocks in use are left. A block that only the
  // cache holds can lie above blocks in use (a sequence that computed the same tokens at the same
  // time as another keeps its own copy): when leaves are not enough, such a block goes too, and
  // what lies below it leaves the tree, though not the sequences.
  bool make_room(int64_t blocks);
  // Blocks that only the cache holds, in use by no sequence.
  int64_t evictable() const { return pool_.size() - pool_.free_count() - pool_.used_count(); }
  int64_t cached_blocks() const { return cached_; }
  // Drops everything that no sequence uses.
  void clear();

  // ---- window states at block borders, for exact hits

  // Deepest node of the chain with a window state, as an index into it, or -1.
  int64_t deepest_window(std::span<const NodeId> chain) const;
  // Memory for the windows at the end of `node`'s block ([L, W, record], slot p mod W). If none is
  // free, `replace` says whether the least recently used record may go; nullptr otherwise, or if
  // none are kept.
  uint8_t* store_window(NodeId node, bool replace = true);
  const uint8_t* window(NodeId node) const;
  // The same, and the record counts as used now.
  const uint8_t* use_window(NodeId node);
  void drop_window(NodeId node);
  int64_t window_bytes() const { return window_bytes_; }  // of a record, with what is extra

 private:
  struct Node {
    uint64_t hash = 0;
    NodeId parent = kNoNode;
    BlockId block = -1;  // -1: unused
    uint32_t generation = 0;
    NodeId first_child = kNoNode;
    NodeId next_sibling = kNoNode;
    NodeId previous_sibling = kNoNode;
    NodeId bucket_next = kNoNode;
    NodeId newer = kNoNode;  // use order, a doubly linked list
    NodeId older = kNoNode;
    int32_t window = -1;  // index of its record
  };
  struct Window {
    NodeId node = kNoNode;
    uint64_t used = 0;
  };

  uint64_t child_hash(uint64_t parent_hash, std::span<const int32_t> tokens) const;
  NodeId find(uint64_t hash, NodeId parent, std::span<const int32_t> tokens) const;
  std::span<const int32_t> node_tokens(NodeId node) const;
  void unlink(NodeId node);
  void link_newest(NodeId node);
  void evict(NodeId leaf);
  void evict_tree(NodeId root);

  BlockPool& pool_;
  int64_t block_tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // [nodes, B]
  std::vector<NodeId> free_nodes_;
  std::vector<NodeId> buckets_;
  NodeId newest_ = kNoNode;
  NodeId oldest_ = kNoNode;
  int64_t cached_ = 0;

  int64_t window_bytes_;
  std::vector<Window> windows_;
  std::unique_ptr<uint8_t[]> window_memory_;
  uint64_t clock_ = 0;
};

}  // namespace cedra::cache

#include "cache/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>

namespace cedra::cache {

PrefixCache::PrefixCache(BlockPool& pool, int64_t window_records, int64_t extra_bytes)
    : pool_(pool),
      block_tokens_(pool.layout().block_tokens),
      nodes_(static_cast<size_t>(pool.size())),
      tokens_(static_cast<size_t>(pool.size() * pool.layout().block_tokens)),
      buckets_(std::bit_ceil(static_cast<size_t>(2 * pool.size())), kNoNode),
      window_bytes_(pool.layout().layers * pool.layout().window *
                        pool.layout().window_record_bytes() +
                    extra_bytes),
      windows_(static_cast<size_t>(window_records)) {
  free_nodes_.reserve(nodes_.size());
  for (size_t i = nodes_.size(); i > 0; --i) free_nodes_.push_back(static_cast<NodeId>(i - 1));
  if (window_records > 0) {
    window_memory_.reset(new uint8_t[static_cast<size_t>(window_records * window_bytes_)]());
  }
}

uint64_t PrefixCache::chain_seed(std::string_view model_fingerprint, std::string_view salt) {
  const uint64_t model = XXH3_64bits(model_fingerprint.data(), model_fingerprint.size());
  return XXH3_64bits_withSeed(salt.data(), salt.size(), model);
}

uint64_t PrefixCache::child_hash(uint64_t parent_hash, std::span<const int32_t> tokens) const {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent_hash);
}

std::span<const int32_t> PrefixCache::node_tokens(NodeId node) const {
  return {tokens_.data() + static_cast<int64_t>(node) * block_tokens_,
          static_cast<size_t>(block_tokens_)};
}

NodeId PrefixCache::find(uint64_t hash, NodeId parent, std::span<const int32_t> tokens) const {
  for (NodeId id = buckets_[hash & (buckets_.size() - 1)]; id != kNoNode;
       id = nodes_[static_cast<size_t>(id)].bucket_next) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    // The ids are compared as well: a hash can collide, and hashes can be made to.
    if (node.hash == hash && node.parent == parent && std::ranges::equal(node_tokens(id), tokens)) {
      return id;
    }
  }
  return kNoNode;
}

void PrefixCache::match(uint64_t seed, std::span<const int32_t> tokens,
                        std::vector<NodeId>& chain) const {
  chain.clear();
  uint64_t hash = seed;
  NodeId parent = kNoNode;
  const size_t size = static_cast<size_t>(block_tokens_);
  for (size_t begin = 0; begin + size <= tokens.size(); begin += size) {
    const std::span<const int32_t> block = tokens.subspan(begin, size);
    hash = child_hash(hash, block);
    parent = find(hash, parent, block);
    if (parent == kNoNode) return;
    chain.push_back(parent);
  }
}

void PrefixCache::touch(std::span<const NodeId> chain) {
  for (size_t i = chain.size(); i > 0; --i) {
    unlink(chain[i - 1]);
    link_newest(chain[i - 1]);
  }
}

NodeId PrefixCache::publish(uint64_t seed, NodeId parent, std::span<const int32_t> tokens,
                            BlockId block) {
  assert(static_cast<int64_t>(tokens.size()) == block_tokens_);
  const uint64_t hash =
      child_hash(parent == kNoNode ? seed : nodes_[static_cast<size_t>(parent)].hash, tokens);
  const NodeId existing = find(hash, parent, tokens);
  if (existing != kNoNode) return existing;
  if (free_nodes_.empty()) return kNoNode;  // cannot happen: a node per block
  const NodeId id = free_nodes_.back();
  free_nodes_.pop_back();
  Node& node = nodes_[static_cast<size_t>(id)];
  node.hash = hash;
  node.parent = parent;
  node.block = block;
  node.first_child = kNoNode;
  node.next_sibling = kNoNode;
  node.previous_sibling = kNoNode;
  node.window = -1;
  ++node.generation;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<int64_t>(id) * block_tokens_);
  NodeId& bucket = buckets_[hash & (buckets_.size() - 1)];
  node.bucket_next = bucket;
  bucket = id;
  if (parent != kNoNode) {
    NodeId& first = nodes_[static_cast<size_t>(parent)].first_child;
    node.next_sibling = first;
    if (first != kNoNode) nodes_[static_cast<size_t>(first)].previous_sibling = id;
    first = id;
  }
  pool_.hold(block);
  link_newest(id);
  ++cached_;
  return id;
}

void PrefixCache::link_newest(NodeId id) {
  Node& node = nodes_[static_cast<size_t>(id)];
  node.newer = kNoNode;
  node.older = newest_;
  if (newest_ != kNoNode) nodes_[static_cast<size_t>(newest_)].newer = id;
  newest_ = id;
  if (oldest_ == kNoNode) oldest_ = id;
}

void PrefixCache::unlink(NodeId id) {
  Node& node = nodes_[static_cast<size_t>(id)];
  if (node.newer != kNoNode) nodes_[static_cast<size_t>(node.newer)].older = node.older;
  if (node.older != kNoNode) nodes_[static_cast<size_t>(node.older)].newer = node.newer;
  if (newest_ == id) newest_ = node.older;
  if (oldest_ == id) oldest_ = node.newer;
  node.newer = node.older = kNoNode;
}

void PrefixCache::evict(NodeId id) {
  Node& node = nodes_[static_cast<size_t>(id)];
  assert(node.first_child == kNoNode);
  drop_window(id);
  unlink(id);
  NodeId* link = &buckets_[node.hash & (buckets_.size() - 1)];
  while (*link != id) link = &nodes_[static_cast<size_t>(*link)].bucket_next;
  *link = node.bucket_next;
  if (node.next_sibling != kNoNode) {
    nodes_[static_cast<size_t>(node.next_sibling)].previous_sibling = node.previous_sibling;
  }
  if (node.previous_sibling != kNoNode) {
    nodes_[static_cast<size_t>(node.previous_sibling)].next_sibling = node.next_sibling;
  } else if (node.parent != kNoNode) {
    nodes_[static_cast<size_t>(node.parent)].first_child = node.next_sibling;
  }
  pool_.unhold(node.block);
  node.block = -1;
  ++node.generation;
  free_nodes_.push_back(id);
  --cached_;
}

// Leaves first, without recursion: chains are long.
void PrefixCache::evict_tree(NodeId root) {
  for (NodeId id = root;;) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    if (node.first_child != kNoNode) {
      id = node.first_child;
      continue;
    }
    const NodeId parent = node.parent;
    evict(id);
    if (id == root) return;
    id = parent;
  }
}

bool PrefixCache::make_room(int64_t blocks) {
  const auto unused = [&](const Node& node) { return pool_.references(node.block) == 0; };
  // Evicting a leaf can free its parent, which may lie behind in the order: start over then.
  NodeId id = oldest_;
  while (pool_.free_count() < blocks && id != kNoNode) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    const NodeId newer = node.newer;
    if (node.first_child == kNoNode && unused(node)) {
      const bool has_parent = node.parent != kNoNode;
      evict(id);
      id = has_parent ? oldest_ : newer;
    } else {
      id = newer;
    }
  }
  while (pool_.free_count() < blocks && evictable() > 0) {
    id = oldest_;
    while (!unused(nodes_[static_cast<size_t>(id)])) id = nodes_[static_cast<size_t>(id)].newer;
    evict_tree(id);
  }
  return pool_.free_count() >= blocks;
}

void PrefixCache::clear() { make_room(pool_.size()); }

int64_t PrefixCache::deepest_window(std::span<const NodeId> chain) const {
  for (size_t i = chain.size(); i > 0; --i) {
    if (nodes_[static_cast<size_t>(chain[i - 1])].window >= 0) return static_cast<int64_t>(i - 1);
  }
  return -1;
}

uint8_t* PrefixCache::store_window(NodeId id, bool replace) {
  if (windows_.empty() || id == kNoNode) return nullptr;
  Node& node = nodes_[static_cast<size_t>(id)];
  if (node.window < 0) {
    const auto slot = std::ranges::min_element(windows_, {}, [](const Window& window) {
      return window.node == kNoNode ? uint64_t{0} : window.used;
    });
    if (slot->node != kNoNode) {
      if (!replace) return nullptr;
      drop_window(slot->node);
    }
    slot->node = id;
    node.window = static_cast<int32_t>(slot - windows_.begin());
  }
  windows_[static_cast<size_t>(node.window)].used = ++clock_;
  return window_memory_.get() + node.window * window_bytes_;
}

const uint8_t* PrefixCache::window(NodeId id) const {
  const int32_t index = nodes_[static_cast<size_t>(id)].window;
  return index < 0 ? nullptr : window_memory_.get() + index * window_bytes_;
}

const uint8_t* PrefixCache::use_window(NodeId id) {
  const int32_t index = nodes_[static_cast<size_t>(id)].window;
  if (index >= 0) windows_[static_cast<size_t>(index)].used = ++clock_;
  return window(id);
}

void PrefixCache::drop_window(NodeId id) {
  Node& node = nodes_[static_cast<size_t>(id)];
  if (node.window < 0) return;
  windows_[static_cast<size_t>(node.window)] = {};
  node.window = -1;
}

}  // namespace cedra::cache

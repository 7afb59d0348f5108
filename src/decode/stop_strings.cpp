// A trie with failure links. The state's depth is the length of the longest suffix of the text that
// is a prefix of some stop string: exactly what must be held back.
#include "decode/stop_strings.h"

#include <cassert>
#include <utility>

namespace cedra::decode {

StopStrings::StopStrings(std::span<const std::string> stops) {
  nodes_.emplace_back();
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) continue;
    int32_t node = 0;
    for (const char c : stops[i]) {
      const auto byte = static_cast<unsigned char>(c);
      int32_t next = child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        const int32_t depth = nodes_[static_cast<size_t>(node)].depth + 1;
        nodes_[static_cast<size_t>(node)].edges.emplace_back(byte, next);
        nodes_.emplace_back();
        nodes_.back().depth = depth;
      }
      node = next;
    }
    Node& end = nodes_[static_cast<size_t>(node)];
    if (end.stop < 0) {
      end.stop = static_cast<int64_t>(i);
      end.stop_length = end.depth;
    }
  }
  // Breadth first: a node's failure target is shallower, hence finished.
  std::vector<int32_t> order{0};
  for (size_t at = 0; at < order.size(); ++at) {
    const int32_t node = order[at];
    for (const auto& [byte, next] : nodes_[static_cast<size_t>(node)].edges) {
      Node& to = nodes_[static_cast<size_t>(next)];
      if (node != 0) {
        int32_t fail = nodes_[static_cast<size_t>(node)].fail;
        while (fail != 0 && child(fail, byte) < 0) fail = nodes_[static_cast<size_t>(fail)].fail;
        const int32_t target = child(fail, byte);
        to.fail = target < 0 ? 0 : target;
      }
      if (to.stop < 0) {
        const Node& suffix = nodes_[static_cast<size_t>(to.fail)];
        to.stop = suffix.stop;
        to.stop_length = suffix.stop_length;
      }
      order.push_back(next);
    }
  }
}

int32_t StopStrings::child(int32_t node, unsigned char byte) const {
  for (const auto& [edge, next] : nodes_[static_cast<size_t>(node)].edges) {
    if (edge == byte) return next;
  }
  return -1;
}

std::string StopStrings::push(std::string_view piece) {
  if (nodes_.size() <= 1) return std::string(piece);
  if (matched()) return {};
  std::string text = std::move(held_);
  const size_t before = text.size();
  text.append(piece);
  held_.clear();
  for (size_t i = before; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    int32_t next = child(state_, byte);
    while (next < 0 && state_ != 0) {
      state_ = nodes_[static_cast<size_t>(state_)].fail;
      next = child(state_, byte);
    }
    state_ = next < 0 ? 0 : next;
    const Node& node = nodes_[static_cast<size_t>(state_)];
    if (node.stop >= 0) {
      matched_ = node.stop;
      text.resize(i + 1 - static_cast<size_t>(node.stop_length));
      return text;
    }
  }
  const auto hold = static_cast<size_t>(nodes_[static_cast<size_t>(state_)].depth);
  assert(hold <= text.size());
  held_ = text.substr(text.size() - hold);
  text.resize(text.size() - hold);
  return text;
}

std::string StopStrings::flush() {
  state_ = 0;
  return matched() ? std::string() : std::exchange(held_, {});
}

}  // namespace cedra::decode

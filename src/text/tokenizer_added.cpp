// Tries of the added tokens, one per group (tokenizer_added.h).
#include "text/tokenizer_added.h"

namespace cedra::text {

AddedTokenMatcher::AddedTokenMatcher(std::span<const AddedTokenEntry> tokens) {
  for (const bool normalized : {false, true}) {
    Group group;
    group.roots.fill(-1);
    for (const AddedTokenEntry& token : tokens) {
      if (token.normalized == normalized) insert(token, &group);
    }
    if (!group.nodes.empty()) groups_.push_back(std::move(group));
  }
}

void AddedTokenMatcher::insert(const AddedTokenEntry& token, Group* group) {
  auto& nodes = group->nodes;
  int32_t parent = -1;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t& head = parent < 0 ? group->roots[byte] : nodes[static_cast<size_t>(parent)].child;
    int32_t node = head;
    while (node >= 0 && nodes[static_cast<size_t>(node)].byte != byte) {
      node = nodes[static_cast<size_t>(node)].sibling;
    }
    if (node < 0) {
      node = static_cast<int32_t>(nodes.size());
      const int32_t sibling = head;
      head = node;
      nodes.push_back({-1, sibling, -1, byte});
    }
    parent = node;
  }
  nodes[static_cast<size_t>(parent)].id = token.id;
}

void AddedTokenMatcher::find(std::string_view text, size_t begin, size_t end,
                             std::vector<AddedMatch>* out) const {
  if (!groups_.empty()) find_in_group(0, text, begin, end, out);
}

void AddedTokenMatcher::find_in_group(size_t number, std::string_view text, size_t begin,
                                      size_t end, std::vector<AddedMatch>* out) const {
  const Group& group = groups_[number];
  const auto rest = [&](size_t from, size_t to) {
    if (number + 1 < groups_.size() && from < to) find_in_group(number + 1, text, from, to, out);
  };
  size_t left = begin;  // start of what no token has taken yet
  for (size_t i = begin; i < end;) {
    int32_t node = group.roots[static_cast<unsigned char>(text[i])];
    size_t longest = 0;
    int32_t id = -1;
    for (size_t j = i + 1; node >= 0; ++j) {
      const Node& here = group.nodes[static_cast<size_t>(node)];
      if (here.id >= 0) {
        longest = j;
        id = here.id;
      }
      if (j == end) break;
      node = here.child;
      const auto byte = static_cast<unsigned char>(text[j]);
      while (node >= 0 && group.nodes[static_cast<size_t>(node)].byte != byte) {
        node = group.nodes[static_cast<size_t>(node)].sibling;
      }
    }
    if (id < 0) {
      ++i;
      continue;
    }
    rest(left, i);
    out->push_back({i, longest, id});
    left = i = longest;
  }
  rest(left, end);
}

}  // namespace cedra::text

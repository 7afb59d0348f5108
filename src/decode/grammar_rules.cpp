#include "decode/grammar_rules.h"

#include <algorithm>
#include <bitset>
#include <numeric>

namespace cedra::decode {
namespace {

constexpr int16_t kNever = INT16_MAX;

// Items grouped by key in [0, keys): begin[key] .. begin[key + 1] index into `order`.
struct Groups {
  std::vector<int32_t> begin;
  std::vector<int32_t> order;
};
template <class KeyOf>
Groups group(size_t items, size_t keys, KeyOf key_of) {
  Groups out;
  out.begin.assign(keys + 1, 0);
  for (size_t i = 0; i < items; ++i) ++out.begin[static_cast<size_t>(key_of(i)) + 1];
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.order.resize(items);
  std::vector<int32_t> next(out.begin.begin(), out.begin.end() - 1);
  for (size_t i = 0; i < items; ++i) {
    out.order[static_cast<size_t>(next[static_cast<size_t>(key_of(i))]++)] =
        static_cast<int32_t>(i);
  }
  return out;
}

}  // namespace

NodeId RuleBuilder::new_node(RuleId rule) {
  rule_of_.push_back(rule);
  return static_cast<NodeId>(rule_of_.size() - 1);
}

RuleId RuleBuilder::rule(std::string name) {
  const auto id = static_cast<RuleId>(rules_.size());
  const NodeId first = new_node(id);
  const NodeId last = new_node(id);
  rules_.push_back({first, last, std::move(name)});
  return id;
}

NodeId RuleBuilder::node(NodeId beside) {
  return full() ? beside : new_node(rule_of_[static_cast<size_t>(beside)]);
}

void RuleBuilder::byte(NodeId from, uint8_t low, uint8_t high, NodeId to) {
  if (!full()) edges_.push_back({from, to, 0, Kind::kByte, low, high});
}

void RuleBuilder::call(NodeId from, RuleId rule, NodeId to) {
  if (!full()) edges_.push_back({from, to, rule, Kind::kCall, 0, 0});
}

void RuleBuilder::jump(NodeId from, NodeId to) {
  if (!full() && from != to) edges_.push_back({from, to, 0, Kind::kJump, 0, 0});
}

NodeId RuleBuilder::literal(NodeId from, std::string_view bytes) {
  for (const char c : bytes) {
    const NodeId next = node(from);
    byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    from = next;
  }
  return from;
}

NodeId RuleBuilder::call(NodeId from, RuleId rule) {
  const NodeId next = node(from);
  call(from, rule, next);
  return next;
}

void RuleBuilder::one_of(NodeId from, std::vector<std::string> literals, NodeId to) {
  std::sort(literals.begin(), literals.end());
  std::vector<NodeId> path;  // path[i]: behind i + 1 bytes of `last`
  std::string_view last;
  for (const std::string& literal : literals) {
    const size_t most = std::min(last.size(), literal.size());
    size_t shared = 0;
    while (shared < most && last[shared] == literal[shared]) ++shared;
    path.resize(shared);
    for (size_t i = shared; i < literal.size(); ++i) {
      const NodeId before = i == 0 ? from : path[i - 1];
      const NodeId next = node(from);
      byte(before, static_cast<uint8_t>(literal[i]), static_cast<uint8_t>(literal[i]), next);
      path.push_back(next);
    }
    jump(literal.empty() ? from : path.back(), to);
    last = literal;
  }
}

// How deeply the calls nest on the best way from each node to the end of its rule; kNever if there
// is none. Shortest paths, with max(.) instead of a sum, by buckets.
std::vector<int16_t> RuleBuilder::heights() const {
  const Groups into = group(edges_.size(), rule_of_.size(), [&](size_t i) { return edges_[i].to; });
  std::vector<int32_t> call_edges;
  for (size_t i = 0; i < edges_.size(); ++i) {
    if (edges_[i].kind == Kind::kCall) call_edges.push_back(static_cast<int32_t>(i));
  }
  const Groups callers = group(call_edges.size(), rules_.size(), [&](size_t i) {
    return edges_[static_cast<size_t>(call_edges[i])].rule;
  });

  std::vector<int16_t> height(rule_of_.size(), kNever);  // final ones
  std::vector<std::vector<NodeId>> buckets(kMaxGrammarDepth + 1);
  for (const Rule& rule : rules_) buckets[0].push_back(rule.end);
  const auto reach = [&](NodeId node, int value) {
    if (value <= kMaxGrammarDepth && height[static_cast<size_t>(node)] == kNever) {
      buckets[static_cast<size_t>(value)].push_back(node);
    }
  };
  for (int value = 0; value <= kMaxGrammarDepth; ++value) {
    auto& bucket = buckets[static_cast<size_t>(value)];
    while (!bucket.empty()) {
      const auto node = static_cast<size_t>(bucket.back());
      bucket.pop_back();
      if (height[node] != kNever) continue;
      height[node] = static_cast<int16_t>(value);
      for (int32_t i = into.begin[node]; i < into.begin[node + 1]; ++i) {
        const Edge& edge = edges_[static_cast<size_t>(into.order[static_cast<size_t>(i)])];
        if (edge.kind != Kind::kCall) {
          reach(edge.from, value);
          continue;
        }
        const int callee = height[static_cast<size_t>(start(edge.rule))];
        if (callee != kNever) reach(edge.from, std::max(value, callee + 1));
      }
      const auto rule = static_cast<size_t>(rule_of_[node]);
      if (static_cast<size_t>(rules_[rule].start) != node) continue;
      for (int32_t i = callers.begin[rule]; i < callers.begin[rule + 1]; ++i) {
        const size_t index = static_cast<size_t>(callers.order[static_cast<size_t>(i)]);
        const Edge& edge = edges_[static_cast<size_t>(call_edges[index])];
        const int behind = height[static_cast<size_t>(edge.to)];
        if (behind != kNever) reach(edge.from, std::max(behind, value + 1));
      }
    }
  }
  return height;
}

void RuleBuilder::make_classes(Rules& out) const {
  std::bitset<257> border;
  border.set(0);
  for (const Edge& edge : edges_) {
    if (edge.kind != Kind::kByte) continue;
    border.set(edge.low);
    border.set(static_cast<size_t>(edge.high) + 1);
  }
  int32_t last = -1;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (border.test(byte)) ++last;
    out.class_of[byte] = static_cast<uint8_t>(last);
  }
  out.classes = last + 1;
}

void RuleBuilder::find_nullable(Rules& out) const {
  // A rule is nullable if its end can be reached by jumps and calls of nullable rules.
  std::vector<uint8_t> reached(rule_of_.size(), 0);
  std::vector<NodeId> work;
  std::vector<std::vector<size_t>> waiting(rules_.size());  // calls from reached nodes
  const Groups from =
      group(edges_.size(), rule_of_.size(), [&](size_t i) { return edges_[i].from; });
  const auto reach = [&](NodeId node) {
    if (reached[static_cast<size_t>(node)] != 0) return;
    reached[static_cast<size_t>(node)] = 1;
    work.push_back(node);
  };
  for (const Rule& rule : rules_) reach(rule.start);
  while (!work.empty()) {
    const auto node = static_cast<size_t>(work.back());
    work.pop_back();
    const auto rule = static_cast<size_t>(rule_of_[node]);
    if (static_cast<size_t>(rules_[rule].end) == node && !out.rules[rule].nullable) {
      out.rules[rule].nullable = true;
      for (const size_t edge : waiting[rule]) reach(edges_[edge].to);
    }
    for (int32_t i = from.begin[node]; i < from.begin[node + 1]; ++i) {
      const auto index = static_cast<size_t>(from.order[static_cast<size_t>(i)]);
      const Edge& edge = edges_[index];
      if (edge.kind == Kind::kJump) reach(edge.to);
      if (edge.kind != Kind::kCall) continue;
      waiting[static_cast<size_t>(edge.rule)].push_back(index);
      if (out.rules[static_cast<size_t>(edge.rule)].nullable) reach(edge.to);
    }
  }
}

// From the ends backwards over jumps, to nodes that lead nowhere else.
void RuleBuilder::find_tails(Rules& out) const {
  const auto range = [](const std::vector<int32_t>& begin, size_t node) {
    return begin[node + 1] - begin[node];
  };
  const Groups into = group(edges_.size(), rule_of_.size(), [&](size_t i) { return edges_[i].to; });
  std::vector<int32_t> open(rule_of_.size(), 0);  // jumps that lead elsewhere, for all we know
  std::vector<size_t> work;
  for (size_t node = 0; node < rule_of_.size(); ++node) {
    open[node] = range(out.jump_begin, node);
    const bool stays = range(out.byte_begin, node) == 0 && range(out.call_begin, node) == 0;
    if (!stays) open[node] = INT32_MAX;
    if (open[node] == 0 && out.is_end[node] != 0) work.push_back(node);
  }
  while (!work.empty()) {
    const size_t node = work.back();
    work.pop_back();
    out.is_tail[node] = 1;
    for (int32_t i = into.begin[node]; i < into.begin[node + 1]; ++i) {
      const Edge& edge = edges_[static_cast<size_t>(into.order[static_cast<size_t>(i)])];
      const auto before = static_cast<size_t>(edge.from);
      if (edge.kind == Kind::kJump && open[before] != INT32_MAX && --open[before] == 0) {
        work.push_back(before);
      }
    }
  }
}

// A rule that can come to call itself before it read a byte would be entered without end.
Result<> RuleBuilder::check_left_recursion(const Rules& rules) const {
  // Calls that can be reached from a rule's start without a byte.
  std::vector<std::vector<RuleId>> first(rules_.size());
  std::vector<int32_t> seen(rule_of_.size(), -1);
  std::vector<NodeId> work;
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    work.assign(1, rules.rules[rule].start);
    while (!work.empty()) {
      const auto node = static_cast<size_t>(work.back());
      work.pop_back();
      if (seen[node] == static_cast<int32_t>(rule)) continue;
      seen[node] = static_cast<int32_t>(rule);
      for (int32_t i = rules.jump_begin[node]; i < rules.jump_begin[node + 1]; ++i) {
        work.push_back(rules.jumps[static_cast<size_t>(i)]);
      }
      for (int32_t i = rules.call_begin[node]; i < rules.call_begin[node + 1]; ++i) {
        const CallEdge& call = rules.calls[static_cast<size_t>(i)];
        first[rule].push_back(call.rule);
        if (rules.rules[static_cast<size_t>(call.rule)].nullable) work.push_back(call.to);
      }
    }
  }
  // A cycle among them, by depth-first search without recursion.
  std::vector<uint8_t> state(rules_.size(), 0);  // 1: open, 2: done
  std::vector<std::pair<size_t, size_t>> path;   // rule, next of its calls
  for (size_t root = 0; root < rules_.size(); ++root) {
    if (state[root] != 0) continue;
    path.assign(1, {root, 0});
    state[root] = 1;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == first[rule].size()) {
        state[rule] = 2;
        path.pop_back();
        continue;
      }
      const auto callee = static_cast<size_t>(first[rule][next++]);
      if (state[callee] == 1) {
        return err(Code::kInvalid,
                   "{} refers to itself before it has read any text (left recursion); put what "
                   "comes first in front of the reference",
                   rules_[callee].name.empty() ? "a rule" : rules_[callee].name);
      }
      if (state[callee] == 0) {
        state[callee] = 1;
        path.emplace_back(callee, 0);
      }
    }
  }
  return {};
}

Result<Rules> RuleBuilder::finish(RuleId root) && {
  if (full()) {
    return err(Code::kTooLarge, "the grammar needs more than {} states and edges; make it smaller",
               max_size_);
  }
  Rules out;
  out.root = root;
  out.height = heights();
  if (out.height[static_cast<size_t>(start(root))] == kNever) {
    return err(Code::kInvalid,
               "nothing can satisfy it, or only what nests more than {} levels deep",
               kMaxGrammarDepth);
  }
  // What cannot lead to an end is left out, so that every state can be completed.
  std::erase_if(edges_, [&](const Edge& edge) {
    const bool dead =
        edge.kind == Kind::kCall && out.height[static_cast<size_t>(start(edge.rule))] == kNever;
    return dead || out.height[static_cast<size_t>(edge.to)] == kNever;
  });
  make_classes(out);
  out.rules.resize(rules_.size());
  for (size_t i = 0; i < rules_.size(); ++i) out.rules[i].start = rules_[i].start;
  find_nullable(out);

  const size_t nodes = rule_of_.size();
  const Groups from = group(edges_.size(), nodes, [&](size_t i) { return edges_[i].from; });
  out.byte_begin.reserve(nodes + 1);
  out.call_begin.reserve(nodes + 1);
  out.jump_begin.reserve(nodes + 1);
  out.is_end.assign(nodes, 0);
  out.is_tail.assign(nodes, 0);
  for (size_t node = 0; node < nodes; ++node) {
    out.byte_begin.push_back(static_cast<int32_t>(out.bytes.size()));
    out.call_begin.push_back(static_cast<int32_t>(out.calls.size()));
    out.jump_begin.push_back(static_cast<int32_t>(out.jumps.size()));
    for (int32_t i = from.begin[node]; i < from.begin[node + 1]; ++i) {
      const Edge& edge = edges_[static_cast<size_t>(from.order[static_cast<size_t>(i)])];
      switch (edge.kind) {
        case Kind::kByte:
          out.bytes.push_back({out.class_of[edge.low], out.class_of[edge.high], edge.to});
          break;
        case Kind::kCall:
          out.calls.push_back({edge.rule, edge.to});
          ++out.rules[static_cast<size_t>(edge.rule)].callers;
          break;
        case Kind::kJump:
          out.jumps.push_back(edge.to);
          break;
      }
    }
    const bool end = static_cast<size_t>(rules_[static_cast<size_t>(rule_of_[node])].end) == node;
    out.is_end[node] = end;
  }
  out.byte_begin.push_back(static_cast<int32_t>(out.bytes.size()));
  out.call_begin.push_back(static_cast<int32_t>(out.calls.size()));
  out.jump_begin.push_back(static_cast<int32_t>(out.jumps.size()));
  find_tails(out);
  CEDRA_TRY(check_left_recursion(out));
  out.rule_of = std::move(rule_of_);
  return out;
}

}  // namespace cedra::decode

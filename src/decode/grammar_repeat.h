// How regex and EBNF write a repetition into their graphs. Internal to decode/.
#pragma once

#include <cstdint>

namespace cedra::decode {

inline constexpr int64_t kUnbounded = -1;

// What once() writes from one node to another, `low` to `high` times between `from` and `to`,
// written out as often as that says. A loop must not be entered from its middle, hence nodes of its
// own. `graph` has node(), jump(from, to) and full(), from which on nothing more is written.
template <class Node, class Graph, class Once>
void write_repetition(Graph&& graph, int64_t low, int64_t high, Node from, Node to, Once&& once) {
  Node at = graph.node();
  graph.jump(from, at);
  for (int64_t i = 0; i < low && !graph.full(); ++i) {
    const Node next = graph.node();
    once(at, next);
    at = next;
  }
  if (high == kUnbounded) {
    const Node loop = graph.node();
    const Node back = graph.node();
    graph.jump(at, loop);
    once(loop, back);
    graph.jump(back, loop);
    graph.jump(loop, to);
    return;
  }
  for (int64_t i = low; i < high && !graph.full(); ++i) {
    graph.jump(at, to);
    const Node next = graph.node();
    once(at, next);
    at = next;
  }
  graph.jump(at, to);
}

}  // namespace cedra::decode

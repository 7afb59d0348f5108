#include "decode/grammar_language.h"

#include <algorithm>
#include <deque>
#include <map>

namespace cedra::decode {
namespace {

std::unexpected<Error> too_many_states() {
  return err(Code::kTooLarge, "needs more than {} states; make it simpler", kMaxDfaStates);
}
std::unexpected<Error> too_much_work() {
  return err(Code::kTooLarge, "takes too long to compile; make it simpler");
}

// The first characters of the coarsest classes that no set divides.
std::vector<char32_t> class_borders(const std::vector<CharSet>& sets) {
  std::vector<char32_t> out{0};
  for (const CharSet& set : sets) {
    for (const CharRange& range : set.ranges()) {
      out.push_back(range.low);
      if (range.high < kLastChar) out.push_back(range.high + 1);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

size_t class_of(const std::vector<char32_t>& lows, char32_t c) {
  return static_cast<size_t>(std::upper_bound(lows.begin(), lows.end(), c) - lows.begin()) - 1;
}

char32_t class_high(const CharDfa& dfa, size_t c) {
  return c + 1 < dfa.classes() ? dfa.class_low[c + 1] - 1 : kLastChar;
}

// A tree of texts, as a DFA without accepting states of its own.
struct Tree {
  CharDfa dfa;
  std::vector<int32_t> state_of;  // where each text ends

  explicit Tree(std::span<const std::string> texts) {
    std::vector<CharSet> sets;
    std::vector<std::u32string> words;
    for (const std::string& text : texts) {
      words.push_back(to_chars(text));
      for (const char32_t c : words.back()) sets.emplace_back(c, c);
    }
    dfa.class_low = class_borders(sets);
    add_state();
    for (const std::u32string& word : words) {
      int32_t at = 0;
      for (const char32_t c : word) {
        const size_t edge = static_cast<size_t>(at) * dfa.classes() + class_of(dfa.class_low, c);
        if (dfa.next[edge] == CharDfa::kNone) {
          const int32_t fresh = add_state();
          dfa.next[edge] = fresh;
        }
        at = dfa.next[edge];
      }
      state_of.push_back(at);
    }
  }
  int32_t add_state() {
    dfa.accepting.push_back(0);
    dfa.next.resize(dfa.states() * dfa.classes(), CharDfa::kNone);
    return static_cast<int32_t>(dfa.states() - 1);
  }
};

// Subset construction.
class Determinizer {
 public:
  Determinizer(const CharNfa& nfa, RuleBuilder& builder)
      : nfa_(&nfa), builder_(&builder), edges_(nodes()), jumps_(nodes()) {
    for (const CharNfa::Edge& edge : nfa.edges) {
      edges_[static_cast<size_t>(edge.from)].push_back(edge);
    }
    for (const CharNfa::Jump& jump : nfa.jumps) {
      jumps_[static_cast<size_t>(jump.from)].push_back(jump);
    }
    out_.class_low = class_borders(nfa.sets);
    for (const CharSet& set : nfa.sets) {
      auto& members = members_.emplace_back(out_.classes(), 0);
      for (const CharRange& range : set.ranges()) {
        for (size_t c = class_of(out_.class_low, range.low);
             c < out_.classes() && out_.class_low[c] <= range.high; ++c) {
          members[c] = 1;
        }
      }
    }
  }

  Result<CharDfa> run() {
    state_of({nfa_->start}, true);
    std::vector<int32_t> reached;
    for (size_t state = 0; state < sets_.size(); ++state) {
      if (sets_.size() > kMaxDfaStates) return too_many_states();
      if (!builder_->spend(work_)) return too_much_work();
      work_ = 0;
      for (size_t c = 0; c < out_.classes(); ++c) {
        reached.clear();
        for (const int32_t node : sets_[state]) {
          for (const CharNfa::Edge& edge : edges_[static_cast<size_t>(node)]) {
            if (members_[static_cast<size_t>(edge.set)][c] != 0) reached.push_back(edge.to);
          }
        }
        work_ += static_cast<int64_t>(reached.size() + sets_[state].size()) + 1;
        const int32_t next = reached.empty() ? CharDfa::kNone : state_of(reached, false);
        out_.next[state * out_.classes() + c] = next;
      }
    }
    return std::move(out_);
  }

 private:
  size_t nodes() const { return static_cast<size_t>(nfa_->nodes); }

  std::vector<int32_t> closure(std::vector<int32_t> nodes, bool begin, bool end) {
    std::vector<uint8_t>& seen = seen_;
    seen.assign(this->nodes(), 0);
    for (const int32_t node : nodes) seen[static_cast<size_t>(node)] = 1;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const CharNfa::Jump& jump : jumps_[static_cast<size_t>(nodes[i])]) {
        const bool open = jump.guard == CharNfa::Guard::kNone ||
                          (jump.guard == CharNfa::Guard::kBegin ? begin : end);
        if (!open || seen[static_cast<size_t>(jump.to)] != 0) continue;
        seen[static_cast<size_t>(jump.to)] = 1;
        nodes.push_back(jump.to);
      }
    }
    work_ += static_cast<int64_t>(nodes.size() + this->nodes() / 16);
    std::sort(nodes.begin(), nodes.end());
    return nodes;
  }

  int32_t state_of(std::vector<int32_t> nodes, bool begin) {
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    const std::vector<int32_t> last = closure(nodes, begin, true);
    std::vector<int32_t> all = closure(std::move(nodes), begin, false);
    const bool accepting = std::ranges::binary_search(last, nfa_->end);
    // Two sets that differ in what the end of the text allows are two states.
    std::vector<int32_t> key = all;
    key.push_back(accepting ? 1 : 0);
    const auto [it, fresh] = index_.emplace(std::move(key), static_cast<int32_t>(sets_.size()));
    if (fresh) {
      sets_.push_back(std::move(all));
      out_.accepting.push_back(accepting ? 1 : 0);
      out_.next.resize(sets_.size() * out_.classes(), CharDfa::kNone);
    }
    return it->second;
  }

  const CharNfa* nfa_;
  RuleBuilder* builder_;
  std::vector<std::vector<CharNfa::Edge>> edges_;
  std::vector<std::vector<CharNfa::Jump>> jumps_;
  std::vector<std::vector<uint8_t>> members_;  // [sets][classes]
  std::vector<std::vector<int32_t>> sets_;
  std::map<std::vector<int32_t>, int32_t> index_;
  std::vector<uint8_t> seen_;
  int64_t work_ = 0;  // not yet spent
  CharDfa out_;
};

}  // namespace

bool CharNfa::guarded() const {
  return std::ranges::any_of(jumps, [](const Jump& jump) { return jump.guard != Guard::kNone; });
}

void CharNfa::search_anywhere() {
  const int32_t first = nodes++;
  const int32_t last = nodes++;
  const auto any = static_cast<int32_t>(sets.size());
  sets.push_back(CharSet::all());
  edges.push_back({first, first, any});
  edges.push_back({last, last, any});
  jumps.push_back({first, start, Guard::kNone});
  jumps.push_back({end, last, Guard::kNone});
  start = first;
  end = last;
}

CharDfa CharDfa::length(int64_t low, int64_t high) {
  CharDfa out;
  out.class_low = {0};
  const int64_t states = (high < 0 ? low : high) + 1;
  for (int64_t i = 0; i < states; ++i) {
    out.accepting.push_back(i >= low ? 1 : 0);
    const bool last = i + 1 == states;
    out.next.push_back(static_cast<int32_t>(!last ? i + 1 : high < 0 ? i : kNone));
  }
  return out;
}

CharDfa CharDfa::literals(std::span<const std::string> texts) {
  Tree tree(texts);
  for (const int32_t state : tree.state_of) tree.dfa.accepting[static_cast<size_t>(state)] = 1;
  return std::move(tree.dfa);
}

// Aho and Corasick's automaton; what completes a text leads nowhere.
CharDfa CharDfa::avoiding(std::span<const std::string> texts) {
  Tree tree(texts);
  CharDfa& dfa = tree.dfa;
  const size_t classes = dfa.classes();
  std::vector<uint8_t> bad(dfa.states(), 0);
  for (const int32_t state : tree.state_of) bad[static_cast<size_t>(state)] = 1;
  std::vector<size_t> fallback(dfa.states(), 0);
  std::deque<size_t> queue{0};
  while (!queue.empty()) {
    const size_t state = queue.front();
    queue.pop_front();
    for (size_t c = 0; c < classes; ++c) {
      int32_t& next = dfa.next[state * classes + c];
      const size_t other =
          state == 0 ? 0 : static_cast<size_t>(dfa.next[fallback[state] * classes + c]);
      if (next == kNone) {
        next = static_cast<int32_t>(other);
        continue;
      }
      const auto child = static_cast<size_t>(next);
      fallback[child] = other;
      if (bad[other] != 0) bad[child] = 1;
      queue.push_back(child);
    }
  }
  for (size_t i = 0; i < dfa.next.size(); ++i) {
    if (bad[static_cast<size_t>(dfa.next[i])] != 0) dfa.next[i] = kNone;
  }
  for (size_t state = 0; state < dfa.states(); ++state) dfa.accepting[state] = bad[state] == 0;
  return std::move(dfa);
}

Result<CharDfa> determinize(const CharNfa& nfa, RuleBuilder& builder) {
  return Determinizer(nfa, builder).run();
}

Result<CharDfa> intersect(const CharDfa& a, const CharDfa& b, RuleBuilder& builder, bool except) {
  CharDfa out;
  std::merge(a.class_low.begin(), a.class_low.end(), b.class_low.begin(), b.class_low.end(),
             std::back_inserter(out.class_low));
  out.class_low.erase(std::unique(out.class_low.begin(), out.class_low.end()), out.class_low.end());
  std::map<std::pair<int32_t, int32_t>, int32_t> index;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const auto state_of = [&](int32_t x, int32_t y) {
    const auto [it, fresh] = index.emplace(std::pair(x, y), static_cast<int32_t>(pairs.size()));
    if (fresh) {
      pairs.emplace_back(x, y);
      const bool in_b = y != CharDfa::kNone && b.accepting[static_cast<size_t>(y)] != 0;
      out.accepting.push_back(a.accepting[static_cast<size_t>(x)] != 0 && in_b != except ? 1 : 0);
    }
    return it->second;
  };
  state_of(0, 0);
  for (size_t state = 0; state < pairs.size(); ++state) {
    if (pairs.size() > kMaxDfaStates) return too_many_states();
    if (!builder.spend(static_cast<int64_t>(out.classes()) * 4)) return too_much_work();
    const auto [x, y] = pairs[state];
    for (const char32_t low : out.class_low) {
      const int32_t to_x =
          a.next[static_cast<size_t>(x) * a.classes() + class_of(a.class_low, low)];
      const int32_t to_y =
          y == CharDfa::kNone
              ? CharDfa::kNone
              : b.next[static_cast<size_t>(y) * b.classes() + class_of(b.class_low, low)];
      const bool gone = to_x == CharDfa::kNone || (!except && to_y == CharDfa::kNone);
      out.next.push_back(gone ? CharDfa::kNone : state_of(to_x, to_y));
    }
  }
  return out;
}

void add_language(RuleBuilder& builder, NodeId from, const CharNfa& nfa, NodeId to,
                  Spelling spelling) {
  std::vector<NodeId> nodes;
  for (int32_t i = 0; i < nfa.nodes && !builder.full(); ++i) nodes.push_back(builder.node(from));
  if (builder.full()) return;
  const auto at = [&](int32_t node) { return nodes[static_cast<size_t>(node)]; };
  builder.jump(from, at(nfa.start));
  builder.jump(at(nfa.end), to);
  for (const CharNfa::Edge& edge : nfa.edges) {
    add_chars(builder, at(edge.from), nfa.sets[static_cast<size_t>(edge.set)], at(edge.to),
              spelling);
  }
  for (const CharNfa::Jump& jump : nfa.jumps) builder.jump(at(jump.from), at(jump.to));
}

void add_language(RuleBuilder& builder, NodeId from, const CharDfa& dfa, NodeId to,
                  Spelling spelling) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < dfa.states() && !builder.full(); ++i) nodes.push_back(builder.node(from));
  if (builder.full()) return;
  builder.jump(from, nodes[0]);
  std::map<int32_t, CharSet> targets;
  for (size_t state = 0; state < dfa.states(); ++state) {
    if (dfa.accepting[state] != 0) builder.jump(nodes[state], to);
    targets.clear();
    for (size_t c = 0; c < dfa.classes(); ++c) {
      const int32_t next = dfa.next[state * dfa.classes() + c];
      if (next != CharDfa::kNone) targets[next].add(dfa.class_low[c], class_high(dfa, c));
    }
    for (const auto& [next, set] : targets) {
      add_chars(builder, nodes[state], set, nodes[static_cast<size_t>(next)], spelling);
    }
  }
}

}  // namespace cedra::decode

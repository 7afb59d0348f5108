#include "decode/grammar_automaton.h"

#include <algorithm>
#include <bit>

namespace cedra::decode {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value;
  hash *= 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29);
}

template <class Place>
uint64_t key_of(Place place) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(place.node)) << 32) |
         static_cast<uint32_t>(place.frame);
}

template <class Place>
uint64_t hash_of(uint64_t seed, std::span<const Place> places) {
  uint64_t hash = mix(seed, places.size());
  for (const Place& place : places) hash = mix(hash, key_of(place));
  return hash;
}

// Beside its arrays, what an entry takes in an index.
constexpr int64_t kIndexEntry = 48;

void set_bit(std::span<uint64_t> words, int32_t id) {
  words[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<uint32_t>(id) % 64);
}

// Collects some tokens of a trie, met in its order, into a trie of their own.
class SubTrie {
 public:
  SubTrie(const TokenTrie& trie, size_t depth) : trie_(&trie), above_(depth), way_(depth) {}

  // The walk is at this node now.
  void enter(int32_t index) { above_[node(index).depth - 1U] = index; }
  // Takes the tokens of the node that was entered last.
  void add(int32_t index) {
    const size_t depth = node(index).depth;
    size_t shared = 0;  // of the way, what is there already
    while (shared < open_ && shared < depth && way_[shared].original == above_[shared]) ++shared;
    close(shared);
    for (; open_ < depth; ++open_) {
      way_[open_] = {above_[open_], static_cast<int32_t>(out_.nodes.size())};
      append(static_cast<uint16_t>(open_ + 1), node(above_[open_]).byte);
    }
    const int32_t last = trie_->nodes[static_cast<size_t>(index) + 1].first_token;
    for (int32_t t = node(index).first_token; t < last; ++t) {
      out_.tokens.push_back(trie_->tokens[static_cast<size_t>(t)]);
    }
  }
  size_t tokens() const { return out_.tokens.size(); }
  TokenTrie finish() && {
    close(0);
    append(0, 0);
    return std::move(out_);
  }

 private:
  struct Step {
    int32_t original;
    int32_t copy;
  };
  const TokenTrie::Node& node(int32_t index) const {
    return trie_->nodes[static_cast<size_t>(index)];
  }
  void append(uint16_t depth, uint8_t byte) {
    out_.nodes.push_back({.after = 0,
                          .first_token = static_cast<int32_t>(out_.tokens.size()),
                          .depth = depth,
                          .byte = byte});
  }
  void close(size_t depth) {
    for (; open_ > depth; --open_) {
      out_.nodes[static_cast<size_t>(way_[open_ - 1].copy)].after =
          static_cast<int32_t>(out_.nodes.size());
    }
  }

  const TokenTrie* trie_;
  TokenTrie out_;
  std::vector<int32_t> above_;  // nodes from the root to where the walk is
  std::vector<Step> way_;       // the open nodes of the copy
  size_t open_ = 0;
};

}  // namespace

Automaton::Automaton(const Rules& rules, const Vocabulary& vocabulary)
    : rules_(&rules),
      vocabulary_(&vocabulary),
      stride_(static_cast<size_t>(rules.classes)),
      slot_of_(rules.rules.size()),
      slot_turn_(rules.rules.size(), 0),
      least_depth_(rules.rules.size()),
      depth_turn_(rules.rules.size(), 0),
      table_(4 * kMaxPlaces),
      table_turn_(4 * kMaxPlaces, 0),
      path_(static_cast<size_t>(vocabulary.trie().max_depth) + 1),
      words_((static_cast<size_t>(vocabulary.size()) + 63) / 64) {
  frames_.push_back({0, 1, 0});
  frames_.push_back({1, 1, 0});
  continuations_ = {{kAccept, 0}, {kEscape, 0}};
  seeds_ = {{rules.rules[static_cast<size_t>(rules.root)].start, kRootFrame}};
  initial_ = close(false);
}

int64_t Automaton::fixed_bytes(const Rules& rules) {
  constexpr size_t kTable = 4 * kMaxPlaces * (sizeof(Place) + sizeof(uint32_t));
  return static_cast<int64_t>(kTable + rules.rules.size() * 4 * sizeof(int32_t));
}

// ---- transitions

StateId Automaton::compute_step(StateId state, uint8_t byte_class) {
  if (spent_ > kMaxWork) return kTooWide;  // now; another time there may be more
  seeds_.clear();
  const State from = states_[static_cast<size_t>(state)];
  spent_ += from.count + 16;
  for (int32_t i = from.begin; i < from.begin + from.count; ++i) {
    const Place place = places_[static_cast<size_t>(i)];
    const auto node = static_cast<size_t>(place.node);
    for (int32_t e = rules_->byte_begin[node]; e < rules_->byte_begin[node + 1]; ++e) {
      const ByteEdge& edge = rules_->bytes[static_cast<size_t>(e)];
      if (edge.low <= byte_class && byte_class <= edge.high && fits(edge.to, place.frame)) {
        seeds_.push_back({edge.to, place.frame});
      }
    }
  }
  const bool stale = from.fresh || from.stale;
  const StateId next = seeds_.empty() && !stale ? kDeadState : close(stale);
  int32_t row = states_[static_cast<size_t>(state)].row;
  if (row < 0) {
    row = static_cast<int32_t>(rows_.size() / stride_);
    rows_.resize(rows_.size() + stride_, kUnknown);
    bytes_ += static_cast<int64_t>(stride_ * sizeof(StateId));
    states_[static_cast<size_t>(state)].row = row;
  }
  rows_[static_cast<size_t>(row) * stride_ + byte_class] = next;
  return next;
}

bool Automaton::seen(Place place) {
  const size_t size = table_.size();
  size_t at = static_cast<size_t>(mix(0, key_of(place))) & (size - 1);
  for (;; at = (at + 1) & (size - 1)) {
    if (table_turn_[at] != turn_) break;
    if (table_[at] == place) return true;
  }
  table_turn_[at] = turn_;
  table_[at] = place;
  return false;
}

void Automaton::push(NodeId node, FrameId frame) {
  if (wide_ || seen({node, frame})) return;
  if (++visited_ > 2 * kMaxPlaces) {  // half of the table
    wide_ = true;
    return;
  }
  work_.push_back({node, frame});
}

void Automaton::visit(Place place) {
  const auto node = static_cast<size_t>(place.node);
  next_.need = std::max<int16_t>(
      next_.need, static_cast<int16_t>(depth_of(place.frame) + rules_->height[node]));
  if (rules_->byte_begin[node] != rules_->byte_begin[node + 1]) kernel_.push_back(place);
  for (int32_t i = rules_->jump_begin[node]; i < rules_->jump_begin[node + 1]; ++i) {
    const NodeId to = rules_->jumps[static_cast<size_t>(i)];
    if (fits(to, place.frame)) push(to, place.frame);
  }
  for (int32_t i = rules_->call_begin[node]; i < rules_->call_begin[node + 1]; ++i) {
    visit_call(rules_->calls[static_cast<size_t>(i)], place);
  }
  // A rule that was called at this very place and has read nothing went on in visit_call().
  if (rules_->is_end[node] == 0 || place.frame < 0) return;
  const Frame frame = frames_[static_cast<size_t>(place.frame)];
  for (int32_t i = frame.begin; i < frame.begin + frame.count; ++i) {
    const Place next = continuations_[static_cast<size_t>(i)];
    if (next.node == kAccept) {
      next_.accepting = true;
    } else if (next.node == kEscape) {
      next_.fresh = true;
    } else {
      push(next.node, next.frame);
    }
  }
}

void Automaton::visit_call(const CallEdge& call, Place place) {
  const auto rule = static_cast<size_t>(call.rule);
  const bool tail = rules_->is_tail[static_cast<size_t>(call.to)] != 0;
  const int32_t depth = depth_of(place.frame) + (tail ? 0 : 1);
  if (!tail && !fits(call.to, place.frame)) return;
  const NodeId start = rules_->rules[rule].start;
  if (depth + rules_->height[static_cast<size_t>(start)] > kMaxGrammarDepth) return;

  if (depth_turn_[rule] != closure_ || depth < least_depth_[rule]) {
    // Found only now that this rule is called less deeply: what was left out for its depth may fit.
    shallower_ = shallower_ || depth_turn_[rule] == closure_;
    depth_turn_[rule] = closure_;
    least_depth_[rule] = depth;
  }
  if (slot_turn_[rule] != turn_) {
    slot_turn_[rule] = turn_;
    slot_of_[rule] = static_cast<int32_t>(slots_used_);
    if (slots_used_ == slots_.size()) slots_.emplace_back();
    Slot& fresh = slots_[slots_used_++];
    fresh.rule = call.rule;
    fresh.depth = least_depth_[rule];
    fresh.resolved = -1;
    fresh.callers.clear();
  }
  const int32_t slot = slot_of_[rule];
  slots_[static_cast<size_t>(slot)].callers.push_back({tail ? -1 : call.to, place.frame});
  push(start, ~slot);
  if (rules_->rules[rule].nullable) push(call.to, place.frame);
}

// False: something was left out that would fit; once more.
bool Automaton::close_once() {
  if (++turn_ == 0) {
    std::ranges::fill(table_turn_, 0);
    std::ranges::fill(slot_turn_, 0);
    turn_ = 1;
  }
  work_.clear();
  kernel_.clear();
  slots_used_ = 0;
  visited_ = 0;
  shallower_ = false;
  next_ = {};
  for (const Place& seed : seeds_) push(seed.node, seed.frame);
  while (!work_.empty() && !wide_) {
    const Place place = work_.back();
    work_.pop_back();
    visit(place);
  }
  return !shallower_;
}

StateId Automaton::close(bool stale) {
  if (++closure_ == 0) {
    std::ranges::fill(depth_turn_, 0);
    closure_ = 1;
  }
  wide_ = false;
  while (!close_once() && !wide_) {
  }
  spent_ += static_cast<int64_t>(visited_ + kernel_.size());
  if (wide_ || kernel_.size() > kMaxPlaces) return kTooWide;
  for (Place& place : kernel_) {
    if (place.frame < 0) place.frame = resolve(slot_of(place.frame));
  }
  std::sort(kernel_.begin(), kernel_.end());
  kernel_.erase(std::unique(kernel_.begin(), kernel_.end()), kernel_.end());
  next_.stale = stale;
  return intern_state(next_, kernel_);
}

// Callers come before what they call: without left recursion there is no circle. The depth is
// bounded by kMaxGrammarDepth.
Automaton::FrameId Automaton::resolve(size_t slot) {
  if (slots_[slot].resolved >= 0) return slots_[slot].resolved;
  std::vector<Place> continuations;
  for (size_t i = 0; i < slots_[slot].callers.size(); ++i) {
    const Place caller = slots_[slot].callers[i];
    const FrameId frame = caller.frame >= 0 ? caller.frame : resolve(slot_of(caller.frame));
    if (caller.node >= 0) {
      continuations.push_back({caller.node, frame});
      continue;
    }
    const Frame behind = frames_[static_cast<size_t>(frame)];
    for (int32_t c = behind.begin; c < behind.begin + behind.count; ++c) {
      continuations.push_back(continuations_[static_cast<size_t>(c)]);
    }
  }
  std::sort(continuations.begin(), continuations.end());
  continuations.erase(std::unique(continuations.begin(), continuations.end()), continuations.end());
  return slots_[slot].resolved = intern_frame(continuations);
}

Automaton::FrameId Automaton::intern_frame(std::span<const Place> continuations) {
  if (continuations.size() == 1 && continuations.front().node < 0) {
    return continuations.front().node == kAccept ? kRootFrame : kUnknownFrame;
  }
  const uint64_t hash = hash_of(1, continuations);
  const auto [first, last] = frame_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Frame& frame = frames_[static_cast<size_t>(it->second)];
    const std::span<const Place> known(continuations_.data() + frame.begin,
                                       static_cast<size_t>(frame.count));
    if (std::ranges::equal(known, continuations)) return it->second;
  }
  int32_t depth = kMaxGrammarDepth;
  for (const Place& next : continuations) {
    const int32_t behind = next.node < 0 ? 0 : frames_[static_cast<size_t>(next.frame)].depth + 1;
    depth = std::min(depth, behind);
  }
  const auto id = static_cast<FrameId>(frames_.size());
  frames_.push_back({static_cast<int32_t>(continuations_.size()),
                     static_cast<int32_t>(continuations.size()), depth});
  continuations_.insert(continuations_.end(), continuations.begin(), continuations.end());
  frame_index_.emplace(hash, id);
  bytes_ += static_cast<int64_t>(sizeof(Frame) + continuations.size_bytes()) + kIndexEntry;
  return id;
}

StateId Automaton::intern_state(const State& like, std::span<const Place> places) {
  const uint64_t seed = (like.accepting ? 1U : 0U) + (like.fresh ? 2U : 0U) +
                        (like.stale ? 4U : 0U) + (static_cast<uint64_t>(like.need) << 3);
  const uint64_t hash = hash_of(seed, places);
  const auto [first, last] = state_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const State& state = states_[static_cast<size_t>(it->second)];
    const std::span<const Place> known(places_.data() + state.begin,
                                       static_cast<size_t>(state.count));
    if (state.accepting == like.accepting && state.fresh == like.fresh &&
        state.stale == like.stale && state.need == like.need && std::ranges::equal(known, places)) {
      return it->second;
    }
  }
  State state = like;
  state.begin = static_cast<int32_t>(places_.size());
  state.count = static_cast<int32_t>(places.size());
  state.row = state.mask = -1;
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back(state);
  places_.insert(places_.end(), places.begin(), places.end());
  state_index_.emplace(hash, id);
  bytes_ += static_cast<int64_t>(sizeof(State) + places.size_bytes()) + kIndexEntry;
  return id;
}

StateId Automaton::import(const Automaton& other, StateId state) {
  const State& from = other.states_[static_cast<size_t>(state)];
  // A frame's callers are older than the frame.
  std::vector<FrameId> needed;
  std::unordered_map<FrameId, FrameId> mapped{{kRootFrame, kRootFrame},
                                              {kUnknownFrame, kUnknownFrame}};
  const auto need = [&](FrameId frame) {
    if (mapped.emplace(frame, -1).second) needed.push_back(frame);
  };
  std::vector<Place> places(other.places_.begin() + from.begin,
                            other.places_.begin() + from.begin + from.count);
  for (const Place& place : places) need(place.frame);
  for (size_t i = 0; i < needed.size(); ++i) {
    const Frame& frame = other.frames_[static_cast<size_t>(needed[i])];
    for (int32_t c = frame.begin; c < frame.begin + frame.count; ++c) {
      const Place& next = other.continuations_[static_cast<size_t>(c)];
      if (next.node >= 0) need(next.frame);
    }
  }
  std::sort(needed.begin(), needed.end());
  std::vector<Place> continuations;
  for (const FrameId old : needed) {
    const Frame& frame = other.frames_[static_cast<size_t>(old)];
    continuations.assign(other.continuations_.begin() + frame.begin,
                         other.continuations_.begin() + frame.begin + frame.count);
    for (Place& next : continuations) {
      if (next.node >= 0) next.frame = mapped.at(next.frame);
    }
    std::sort(continuations.begin(), continuations.end());
    mapped[old] = intern_frame(continuations);
  }
  for (Place& place : places) place.frame = mapped.at(place.frame);
  std::sort(places.begin(), places.end());
  return intern_state(from, places);
}

// ---- masks

// Calls visit(state, node index) for every node of the trie that can be reached; it returns whether
// to go on below.
template <class Visit>
void Automaton::walk(const TokenTrie& trie, StateId from, Visit visit) {
  path_[0] = from;
  const auto size = static_cast<int32_t>(trie.size());
  for (int32_t i = 0; i < size;) {
    const TokenTrie::Node& node = trie.nodes[static_cast<size_t>(i)];
    const StateId state = step(path_[node.depth - 1U], node.byte);
    if (state < 0 || !visit(state, i)) {
      met_wide_ = met_wide_ || state == kTooWide;
      i = node.after;
      continue;
    }
    path_[node.depth] = state;
    ++i;
  }
}

// What is allowed at a node of a rule whoever called the rule, and which tokens depend on that.
const Automaton::Base& Automaton::base_of(NodeId node) {
  std::unique_ptr<Base>& slot = bases_[node];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Base>();
  Base& base = *slot;
  seeds_ = {{node, kUnknownFrame}};
  const StateId start = close(false);
  if (start < 0 || states_[static_cast<size_t>(start)].fresh) return base;

  const TokenTrie& trie = vocabulary_->trie();
  base.allowed.assign(words_, 0);
  base.need = states_[static_cast<size_t>(start)].need;
  // With more of them, looking at all tokens is no slower.
  constexpr size_t kMaxUncertain = 1 << 14;
  SubTrie uncertain(trie, path_.size());
  walk(trie, start, [&](StateId id, int32_t index) {
    if (uncertain.tokens() > kMaxUncertain) return false;
    const State& state = states_[static_cast<size_t>(id)];
    const TokenTrie::Node& at = trie.nodes[static_cast<size_t>(index)];
    const int32_t last = trie.nodes[static_cast<size_t>(index) + 1].first_token;
    base.need = std::max<int32_t>(base.need, state.need);
    uncertain.enter(index);
    const bool allowed = state.count > 0 || state.accepting || state.fresh;
    if (!allowed && at.first_token != last) uncertain.add(index);
    for (int32_t t = at.first_token; allowed && t < last; ++t) {
      set_bit(base.allowed, trie.tokens[static_cast<size_t>(t)]);
    }
    return true;
  });
  if (spent_ > kMaxWork || uncertain.tokens() > kMaxUncertain) {
    base = {};
    return base;
  }
  base.uncertain = std::move(uncertain).finish();
  base.usable = true;
  bytes_ += static_cast<int64_t>(base.allowed.size() * sizeof(uint64_t) +
                                 base.uncertain.nodes.size() * sizeof(TokenTrie::Node) +
                                 base.uncertain.tokens.size() * sizeof(int32_t)) +
            kIndexEntry;
  return base;
}

void Automaton::add_base(const Base& base, StateId state, Mask& mask) {
  if (std::ranges::find(mask.bases, &base) != mask.bases.end()) return;
  mask.bases.push_back(&base);
  const TokenTrie& trie = base.uncertain;
  walk(trie, state, [&](StateId, int32_t index) {
    const int32_t last = trie.nodes[static_cast<size_t>(index) + 1].first_token;
    for (int32_t t = trie.nodes[static_cast<size_t>(index)].first_token; t < last; ++t) {
      mask.ids.push_back(trie.tokens[static_cast<size_t>(t)]);
    }
    return true;
  });
}

// nullptr past kMaxWork.
const Automaton::Mask* Automaton::mask_of(StateId id) {
  if (const int32_t known = states_[static_cast<size_t>(id)].mask; known >= 0) {
    return masks_[static_cast<size_t>(known)].get();
  }
  spent_ = 0;
  met_wide_ = false;
  auto mask = std::make_unique<Mask>();
  const State state = states_[static_cast<size_t>(id)];
  bool usable = state.count > 0 && !state.fresh && !state.stale;
  for (int32_t i = state.begin; usable && i < state.begin + state.count; ++i) {
    const Place place = places_[static_cast<size_t>(i)];
    const auto rule = static_cast<size_t>(rules_->rule_of[static_cast<size_t>(place.node)]);
    usable = rules_->rules[rule].callers > 1;
    if (!usable) break;
    const Base& base = base_of(place.node);
    usable = base.usable && depth_of(place.frame) + base.need <= kMaxGrammarDepth;
  }
  if (usable) {
    for (int32_t i = state.begin; i < state.begin + state.count; ++i) {
      add_base(base_of(places_[static_cast<size_t>(i)].node), id, *mask);
    }
  } else {
    constexpr size_t kFewIds = 1024;  // take less room than the bits
    const TokenTrie& trie = vocabulary_->trie();
    walk(trie, id, [&](StateId, int32_t index) {
      const int32_t last = trie.nodes[static_cast<size_t>(index) + 1].first_token;
      for (int32_t t = trie.nodes[static_cast<size_t>(index)].first_token; t < last; ++t) {
        mask->ids.push_back(trie.tokens[static_cast<size_t>(t)]);
      }
      return true;
    });
    if (mask->ids.size() > kFewIds) {
      mask->words.assign(words_, 0);
      for (const int32_t token : mask->ids) set_bit(mask->words, token);
      mask->ids = {};
    }
  }
  // What fits nowhere but in too many places is no dead end either.
  const bool nothing = mask->ids.empty() && mask->words.empty() && mask->bases.empty();
  if (spent_ > kMaxWork || (nothing && met_wide_)) return nullptr;
  mask->ids.shrink_to_fit();
  bytes_ += static_cast<int64_t>(sizeof(Mask) + mask->ids.size() * sizeof(int32_t) +
                                 mask->words.size() * sizeof(uint64_t));
  states_[static_cast<size_t>(id)].mask = static_cast<int32_t>(masks_.size());
  masks_.push_back(std::move(mask));
  return masks_.back().get();
}

bool Automaton::mask(StateId state, std::span<uint64_t> words) {
  std::ranges::fill(words, 0);
  const Mask* found = mask_of(state);
  if (found == nullptr) return false;
  const Mask& mask = *found;
  const std::vector<uint64_t>* first = nullptr;
  if (!mask.words.empty()) {
    first = &mask.words;
  } else if (!mask.bases.empty()) {
    first = &mask.bases.front()->allowed;
  }
  if (first != nullptr) std::ranges::copy(*first, words.begin());
  for (size_t b = 1; b < mask.bases.size(); ++b) {
    const std::vector<uint64_t>& more = mask.bases[b]->allowed;
    for (size_t i = 0; i < more.size(); ++i) words[i] |= more[i];
  }
  for (const int32_t id : mask.ids) set_bit(words, id);
  return true;
}

}  // namespace cedra::decode

// Runs the rules of a grammar over bytes, deterministically and lazily: a state is the set of all
// places where the grammar can be after the text so far, each with the calls it is in. Transitions,
// and which tokens a state allows, are computed once and kept.
//
// Calls of one rule at the same place of the text share one frame, which holds all their
// continuations; so ambiguity costs states in the length of the text and not in the number of
// readings. A call that would be a rule's last step adds no frame. Places that would nest beyond
// kMaxGrammarDepth are left out, and so are those that could only be completed that way: from every
// state some text leads to an end.
//
// Token masks (the idea of XGrammar): inside a rule that many places call, most tokens are allowed
// or not whatever the callers are. That part is computed once per place in the rule; only tokens
// that leave the rule are looked at with the real calls.
//
// Not thread-safe; grammar.h guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "decode/grammar_rules.h"
#include "decode/grammar_vocabulary.h"

namespace cedra::decode {

using StateId = int32_t;
inline constexpr StateId kDeadState = -1;
inline constexpr StateId kTooWide = -2;  // over kMaxPlaces

class Automaton {
 public:
  // Places in one state, at most. Only grammars of great ambiguity need so many.
  static constexpr size_t kMaxPlaces = 1 << 13;
  // Places looked at for one token or one mask, at most: a fraction of a second.
  static constexpr int64_t kMaxWork = int64_t{1} << 23;

  // Both outlive the automaton.
  Automaton(const Rules& rules, const Vocabulary& vocabulary);

  StateId initial() const { return initial_; }
  // Before the steps of a token.
  void begin_token() { spent_ = 0; }
  // kDeadState if the byte does not fit; kTooWide past kMaxPlaces or kMaxWork.
  StateId step(StateId state, uint8_t byte) {
    const State& from = states_[static_cast<size_t>(state)];
    const uint8_t byte_class = rules_->class_of[byte];
    if (from.row >= 0) {
      const StateId known = rows_[static_cast<size_t>(from.row) * stride_ + byte_class];
      if (known != kUnknown) return known;
    }
    return compute_step(state, byte_class);
  }
  // The text may end here.
  bool accepting(StateId state) const { return states_[static_cast<size_t>(state)].accepting; }
  // And it must.
  bool finished(StateId state) const {
    const State& at = states_[static_cast<size_t>(state)];
    return at.accepting && at.count == 0;
  }
  // Sets the bits of the tokens that fit (bit id % 64 of word id / 64), clears all others. False
  // past kMaxWork.
  bool mask(StateId state, std::span<uint64_t> words);

  // The same state here; `other` runs the same rules.
  StateId import(const Automaton& other, StateId state);
  // Memory of what was found out, about; and of the rest, which stays the same.
  int64_t bytes() const { return bytes_; }
  static int64_t fixed_bytes(const Rules& rules);

 private:
  static constexpr StateId kUnknown = -3;
  static constexpr NodeId kAccept = -1;  // continuations that are no nodes
  static constexpr NodeId kEscape = -2;
  using FrameId = int32_t;
  static constexpr FrameId kRootFrame = 0;     // behind it the text ends
  static constexpr FrameId kUnknownFrame = 1;  // behind it anything may follow

  struct Place {
    NodeId node;
    FrameId frame;  // while a closure runs: ~slot for a rule called at this place of the text
    auto operator<=>(const Place&) const = default;
  };
  struct Frame {
    int32_t begin;  // continuations
    int32_t count;
    int32_t depth;
  };
  struct State {
    int32_t begin = 0;  // places
    int32_t count = 0;
    int32_t row = -1;
    int32_t mask = -1;
    int16_t need = 0;  // nesting that the way here came to ask for
    bool accepting = false;
    bool fresh = false;  // an unknown caller goes on from here
    bool stale = false;  // or from before
  };
  struct Slot {
    RuleId rule;
    int32_t depth;
    FrameId resolved;
    std::vector<Place> callers;  // node -1: a tail call
  };
  struct Base {
    std::vector<uint64_t> allowed;
    TokenTrie uncertain;
    int32_t need = 0;
    bool usable = false;
  };
  struct Mask {
    std::vector<const Base*> bases;
    std::vector<int32_t> ids;
    std::vector<uint64_t> words;
  };

  StateId compute_step(StateId state, uint8_t byte_class);
  // Of a frame below zero.
  static size_t slot_of(FrameId frame) {
    const int32_t slot = ~frame;
    return static_cast<size_t>(slot);
  }
  int32_t depth_of(FrameId frame) const {
    return frame >= 0 ? frames_[static_cast<size_t>(frame)].depth : slots_[slot_of(frame)].depth;
  }
  bool fits(NodeId node, FrameId frame) const {
    return depth_of(frame) + rules_->height[static_cast<size_t>(node)] <= kMaxGrammarDepth;
  }
  void push(NodeId node, FrameId frame);
  bool seen(Place place);
  void visit(Place place);
  void visit_call(const CallEdge& call, Place place);
  // Closes seeds_ under everything that reads no byte. kTooWide is possible.
  StateId close(bool stale);
  bool close_once();
  FrameId resolve(size_t slot);
  FrameId intern_frame(std::span<const Place> continuations);
  StateId intern_state(const State& like, std::span<const Place> places);

  template <class Visit>
  void walk(const TokenTrie& trie, StateId from, Visit visit);
  const Base& base_of(NodeId node);
  const Mask* mask_of(StateId state);
  void add_base(const Base& base, StateId state, Mask& mask);

  const Rules* rules_;
  const Vocabulary* vocabulary_;
  size_t stride_;
  StateId initial_ = kDeadState;
  int64_t bytes_ = 0;
  int64_t spent_ = 0;

  std::vector<Frame> frames_;
  std::vector<Place> continuations_;
  std::unordered_multimap<uint64_t, FrameId> frame_index_;
  std::vector<State> states_;
  std::vector<Place> places_;
  std::unordered_multimap<uint64_t, StateId> state_index_;
  std::vector<StateId> rows_;
  std::vector<std::unique_ptr<Mask>> masks_;
  std::unordered_map<NodeId, std::unique_ptr<Base>> bases_;

  // Of one closure.
  std::vector<Place> seeds_, work_, kernel_;
  std::vector<Slot> slots_;
  size_t slots_used_ = 0;
  std::vector<int32_t> slot_of_;  // by rule; valid if slot_turn_ is this turn's
  std::vector<uint32_t> slot_turn_;
  std::vector<int32_t> least_depth_;  // by rule; valid if depth_turn_ is this closure's
  std::vector<uint32_t> depth_turn_;
  std::vector<Place> table_;  // open addressing
  std::vector<uint32_t> table_turn_;
  uint32_t turn_ = 0;
  uint32_t closure_ = 0;
  bool shallower_ = false;
  bool wide_ = false;
  bool met_wide_ = false;  // in walks, since it was reset
  size_t visited_ = 0;
  State next_;
  std::vector<StateId> path_;  // of walk()
  size_t words_;               // of a mask
};

}  // namespace cedra::decode

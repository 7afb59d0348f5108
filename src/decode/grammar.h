// Structured outputs: a grammar says which texts an answer may be, and its state, after each token,
// which tokens may come next (docs/structured_output.md). Any text that ends where complete() is
// true is in the grammar, and from every state an end can be reached.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/grammar_automaton.h"
#include "decode/grammar_rules.h"
#include "decode/grammar_vocabulary.h"

namespace cedra::decode {

// Compiled, shared by any number of answers and threads. Its rules never change; what was found out
// about them on the way (transitions, masks) is kept, up to kCacheBytes.
class Grammar : public std::enable_shared_from_this<Grammar> {
 public:
  static constexpr int64_t kCacheBytes = int64_t{8} << 20;

  // `prefix`: the part of the text that is there already. A new state that refuses it has failed.
  static std::shared_ptr<const Grammar> make(Rules rules,
                                             std::shared_ptr<const Vocabulary> vocabulary,
                                             std::string prefix = {},
                                             int64_t cache_bytes = kCacheBytes);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // Words of a token mask.
  size_t mask_words() const { return (static_cast<size_t>(vocabulary_->size()) + 63) / 64; }
  // Memory, about, with what is kept now. Does not wait for who uses the grammar.
  int64_t bytes() const { return fixed_bytes_ + kept_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class GrammarState;
  Grammar(Rules rules, std::shared_ptr<const Vocabulary> vocabulary, std::string prefix,
          int64_t cache_bytes);

  const Rules rules_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::string prefix_;
  const int64_t cache_bytes_;
  const int64_t fixed_bytes_;
  mutable std::atomic<int64_t> kept_bytes_{0};
  mutable std::mutex mutex_;  // guards all automata of this grammar
  mutable std::shared_ptr<Automaton> automaton_;
};

// Where one answer is in its grammar. Copies are cheap (two pointers and an index): a copy per
// draft position is how speculation looks ahead.
class GrammarState {
 public:
  // Behind the grammar's prefix.
  explicit GrammarState(std::shared_ptr<const Grammar> grammar);

  // Follows a token; false if the grammar does not allow it here, or has become ambiguous beyond
  // what is kept (Automaton::kMaxPlaces). Then nothing is allowed any more.
  bool accept(int32_t token);
  // The same for text (symbols of control tokens included).
  bool accept(std::string_view bytes);
  // The text may end here; and: it can only end here.
  bool complete() const { return complete_; }
  bool finished() const { return finished_; }
  // accept() has said no.
  bool failed() const { return state_ < 0; }
  bool too_ambiguous() const { return state_ == kTooWide; }

  // Tokens that may come next, bit id % 64 of word id / 64; [grammar().mask_words()]. The end of
  // the answer is not among them: that is complete(). False where that takes too long to find out
  // (Automaton::kMaxWork), which only grammars of great ambiguity come to.
  bool mask(std::span<uint64_t> words) const;

  const Grammar& grammar() const { return *grammar_; }

 private:
  bool advance(std::string_view bytes);  // all three under the grammar's mutex
  void settle(StateId state);
  void count() const;  // what the grammar keeps now

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Automaton> automaton_;
  StateId state_ = kDeadState;
  bool complete_ = false;
  bool finished_ = false;
};

}  // namespace cedra::decode

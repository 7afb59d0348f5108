#include "decode/grammar.h"

#include <algorithm>

namespace cedra::decode {
namespace {

int64_t bytes_of(const Rules& rules) {
  const size_t edges = rules.bytes.size() + rules.calls.size() + rules.jumps.size();
  return Automaton::fixed_bytes(rules) + static_cast<int64_t>(edges * 8) + rules.nodes() * 20;
}

}  // namespace

Grammar::Grammar(Rules rules, std::shared_ptr<const Vocabulary> vocabulary, std::string prefix,
                 int64_t cache_bytes)
    : rules_(std::move(rules)),
      vocabulary_(std::move(vocabulary)),
      prefix_(std::move(prefix)),
      cache_bytes_(cache_bytes),
      fixed_bytes_(bytes_of(rules_)),
      automaton_(std::make_shared<Automaton>(rules_, *vocabulary_)) {}

std::shared_ptr<const Grammar> Grammar::make(Rules rules,
                                             std::shared_ptr<const Vocabulary> vocabulary,
                                             std::string prefix, int64_t cache_bytes) {
  return std::shared_ptr<const Grammar>(
      new Grammar(std::move(rules), std::move(vocabulary), std::move(prefix), cache_bytes));
}

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  const std::lock_guard lock(grammar_->mutex_);
  automaton_ = grammar_->automaton_;
  settle(automaton_->initial());
  advance(grammar_->prefix_);
}

void GrammarState::settle(StateId state) {
  state_ = state;
  complete_ = state >= 0 && automaton_->accepting(state);
  finished_ = state >= 0 && automaton_->finished(state);
}

bool GrammarState::accept(int32_t token) {
  const std::string_view bytes = grammar_->vocabulary().bytes(token);
  if (!bytes.empty()) return accept(bytes);
  const std::lock_guard lock(grammar_->mutex_);
  settle(kDeadState);
  return false;
}

bool GrammarState::accept(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  return advance(bytes);
}

bool GrammarState::advance(std::string_view bytes) {
  if (state_ < 0) return false;
  // What was kept has become too much: start over with what this answer needs. Others move on when
  // they come here; the last one takes the old automaton with it.
  std::shared_ptr<Automaton>& current = grammar_->automaton_;
  if (current->bytes() > grammar_->cache_bytes_) {
    current = std::make_shared<Automaton>(grammar_->rules_, grammar_->vocabulary());
  }
  if (automaton_ != current) {
    state_ = current->import(*automaton_, state_);
    automaton_ = current;
  }
  automaton_->begin_token();
  StateId state = state_;
  for (const char c : bytes) {
    state = automaton_->step(state, static_cast<uint8_t>(c));
    if (state < 0) break;
  }
  settle(state);
  count();
  return state >= 0;
}

void GrammarState::count() const {
  if (automaton_ == grammar_->automaton_) {
    grammar_->kept_bytes_.store(automaton_->bytes(), std::memory_order_relaxed);
  }
}

bool GrammarState::mask(std::span<uint64_t> words) const {
  if (state_ < 0) {
    std::ranges::fill(words, 0);
    return true;
  }
  const std::lock_guard lock(grammar_->mutex_);
  const bool found = automaton_->mask(state_, words);
  count();
  return found;
}

}  // namespace cedra::decode

#include "engine/speculation.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

namespace cedra::engine {
namespace {

// Rows of taps that wait for each other.
constexpr int64_t kPendingRows = 16;

int64_t tap_elements(const TextConfig& text) {
  return static_cast<int64_t>(text.dspark_target_layer_ids.size()) * text.hidden_size;
}

model::DraftLimits draft_limits(const SpeculativeConfig& config, int64_t slots, int64_t max_rows) {
  return {.max_requests = std::min(slots, max_rows / config.num_speculative_tokens),
          .max_rows = max_rows};
}

}  // namespace

// Drafts by the rules of their requests: drawn, or the likeliest. A workspace: copies of requests
// go where earlier ones were.
class Speculation::Chooser final : public model::DraftChooser {
 public:
  explicit Chooser(Speculation& owner) : owner_(owner), requests_(owner.slots_.size()) {}

  void begin(std::span<const DraftJob> jobs) {
    for (size_t n = 0; n < owner_.chosen_.size(); ++n) {
      const DraftJob& job = jobs[owner_.chosen_[n]];
      Request& request = requests_[n];
      request.fork = *job.sampling;
      request.dice = {job.sampling->params().seed, job.sampling->position()};
      request.drawn = owner_.slots_[static_cast<size_t>(job.slot)].drawn;
    }
  }
  void end() {
    for (size_t n = 0; n < owner_.chosen_.size(); ++n) requests_[n].fork->release_grammar();
  }

  int32_t choose(int64_t request, int64_t slot, std::span<const float> logits) override {
    Request& at = requests_[static_cast<size_t>(request)];
    const Result<int32_t> id = at.drawn ? owner_.verifier_.draft(logits, *at.fork, at.dice, slot)
                                        : owner_.verifier_.likeliest(logits, *at.fork);
    // Broken logits, or a history after which nothing is allowed: any draft will be refused.
    if (!id) return 0;
    at.fork->accept(*id);
    return *id;
  }

 private:
  struct Request {
    std::optional<decode::SequenceSampling> fork;
    decode::SeededDice dice{0, 0};
    bool drawn = false;
  };
  Speculation& owner_;
  std::vector<Request> requests_;  // as in owner_.chosen_
};

Result<std::unique_ptr<Speculation>> Speculation::create(const model::Model& model,
                                                         const kernels::Ops& ops, Team& team,
                                                         const SpeculativeConfig& config,
                                                         int64_t slots, int64_t max_rows,
                                                         std::span<const int32_t> forbidden) {
  std::unique_ptr<Speculation> out(new Speculation(model, config, slots, forbidden));
  out->max_rows_ = max_rows;
  CEDRA_ASSIGN(out->drafter_,
               model::Drafter::create(model, ops, team, draft_limits(config, slots, max_rows)));
  return out;
}

Speculation::Speculation(const model::Model& model, const SpeculativeConfig& config, int64_t slots,
                         std::span<const int32_t> forbidden)
    : config_(config),
      tap_width_(tap_elements(model.text())),
      vocab_(model.text().vocab_size),
      policy_(config.num_speculative_tokens, config.enable_adaptive_verification,
              config.compares()),
      verifier_(vocab_, forbidden) {
  slots_.reserve(static_cast<size_t>(slots));
  for (int64_t i = 0; i < slots; ++i) {
    slots_.push_back({.state = model::DraftState(model.text()),
                      .rows = std::vector<bf16>(static_cast<size_t>(kPendingRows * tap_width_))});
  }
  commits_.reserve(slots_.size());
  requests_.reserve(slots_.size());
  drafting_.reserve(slots_.size());
  chosen_.reserve(slots_.size());
  offers_.reserve(slots_.size());
  chooser_ = std::make_unique<Chooser>(*this);
}

Speculation::~Speculation() = default;

int64_t Speculation::bytes(const TextConfig& text, const SpeculativeConfig& config, int64_t slots,
                           int64_t max_rows, int threads) {
  // Copies of requests with penalties: of those that are drafted for, and of one that is verified.
  const int64_t forks = (slots + 1) * text.vocab_size * decode::SequenceSampling::kBytesPerToken;
  return model::Drafter::workspace_bytes(text, draft_limits(config, slots, max_rows), threads) +
         slots * (model::DraftState::slot_bytes(text) +
                  kPendingRows * tap_elements(text) * int64_t{sizeof(bf16)}) +
         text.vocab_size * decode::Verifier::kBytesPerToken + forks;
}

// ---- windows

void Speculation::reset(int64_t slot) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  s.state.reset();
  s.pending = 0;
  s.proposal = -1;
}

void Speculation::commit(int64_t slot, model::Taps taps) {
  if (taps.count == 0) return;
  Slot& s = slots_[static_cast<size_t>(slot)];
  const bool follows = s.pending == 0 || s.pending_at + s.pending == taps.position;
  if (!follows || s.pending + taps.count > kPendingRows) flush(slot);
  if (taps.count > kPendingRows) {
    const model::DraftCommit commit{&s.state, taps};
    drafter_->commit({&commit, 1});
    return;
  }
  if (s.pending == 0) s.pending_at = taps.position;
  std::memcpy(s.rows.data() + s.pending * tap_width_, taps.rows,
              static_cast<size_t>(taps.count * tap_width_) * sizeof(bf16));
  s.pending += taps.count;
}

void Speculation::flush(std::span<const int64_t> slots) {
  commits_.clear();
  for (const int64_t slot : slots) {
    Slot& s = slots_[static_cast<size_t>(slot)];
    if (s.pending == 0) continue;
    commits_.push_back(
        {&s.state, {.position = s.pending_at, .count = s.pending, .rows = s.rows.data()}});
    s.pending = 0;
  }
  drafter_->commit(commits_);
}

void Speculation::snapshot(int64_t slot, uint8_t* out) {
  flush(slot);
  const std::span<const uint8_t> bytes = slots_[static_cast<size_t>(slot)].state.bytes();
  std::ranges::copy(bytes, out);
}

void Speculation::restore(int64_t slot, const uint8_t* record, int64_t position) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  const std::span<uint8_t> bytes = s.state.bytes();
  std::copy_n(record, bytes.size(), bytes.begin());
  s.state.start = 0;
  s.state.committed = position;
  s.pending = 0;
}

// ---- drafts

int64_t Speculation::propose(std::span<DraftJob> jobs, int64_t rows, int64_t decoding,
                             int64_t room) {
  for (Slot& slot : slots_) slot.proposal = -1;
  for (DraftJob& job : jobs) job.drafts->clear();
  if (jobs.empty() || room <= 0 || !policy_.wants_drafts(decoding)) return 0;

  // Where not all of them fit into a proposal, they take turns.
  const size_t most = static_cast<size_t>(max_rows_ / width());
  chosen_.clear();
  drafting_.clear();
  requests_.clear();
  const size_t first = jobs.size() > most ? turn_++ % jobs.size() : 0;
  bool any_rules = false;
  for (size_t n = 0; n < jobs.size() && chosen_.size() < most; ++n) {
    const size_t i = (first + n) % jobs.size();
    DraftJob& job = jobs[i];
    if (job.most <= 0) continue;
    Slot& slot = slots_[static_cast<size_t>(job.slot)];
    slot.proposal = static_cast<int64_t>(chosen_.size());
    slot.drawn = config_.draft_sample_method == DraftSampling::kProbabilistic &&
                 config_.forcing == nullptr && job.sampling->params().temperature != 0;
    any_rules |= slot.drawn || job.sampling->has_rules();
    chosen_.push_back(i);
    drafting_.push_back(job.slot);
    requests_.push_back({&slot.state, job.tokens.back(), width()});
  }
  if (chosen_.empty()) return 0;
  flush(drafting_);
  if (any_rules) {
    chooser_->begin(jobs);
    drafter_->propose(requests_, chooser_.get());
    chooser_->end();
  } else {
    drafter_->propose(requests_);
  }

  offers_.clear();
  for (size_t n = 0; n < chosen_.size(); ++n) {
    const model::Draft draft = drafter_->draft(static_cast<int64_t>(n));
    DraftJob& job = jobs[chosen_[n]];
    job.drafts->assign(draft.tokens.begin(), draft.tokens.end());
    if (config_.forcing != nullptr) config_.forcing->force(job.tokens, *job.drafts);
    int64_t useful = std::min(job.most, width());
    // Nothing follows the end of an answer. This looks at no draft that is left out.
    for (int64_t k = 0; k < useful; ++k) {
      const int32_t id = (*job.drafts)[static_cast<size_t>(k)];
      if (std::ranges::count(job.sampling->params().end_ids, id) > 0) useful = k + 1;
    }
    offers_.push_back({.confidence = draft.confidence, .most = useful});
  }
  policy_.choose(offers_, rows, decoding, room);
  for (size_t n = 0; n < chosen_.size(); ++n) {
    jobs[chosen_[n]].drafts->resize(static_cast<size_t>(offers_[n].length));
  }
  return static_cast<int64_t>(chosen_.size()) * width();
}

std::span<const float> Speculation::drafted_logits(int64_t slot) const {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  assert(s.proposal >= 0);
  if (!s.drawn) return {};
  return {drafter_->draft(s.proposal).logits,
          static_cast<size_t>(config_.num_speculative_tokens * vocab_)};
}

std::span<const float> Speculation::confidence(int64_t slot) const {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  assert(s.proposal >= 0);
  return drafter_->draft(s.proposal).confidence;
}

}  // namespace cedra::engine

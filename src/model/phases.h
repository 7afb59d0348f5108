// Where the time of a step goes, by component: for `cedra bench model`. Off unless
// Forward::measure() was called; then a step reads the clock some twenty times per layer. Nothing
// is allocated.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace cedra::model {

enum class Phase : uint8_t {
  kIdle,        // outside of a step
  kOther,       // embeddings, rotations, what is between the parts below
  kHyper,       // hyper-connections and norms around the sublayers
  kEngram,      // table rows, their projection and gates
  kAttention,   // projections of queries, window keys and output
  kCompressor,  // compressed rows and index keys of KV sources
  kIndexer,     // index queries, scores, selection
  kAttend,      // gathering the list's records, attention over them
  kRouter,
  kExperts,  // routed and shared
  kHead,     // final norm and logits
};
inline constexpr size_t kPhases = 11;

inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {"idle",
                                                                      "other",
                                                                      "hyper-connections",
                                                                      "engram",
                                                                      "attention projections",
                                                                      "compressor",
                                                                      "indexer",
                                                                      "attend",
                                                                      "router",
                                                                      "experts",
                                                                      "head"};

class PhaseTimes {
 public:
  // The time since the last change counts for the phase that was on. Returns that phase.
  Phase enter(Phase next) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(now_)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
    const Phase before = now_;
    now_ = next;
    return before;
  }
  void add_experts(int64_t count) { experts_ += count; }

  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }
  // Routed experts that had at least one row, over all layers.
  int64_t experts() const { return experts_; }
  void clear() {
    seconds_ = {};
    experts_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  Phase now_ = Phase::kIdle;
  std::array<double, kPhases> seconds_ = {};
  int64_t experts_ = 0;
};

// The phase for as long as the object lives; nothing where times are not kept.
class PhaseScope {
 public:
  PhaseScope(PhaseTimes* times, Phase phase) : times_(times) {
    if (times_ != nullptr) before_ = times_->enter(phase);
  }
  ~PhaseScope() {
    if (times_ != nullptr) times_->enter(before_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseTimes* times_;
  Phase before_ = Phase::kIdle;
};

}  // namespace cedra::model

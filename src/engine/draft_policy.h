// How many drafts are worth verifying, and whether drafting is worth its time at all. Pure: no
// clocks, no model; times and outcomes come in as numbers.
//
// A step's time is known as a function of its rows, measured while running. A draft is admitted
// while the time that its token would save is more than the time that its row adds. Gains and
// losses against plain decoding are accounted for step by step; when they add up to a loss,
// drafting stops, and comes back for a few steps when the time since has made their loss
// negligible.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace cedra::engine {

// Seconds of a step against its rows.
class StepCost {
 public:
  void add(int64_t rows, double seconds);
  // Interpolated between what was measured; beyond it, with the last slope.
  double at(int64_t rows) const;
  // Steps since these rows were measured; very many if they never were.
  int64_t age(int64_t rows) const;

 private:
  static constexpr size_t kBuckets = 128;
  struct Bucket {
    double rows = 0;
    double seconds = 0;
    int64_t added = 0;  // count_ at the last time, 0: never
  };
  static size_t bucket(int64_t rows);
  std::array<Bucket, kBuckets> buckets_;
  int64_t count_ = 0;
};

// Drafts of one request, and how many of them are to be verified.
struct DraftOffer {
  std::span<const float> confidence;  // before the sigmoid; that a draft stands if those before do
  int64_t most = 0;
  int64_t length = 0;  // out, at most `most`
};

struct StepOutcome {
  int64_t rows = 0;         // of the step
  int64_t prompt_rows = 0;  // of them
  int64_t decoding = 0;     // requests that got a token or more
  int64_t tokens = 0;       // that they got
  bool drafted = false;
  double draft_seconds = 0;
  double step_seconds = 0;  // without drafting
};

class DraftPolicy {
 public:
  // `adaptive` false: always draft and verify everything. `foresight`: lengths may depend on all
  // confidences; otherwise the drafts of a step decide only who gets how many, not how many there
  // are, as the laws of drawn drafts demand.
  DraftPolicy(int64_t width, bool adaptive, bool foresight);

  // Whether to draft in the next step, for `decoding` requests.
  bool wants_drafts(int64_t decoding);

  // Lengths of all offers; at most `room` drafts together. `rows`: of the step without them.
  void choose(std::span<DraftOffer> offers, int64_t rows, int64_t decoding, int64_t room);

  // What became of one request's drafts: of `verified`, the first `accepted` stood.
  void learn(std::span<const float> confidence, int64_t verified, int64_t accepted);
  void learn(const StepOutcome& outcome);

  bool on() const { return state_ != State::kOff; }

 private:
  enum class State : uint8_t { kProbing, kOn, kOff };
  struct Slot {
    double reached = 0;
    double stood = 0;
    double promised = 0;  // sum of confidences
  };
  double chance(size_t slot, float confidence) const;
  double base_rate(size_t slot) const;

  bool adaptive_;
  bool foresight_;
  StepCost cost_;
  std::vector<Slot> slots_;  // per position of a block, decayed
  std::vector<double> survival_;
  State state_ = State::kProbing;
  int64_t drafted_steps_ = 0;  // in this state
  double gain_ = 0;            // seconds, decayed while on
  double spent_ = 0;           // seconds of plain decoding that it is measured against
  double wait_ = 0;            // seconds until the next probe
};

}  // namespace cedra::engine

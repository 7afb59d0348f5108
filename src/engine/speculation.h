// The engine's side of the draft stages: windows that follow every committed row, proposals, and
// verdicts on them. Internal to engine/; engine thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"
#include "decode/speculative.h"
#include "engine/draft_policy.h"
#include "engine/speculative_config.h"
#include "model/draft.h"

namespace cedra::engine {

// The drafts of one request for the next step.
struct DraftJob {
  int64_t slot = 0;
  std::span<const int32_t> tokens;  // prompt and answer so far, the anchor last
  const decode::SequenceSampling* sampling = nullptr;
  int64_t most = 0;              // drafts that can be of use
  std::vector<int32_t>* drafts;  // out: those to verify
};

class Speculation {
 public:
  // Takes all its memory. `slots`: requests at once; `max_rows`: of a proposal.
  static Result<std::unique_ptr<Speculation>> create(const model::Model& model,
                                                     const kernels::Ops& ops, Team& team,
                                                     const SpeculativeConfig& config, int64_t slots,
                                                     int64_t max_rows,
                                                     std::span<const int32_t> forbidden);
  ~Speculation();

  int64_t width() const { return config_.num_speculative_tokens; }
  int64_t tap_width() const { return tap_width_; }
  const SpeculativeConfig& config() const { return config_; }
  DraftPolicy& policy() { return policy_; }

  // ---- windows

  // A new request in the slot, at position 0.
  void reset(int64_t slot);
  // Taps of rows that are now committed. Few rows wait until somebody needs the windows: the
  // projections cost the same for one row as for several.
  void commit(int64_t slot, model::Taps taps);
  // Windows at the last committed position, [snapshot_bytes()]: taken, and brought back at
  // `position`.
  void snapshot(int64_t slot, uint8_t* out);
  void restore(int64_t slot, const uint8_t* record, int64_t position);
  static int64_t snapshot_bytes(const TextConfig& text) {
    return model::DraftState::slot_bytes(text);
  }

  // ---- drafts

  // Fills `drafts` of the jobs; at most `room` all together, beside `rows` rows and `decoding`
  // requests. Returns how many tokens were drafted. `drafts` are empty where it does not pay.
  int64_t propose(std::span<DraftJob> jobs, int64_t rows, int64_t decoding, int64_t room);
  // Whether the last propose() drafted for the slot.
  bool drafted(int64_t slot) const { return slots_[static_cast<size_t>(slot)].proposal >= 0; }
  // Of the slot's last proposal: what the drafts were drawn from, [width, V]; empty if they are
  // certain.
  std::span<const float> drafted_logits(int64_t slot) const;
  std::span<const float> confidence(int64_t slot) const;
  decode::Verifier& verifier() { return verifier_; }

  // Memory beside the draft stages' weights.
  static int64_t bytes(const TextConfig& text, const SpeculativeConfig& config, int64_t slots,
                       int64_t max_rows, int threads);

 private:
  struct Slot {
    model::DraftState state;
    // Committed taps that are not in the windows yet: of positions [pending_at, + pending).
    std::vector<bf16> rows;
    int64_t pending_at = 0;
    int64_t pending = 0;
    int64_t proposal = -1;  // in the last propose()
    bool drawn = false;
  };
  class Chooser;

  Speculation(const model::Model& model, const SpeculativeConfig& config, int64_t slots,
              std::span<const int32_t> forbidden);
  void flush(std::span<const int64_t> slots);
  void flush(int64_t slot) { flush({&slot, 1}); }

  SpeculativeConfig config_;
  int64_t tap_width_;
  int64_t vocab_;
  int64_t max_rows_ = 0;
  std::unique_ptr<model::Drafter> drafter_;
  std::vector<Slot> slots_;
  DraftPolicy policy_;
  decode::Verifier verifier_;
  uint64_t turn_ = 0;

  std::vector<model::DraftCommit> commits_;
  std::vector<model::DraftRequest> requests_;
  std::vector<int64_t> drafting_;  // slots
  std::vector<size_t> chosen_;     // jobs
  std::vector<DraftOffer> offers_;
  std::unique_ptr<Chooser> chooser_;
};

}  // namespace cedra::engine

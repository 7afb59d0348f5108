// DSpark: the draft stages of a checkpoint, which propose a block of tokens in one pass (spec
// dspark.md 3 to 5). Their context comes from the backbone alone: taps of committed positions go
// into a window of FP8 records per stage. A proposal leaves nothing behind, so rejected tokens need
// no undoing: their taps are simply not committed.
//
// A draft depends on the committed taps, the anchor and the width, and on nothing else: not on how
// commits were cut, on the other requests of a call, on threads. No allocation after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/forward.h"
#include "model/model.h"
#include "parallel/team.h"

namespace cedra::model {

// The draft windows of one sequence: a slot that requests occupy in turn.
class DraftState {
 public:
  explicit DraftState(const TextConfig& config);

  // Back to position 0.
  void reset();

  // Records of positions [start, committed) have been written; the newest W of them are there.
  int64_t start = 0;
  int64_t committed = 0;

  // Record of `position` in the window of `stage`: codes, then scales.
  uint8_t* record(int64_t stage, int64_t position) {
    return windows_.get() + (stage * window_ + position % window_) * record_bytes_;
  }
  const uint8_t* record(int64_t stage, int64_t position) const {
    return const_cast<DraftState*>(this)->record(stage, position);
  }
  int64_t window() const { return window_; }
  // How many records a query sees.
  int64_t context() const { return std::min(committed - start, window_); }

  // All windows, [stages, W, record] with slot p mod W: to be kept beside start and committed.
  std::span<uint8_t> bytes() { return {windows_.get(), static_cast<size_t>(bytes_)}; }
  static int64_t slot_bytes(const TextConfig& config);

 private:
  int64_t window_;
  int64_t record_bytes_;
  int64_t bytes_;
  std::unique_ptr<uint8_t[]> windows_;
};

struct DraftLimits {
  int64_t max_requests = 1;
  int64_t max_rows = 8;  // of a proposal, over all its requests; commits of any size are cut to it
};

// Taps of the next committed positions of a sequence. A gap after state->committed (rows that a
// bounded prefill dropped) makes the window begin anew; going back takes a reset().
struct DraftCommit {
  DraftState* state = nullptr;
  Taps taps;
};

struct DraftRequest {
  const DraftState* state = nullptr;
  int32_t anchor = 0;  // the newest token, at position `committed`, not yet seen by the backbone
  int64_t width = 0;   // tokens to draft, 1 or more; the stages were trained for dspark_block_size
};

// Valid until the next proposal.
struct Draft {
  std::span<const int32_t> tokens;    // [width], for the positions after the anchor's
  const float* logits = nullptr;      // FP32 [width, V], Markov bias included
  std::span<const float> confidence;  // [width], raw: before the sigmoid
};

// Draws the tokens of a proposal; each one decides about the logits of the next slot.
class DraftChooser {
 public:
  virtual int32_t choose(int64_t request, int64_t slot, std::span<const float> logits) = 0;

 protected:
  ~DraftChooser() = default;
};

class Drafter {
 public:
  // Errors: kUnsupported if the model has no draft stages, kInvalid for limits without room.
  static Result<std::unique_ptr<Drafter>> create(const Model& model, const kernels::Ops& ops,
                                                 Team& team, const DraftLimits& limits);
  ~Drafter();

  void commit(std::span<const DraftCommit> commits);

  // One pass over the blocks of all requests; widths add up to at most max_rows. Without a chooser
  // the arg-max is taken, ties to the lower id.
  void propose(std::span<const DraftRequest> requests, DraftChooser* chooser = nullptr);
  Draft draft(int64_t request) const;

  static int64_t workspace_bytes(const TextConfig& config, const DraftLimits& limits, int threads);
  // 0xFF into every workspace: stale values must never matter (tests).
  void poison();

 private:
  struct Impl;
  explicit Drafter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cedra::model

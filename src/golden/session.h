// A small self-contained inference session: one checkpoint folder, one kernel level, sequences on
// demand. What golden/ and tests run; the engine has its own.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/block_pool.h"
#include "cache/sequence.h"
#include "kernels/ops.h"
#include "model/draft.h"
#include "model/forward.h"
#include "model/model.h"
#include "parallel/team.h"

namespace cedra::golden {

struct SessionOptions {
  std::string_view isa = "";  // "" = fastest
  int threads = 0;
  int64_t max_rows = 0;       // 0 = the context length
  int64_t block_tokens = 16;  // rounded up to a multiple of every ratio
  int64_t sequences = 1;      // blocks for this many full contexts
  int64_t draft_rows = 0;     // of a proposal, 0 = blocks of 8 for all sequences
};

// The folder's model with its tokenizer's compressed token map.
Result<std::unique_ptr<model::Model>> load_model(const std::filesystem::path& folder);

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(const model::Model& model,
                                                 const SessionOptions& options);

  // An empty sequence; its blocks go back with it.
  struct Release {
    Session* session;
    void operator()(cache::Sequence* sequence) const;
  };
  using SequencePtr = std::unique_ptr<cache::Sequence, Release>;
  SequencePtr new_sequence();

  // Takes blocks so that the sequence can hold `tokens`.
  void reserve(cache::Sequence& sequence, int64_t tokens);

  // Runs the next tokens in one step and returns the logits of the wanted rows, [rows, V].
  std::vector<float> run(cache::Sequence& sequence, std::span<const int32_t> tokens,
                         model::Want want, model::Probe* probe = nullptr);
  // The same for any segment.
  std::vector<float> run(const model::Segment& segment, model::Probe* probe = nullptr);

  model::Forward& forward() { return *forward_; }
  // Null for a model without draft stages.
  model::Drafter* drafter() { return drafter_.get(); }
  cache::BlockPool& pool() { return *pool_; }
  const model::Model& model() const { return model_; }
  const kernels::Ops& ops() const { return *ops_; }
  Team& team() { return *team_; }
  int64_t max_rows() const { return max_rows_; }

 private:
  explicit Session(const model::Model& model) : model_(model) {}
  const model::Model& model_;
  const kernels::Ops* ops_ = nullptr;
  int64_t max_rows_ = 0;
  std::unique_ptr<Team> team_;
  std::unique_ptr<cache::BlockPool> pool_;
  std::unique_ptr<model::Forward> forward_;
  std::unique_ptr<model::Drafter> drafter_;
  cache::SequenceLimits sequence_limits_;
};

}  // namespace cedra::golden

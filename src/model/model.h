// A loaded model: weights in place, and everything that follows from the config once. Immutable and
// shared by all threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/draft_weights.h"
#include "model/engram_hasher.h"
#include "model/weights.h"

namespace cedra::model {

class Model {
 public:
  // token_map: compressed token map of the folder's tokenizer (text::compressed_token_map), only
  // read if the config has Engram layers. kCorrupt if its number of keys is not the config's.
  static Result<std::unique_ptr<Model>> create(Checkpoint checkpoint,
                                               std::vector<int32_t> token_map,
                                               int64_t token_map_size);

  const Config& config() const { return checkpoint_.config(); }
  const TextConfig& text() const { return checkpoint_.config().text; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Weights& weights() const { return weights_; }
  // Null for a checkpoint without draft stages, or opened without them.
  const DraftWeights* draft() const { return draft_ ? &*draft_ : nullptr; }
  const EngramHasher* hasher() const { return hasher_.get(); }  // null without Engram

  // Layers with ratio 0 / with a ratio (model.md 4.4).
  const std::vector<float>& window_frequencies() const { return window_frequencies_; }
  const std::vector<float>& compressed_frequencies() const { return compressed_frequencies_; }

  // Weight bytes that one decoded token reads: dense, shared, K routed experts, head, and the rows
  // of the Engram tables; without the cache.
  int64_t bytes_per_token() const;

 private:
  explicit Model(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  Checkpoint checkpoint_;
  Weights weights_;
  std::optional<DraftWeights> draft_;
  std::unique_ptr<EngramHasher> hasher_;
  std::vector<float> window_frequencies_;
  std::vector<float> compressed_frequencies_;
};

}  // namespace cedra::model

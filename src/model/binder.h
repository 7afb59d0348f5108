// Looks the tensors of a checkpoint up by name and turns them into what the forward pass reads. It
// remembers the first failure, so that binding reads as a list. Internal to model/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/weights.h"

namespace cedra::model {

class Binder {
 public:
  // Copies of vectors go to `vectors`, which has to outlive what is bound.
  Binder(const Checkpoint& checkpoint, std::vector<std::unique_ptr<uint8_t[]>>& vectors)
      : checkpoint_(checkpoint), vectors_(vectors) {}

  // `name`.weight, with its scales where the type has them.
  kernels::Matrix matrix(const std::string& name);
  // A small tensor, copied.
  template <class T>
  const T* vector(const std::string& name) {
    return reinterpret_cast<const T*>(copy(name));
  }
  // A big tensor, in place.
  const uint8_t* bytes(const std::string& name);

  // A block without Engram: norms, hyper-connections, attention (with compressor and indexer where
  // `layer` is a source) and `experts` experts. `vision`: with the routing bias of image rows.
  LayerWeights block(const std::string& prefix, int64_t layer, int64_t experts, bool vision);

  const std::optional<Error>& error() const { return error_; }

 private:
  const uint8_t* copy(const std::string& name);
  void fail(const std::string& name, std::string_view why);
  ExpertWeights expert(const std::string& prefix);
  HyperWeights hyper(const std::string& prefix);
  AttentionWeights attention(const std::string& prefix, int64_t layer);
  MoeWeights moe(const std::string& prefix, int64_t experts, bool vision);

  const Checkpoint& checkpoint_;
  std::vector<std::unique_ptr<uint8_t[]>>& vectors_;
  std::optional<Error> error_;
};

}  // namespace cedra::model

// Typed access to expected.safetensors and expected.json. Internal to golden/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace cedra::golden {

// What the reference itself shows when it sums in float32.
struct Noise {
  double median = 0;
  double p90 = 0;
  double argmax_agreement = 1;
};

class Expected {
 public:
  static Result<Expected> load(const std::filesystem::path& folder);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<int64_t> shape(const std::string& name) const { return tensors_.at(name).shape; }
  // BF16 or F32 -> float; I32 or I64 -> int64. Empty for an unknown name.
  std::vector<float> floats(const std::string& name) const;
  std::vector<int64_t> integers(const std::string& name) const;
  std::vector<int32_t> ids(const std::string& name) const;

  std::vector<std::string> names() const;
  // "seq1", "seq17", ... in number order; likewise for "image".
  std::vector<std::string> numbered(const std::string& kind) const;
  std::optional<Noise> noise(const std::string& sequence) const;
  bool has_noise() const { return !noise_.empty(); }

  // Whether the inputs can be run: every group has its ids, ids are in the vocabulary, rows are
  // positions. kCorrupt, naming the item.
  Result<> check_inputs(int64_t vocab_size) const;

 private:
  Expected() = default;
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, Noise> noise_;
};

}  // namespace cedra::golden

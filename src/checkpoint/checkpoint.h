// A checkpoint folder, opened: config, mapped shards, and every tensor checked against the registry
// (spec model.md 2). Either all tensors that the model needs are there, with the right type and
// shape, or open() fails and says everything that differs. docs/checkpoint.md is the user's view.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/dtype.h"
#include "checkpoint/registry.h"

namespace cedra {

// How many of the values open() looks at. NaN codes and infinities are errors.
enum class Verify {
  kHeaders,  // none
  kDense,    // everything but routed experts and Engram tables
  kAll,      // everything: one pass over all bytes
};

struct OpenOptions {
  bool follow_symlinks = false;      // let links lead out of the folder
  bool language_model_only = false;  // skip vision.*, aligner.*, image_*, gate.bias_vl
  bool skip_draft = false;           // skip mtp.*
  bool convert_norms = false;  // take F32 or F16 where BF16 norms and draft heads are expected
  Verify verify = Verify::kDense;
  int threads = 0;  // for value checks; 0 = one per hardware thread, at most 8
};

// One tensor in its mapped shard. `data` lies in the Checkpoint and may have any alignment.
struct TensorView {
  Dtype dtype = Dtype::kBf16;  // the registry's: U8 of other writers reads as I8 or F8_E8M0
  Component component = Component::kEmbed;
  std::vector<int64_t> shape;  // row-major
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  int32_t shard = -1;  // index in shards()
};

// A weight with its scales, as the kernels want it; not owned.
struct WeightRef {
  Dtype dtype = Dtype::kBf16;  // kI8 = packed FP4
  const uint8_t* data = nullptr;
  const uint8_t* scale = nullptr;  // E8M0, nullptr without scales
  int64_t rows = 0;                // 1 for vectors
  int64_t cols = 0;                // elements: twice the bytes of a packed FP4 row
};

struct Shard {
  std::string name;
  int64_t file_bytes = 0;
  int64_t tensors = 0;
};

struct SkippedTensor {
  std::string name;
  std::string reason;
};

// Move-only; immutable after open(), so any thread may read.
class Checkpoint {
 public:
  // kNotFound, kIo, kCorrupt, kInvalid; the message names the folder and lists the differences.
  static Result<Checkpoint> open(const std::filesystem::path& folder,
                                 const OpenOptions& options = {});

  // Switched-off parts read as absent: no vision with language_model_only, no draft stages with
  // skip_draft.
  const Config& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }

  // By the release's name ("layers.0.attn.wq_a.weight"), whatever the files spell. nullptr for
  // anything that the config does not have.
  const TensorView* find(std::string_view name) const;

  // `name` with its scales: "X" finds X.weight and X.scale, or the bare tensor X.
  Result<WeightRef> weight(std::string_view name) const;

  const std::vector<Shard>& shards() const { return shards_; }
  const std::vector<SkippedTensor>& skipped() const { return skipped_; }
  // Those of the config and of the load, for the user to read once.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The inventory in registry order: every tensor that find() knows.
  const std::vector<TensorSpec>& inventory() const { return inventory_; }

  // Reads the chosen components into memory and waits. `progress`, if any, gets bytes done and in
  // total, from one thread at a time.
  Result<> populate(const std::function<bool(Component)>& wanted, int threads,
                    const std::function<void(int64_t, int64_t)>& progress) const;
  // A hint on how the tensors of a component will be read.
  void advise(Component component, Access access) const;

 private:
  friend class CheckpointLoader;
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  using TensorMap = std::unordered_map<std::string, TensorView, NameHash, std::equal_to<>>;

  std::filesystem::path folder_;
  Config config_;
  std::vector<TensorSpec> inventory_;
  std::vector<Shard> shards_;
  std::vector<MappedFile> files_;                  // one per shard; empty where all was skipped
  std::vector<std::unique_ptr<uint8_t[]>> owned_;  // converted tensors
  TensorMap tensors_;
  std::vector<SkippedTensor> skipped_;
  std::vector<std::string> warnings_;
};

// The release's spelling of a name from another packaging (model.md 2.3): drops `model.`, and below
// anything but the vision tower self_attn -> attn, mlp -> ffn, weight_scale_inv -> scale,
// e_score_correction_bias -> bias.
std::string canonical_tensor_name(std::string_view name);

}  // namespace cedra

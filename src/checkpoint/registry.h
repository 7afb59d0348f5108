// Every tensor that a checkpoint of a config holds: name, stored type, shape, component (spec
// model.md 2.1, dspark.md 2, vision.md 2). The loader compares a folder with this list; nothing
// else knows tensor types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/dtype.h"

namespace cedra {

enum class Component : uint8_t {
  kEmbed,      // embed.weight
  kHead,       // head.weight, norm.weight
  kAttention,  // projections, norms and sinks of the backbone
  kCompressor,
  kIndexer,
  kHyperConnections,
  kNorm,  // attn_norm, ffn_norm
  kRouter,
  kSharedExpert,
  kRoutedExperts,
  kEngramTable,  // embed.weight and .scale: read by row
  kEngram,       // projection and gates
  kDraft,        // mtp.* without its routed experts
  kDraftExperts,
  kVision,  // vision.*, aligner.*, image_*
};
inline constexpr int kComponents = 15;
std::string_view component_name(Component component);

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  std::vector<int64_t> shape;
  Component component = Component::kEmbed;
};

// The released config gives 96085 tensors of 510286023000 bytes.
std::vector<TensorSpec> tensor_inventory(const Config& config);

int64_t tensor_bytes(const TensorSpec& spec);

}  // namespace cedra

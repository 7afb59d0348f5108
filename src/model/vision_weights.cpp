#include "model/vision_weights.h"

#include "model/binder.h"

namespace cedra::model {
namespace {

BiasedMatrix biased(Binder& bind, const std::string& name) {
  return {.weight = bind.matrix(name), .bias = bind.vector<bf16>(name + ".bias")};
}

}  // namespace

Result<VisionWeights> bind_vision_weights(const Checkpoint& checkpoint) {
  VisionWeights weights;
  Binder bind(checkpoint, weights.vectors);
  weights.patch_embed = biased(bind, "vision.patch_embed.proj");
  for (int64_t n = 0; n < checkpoint.config().vision->num_hidden_layers; ++n) {
    const std::string prefix = fmt::format("vision.blocks.{}.", n);
    weights.blocks.push_back({.norm1 = bind.vector<bf16>(prefix + "norm1.weight"),
                              .wqkv = biased(bind, prefix + "attn.wqkv"),
                              .wo = biased(bind, prefix + "attn.wo"),
                              .norm2 = bind.vector<bf16>(prefix + "norm2.weight"),
                              .w1 = bind.matrix(prefix + "mlp.w1"),
                              .w2 = bind.matrix(prefix + "mlp.w2")});
  }
  weights.norm = bind.vector<bf16>("vision.norm.weight");
  weights.aligner_w1 = biased(bind, "aligner.w1");
  weights.aligner_w2 = biased(bind, "aligner.w2");
  if (bind.error().has_value()) return std::unexpected(*bind.error());
  return weights;
}

}  // namespace cedra::model

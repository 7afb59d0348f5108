#include "model/weights.h"

#include "model/binder.h"

namespace cedra::model {

Result<Weights> bind_weights(const Checkpoint& checkpoint) {
  const Config& config = checkpoint.config();
  const TextConfig& text = config.text;
  Weights weights;
  Binder bind(checkpoint, weights.vectors);
  weights.embed = bind.bytes("embed.weight");
  weights.norm = bind.vector<bf16>("norm.weight");
  weights.head = bind.matrix("head");
  if (config.vision.has_value()) {
    weights.image_start = bind.vector<bf16>("image_start");
    weights.image_end = bind.vector<bf16>("image_end");
    weights.image_newline = bind.vector<bf16>("image_newline");
  }
  for (int64_t n = 0; n < text.num_hidden_layers; ++n) {
    const std::string prefix = fmt::format("layers.{}.", n);
    LayerWeights layer = bind.block(prefix, n, text.n_routed_experts, config.vision.has_value());
    if (text.engram_index(n) >= 0) {
      EngramWeights engram;
      engram.table = bind.bytes(prefix + "engram.embed.weight");
      engram.table_scales = bind.bytes(prefix + "engram.embed.scale");
      engram.wkv = bind.matrix(prefix + "engram.wkv");
      engram.q_weight = bind.vector<bf16>(prefix + "engram.q_weight");
      engram.k_weight = bind.vector<bf16>(prefix + "engram.k_weight");
      layer.engram = engram;
    }
    weights.layers.push_back(std::move(layer));
  }
  if (bind.error().has_value()) return std::unexpected(*bind.error());
  return weights;
}

}  // namespace cedra::model

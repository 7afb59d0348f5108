#include "model/draft_weights.h"

#include "model/binder.h"

namespace cedra::model {

Result<DraftWeights> bind_draft_weights(const Checkpoint& checkpoint) {
  const TextConfig& text = checkpoint.config().text;
  DraftWeights weights;
  Binder bind(checkpoint, weights.vectors);
  weights.main_proj = bind.matrix("mtp.0.main_proj");
  weights.main_norm = bind.vector<bf16>("mtp.0.main_norm.weight");
  for (int64_t stage = 0; stage < text.num_nextn_predict_layers; ++stage) {
    // Drafts are text: the routing bias of image rows is never used here.
    weights.stages.push_back(bind.block(fmt::format("mtp.{}.", stage),
                                        text.num_hidden_layers + stage,
                                        text.dspark_n_routed_experts, false));
  }
  const std::string last = fmt::format("mtp.{}.", text.num_nextn_predict_layers - 1);
  weights.norm = bind.vector<bf16>(last + "norm.weight");
  weights.markov_embed = bind.bytes(last + "markov_head.embed.weight");
  weights.markov_head = bind.matrix(last + "markov_head.head");
  weights.confidence = bind.matrix(last + "confidence_head.proj");
  if (bind.error().has_value()) return std::unexpected(*bind.error());
  return weights;
}

}  // namespace cedra::model

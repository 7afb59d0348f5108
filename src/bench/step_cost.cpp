#include "bench/step_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/registry.h"
#include "numerics/formats.h"

namespace cedra::bench {
namespace {

using model::Phase;

Phase phase_of(Component component) {
  switch (component) {
    case Component::kAttention:
      return Phase::kAttention;
    case Component::kCompressor:
      return Phase::kCompressor;
    case Component::kIndexer:
      return Phase::kIndexer;
    case Component::kHyperConnections:
    case Component::kNorm:
      return Phase::kHyper;
    case Component::kRouter:
      return Phase::kRouter;
    case Component::kSharedExpert:
    case Component::kRoutedExperts:
      return Phase::kExperts;
    case Component::kEngram:
      return Phase::kEngram;
    case Component::kHead:
      return Phase::kHead;
    default:
      return Phase::kIdle;  // not read by a step, or by row
  }
}

double& at(std::array<double, model::kPhases>& values, Phase phase) {
  return values[static_cast<size_t>(phase)];
}

// Weights that a step reads whole, and their multiplications by `rows` rows; `head_rows` of the
// head. routed_share: of all routed experts' bytes; the multiplications are always K per row.
void add_weights(const Config& config, int64_t rows, int64_t head_rows, double routed_share,
                 bool indexer, StepCost& cost) {
  const TextConfig& text = config.text;
  const double active =
      static_cast<double>(text.num_experts_per_tok) / static_cast<double>(text.n_routed_experts);
  for (const TensorSpec& spec : tensor_inventory(config)) {
    const Phase phase = phase_of(spec.component);
    if (phase == Phase::kIdle || (phase == Phase::kIndexer && !indexer)) continue;
    const bool routed = spec.component == Component::kRoutedExperts;
    const auto bytes = static_cast<double>(tensor_bytes(spec));
    at(cost.bytes, phase) += routed ? bytes * routed_share : bytes;
    if (spec.shape.size() < 2 || spec.dtype == Dtype::kF8E8M0) continue;
    double elements = bytes / static_cast<double>(dtype_bytes(spec.dtype));
    if (spec.dtype == Dtype::kI8) elements *= 2;
    const auto by = static_cast<double>(phase == Phase::kHead ? head_rows : rows);
    at(cost.flops, phase) += 2 * elements * by * (routed ? active : 1);
  }
  const auto tables = static_cast<double>(text.engram_layer_ids.size());
  const int64_t width = text.engram_head_dim + text.engram_head_dim / kScaleBlock;
  at(cost.bytes, Phase::kEngram) +=
      tables * static_cast<double>(rows * text.engram_columns() * width);
}

// Attention and selection of the row at `position`.
void add_row(const TextConfig& text, int64_t position, StepCost& cost) {
  const auto window = static_cast<double>(std::min(position + 1, text.sliding_window));
  const auto window_record = static_cast<double>(text.head_dim + text.head_dim / kScaleBlock);
  const auto latent_record = static_cast<double>(text.head_dim / 2 + text.head_dim / kLatentGroup);
  const auto key_record =
      static_cast<double>(text.index_head_dim / 2 + text.index_head_dim / kScaleBlock);
  const auto attend_flops = static_cast<double>(4 * text.num_attention_heads * text.head_dim);
  const auto score_flops = static_cast<double>(2 * text.index_n_heads * text.index_head_dim);
  for (int64_t layer = 0; layer < text.num_hidden_layers; ++layer) {
    const int64_t ratio = text.compress_ratios[static_cast<size_t>(layer)];
    const int64_t visible = ratio > 0 ? (position + 1) / ratio : 0;
    const auto selected = static_cast<double>(std::min(visible, text.index_topk));
    at(cost.bytes, Phase::kAttend) += window * window_record + selected * latent_record;
    at(cost.flops, Phase::kAttend) += attend_flops * (window + selected);
    if (!text.is_index_source(layer) || visible <= text.index_topk) continue;
    int64_t scored = visible;
    if (text.candidate_source_layer_id >= 0 && layer > text.candidate_source_layer_id) {
      scored = std::min(scored, text.candidate_topk_blocks * text.candidate_block_size);
    }
    at(cost.bytes, Phase::kIndexer) += static_cast<double>(scored) * key_record;
    at(cost.flops, Phase::kIndexer) += static_cast<double>(scored) * score_flops;
  }
}

// Whether the row at `position` needs a selection at all.
bool selects(const TextConfig& text, int64_t position) {
  return std::ranges::any_of(text.index_source_layer_ids, [&](int64_t layer) {
    const int64_t ratio = text.compress_ratios[static_cast<size_t>(layer)];
    return (position + 1) / ratio > text.index_topk;
  });
}

double sum(const std::array<double, model::kPhases>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

double StepCost::total_bytes() const { return sum(bytes); }
double StepCost::total_flops() const { return sum(flops); }

double expected_experts(const TextConfig& text, int64_t rows) {
  const auto experts = static_cast<double>(text.n_routed_experts);
  const double missed = 1 - static_cast<double>(text.num_experts_per_tok) / experts;
  return static_cast<double>(text.num_hidden_layers) * experts *
         (1 - std::pow(missed, static_cast<double>(rows)));
}

StepCost decode_cost(const Config& config, int64_t batch, int64_t context, double experts) {
  const TextConfig& text = config.text;
  if (experts < 0) experts = expected_experts(text, batch);
  const double all = static_cast<double>(text.num_hidden_layers * text.n_routed_experts);
  StepCost one;
  add_row(text, context, one);
  StepCost cost;
  add_weights(config, batch, batch, experts / all, selects(text, context), cost);
  for (size_t i = 0; i < model::kPhases; ++i) {
    cost.bytes[i] += static_cast<double>(batch) * one.bytes[i];
    cost.flops[i] += static_cast<double>(batch) * one.flops[i];
  }
  return cost;
}

StepCost prefill_cost(const Config& config, int64_t rows) {
  const TextConfig& text = config.text;
  const double all = static_cast<double>(text.num_hidden_layers * text.n_routed_experts);
  StepCost cost;
  add_weights(config, rows, 1, expected_experts(text, rows) / all, selects(text, rows - 1), cost);
  for (int64_t position = 0; position < rows; ++position) add_row(text, position, cost);
  return cost;
}

}  // namespace cedra::bench

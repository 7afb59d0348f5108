// Engram layer (spec model.md 5.4): rows of a large n-gram table, looked up by token ids alone,
// projected to one key per residual copy and one value, added behind a gate.
#include <cstring>

#include "model/step.h"

namespace cedra::model {

void engram(Step& step, const Stage& stage, int64_t layer) {
  const PhaseScope phase(step.phases, Phase::kEngram);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const EngramWeights& weights = *step.model.weights().layers[static_cast<size_t>(layer)].engram;
  const int64_t rows = stage.size();
  const int64_t dim = text.hidden_size;
  const int64_t copies = text.hc_mult;
  const int64_t columns = text.engram_columns();
  const int64_t width = text.engram_head_dim;
  const int64_t tables = static_cast<int64_t>(text.engram_layer_ids.size());
  const int64_t table = text.engram_index(layer);
  const int64_t kv_width = (copies + 1) * dim;

  step.team.for_range(rows * columns, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / columns;
      const int64_t entry = work.engram_rows[(row * tables + table) * columns + i % columns];
      step.ops.unpack_fp8(weights.table + entry * width,
                          weights.table_scales + entry * (width / 32), width,
                          work.engram_e + i * width);
    }
  });
  quantize_rows(step, work.engram_e, work.engram_e, rows, columns * width);
  linear(step, weights.wkv, work.engram_e, columns * width, rows, kernels::SumRule::kBlocks32,
         {.as_bf16 = work.engram_kv, .stride = kv_width});

  const float eps = static_cast<float>(text.rms_norm_eps);
  step.team.for_range(rows * copies, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / copies;
      const int64_t copy = i % copies;
      if (stage.rows[static_cast<size_t>(row)].image) continue;  // gate 0
      const bf16* kv = work.engram_kv + row * kv_width;
      step.ops.engram_mix(work.stream[stage.buffer] + i * dim, kv + copy * dim, kv + copies * dim,
                          weights.q_weight + copy * dim, weights.k_weight + copy * dim, dim, eps);
    }
  });
}

}  // namespace cedra::model

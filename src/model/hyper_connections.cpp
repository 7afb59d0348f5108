// Hyper-connections around the sublayers of a block (spec model.md 4.2): the stream of C copies
// that sublayers read through `pre` and write through `post` and `comb`.
#include <algorithm>
#include <cstring>

#include "model/step.h"

namespace cedra::model {

void enter_row(Step& step, const Stage& stage, int64_t row, const void* embedding) {
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  bf16* stream = step.work.stream[stage.buffer] + row * text.hc_mult * dim;
  for (int64_t c = 0; c < text.hc_mult; ++c) {
    std::memcpy(stream + c * dim, embedding, static_cast<size_t>(dim) * sizeof(bf16));
  }
  float* pre = step.work.pre[stage.buffer] + row * text.hc_mult;
  std::fill(pre, pre + text.hc_mult, 0.0f);
  pre[0] = 1.0f;
}

void mixes(Step& step, const Stage& stage, const HyperWeights& weights, float* pre) {
  const PhaseScope phase(step.phases, Phase::kHyper);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t width = text.hc_mult * text.hidden_size;
  linear(step, weights.fn, work.stream[stage.buffer], width, stage.size(), kernels::SumRule::kWhole,
         {.as_f32 = work.mix_dots, .stride = text.hc_mixes()});
  step.team.for_range(stage.size(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels::MixesJob job;
      job.dots = work.mix_dots + t * text.hc_mixes();
      job.inverse_rms = step.ops.inverse_rms(work.stream[stage.buffer] + t * width, width,
                                             static_cast<float>(text.rms_norm_eps));
      job.scale = weights.scale;
      job.base = weights.base;
      job.copies = text.hc_mult;
      job.sinkhorn_iters = text.hc_sinkhorn_iters;
      job.eps = static_cast<float>(text.hc_eps);
      job.pre = pre + t * text.hc_mult;
      job.post = work.post + t * text.hc_mult;
      job.comb = work.comb + t * text.hc_mult * text.hc_mult;
      step.ops.mixes(job);
    }
  });
}

void sublayer_input(Step& step, const Stage& stage, const float* pre, const bf16* norm) {
  const PhaseScope phase(step.phases, Phase::kHyper);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  step.team.for_range(stage.size(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      bf16* hidden = work.hidden + t * dim;
      step.ops.collapse(work.stream[stage.buffer] + t * text.hc_mult * dim, pre + t * text.hc_mult,
                        text.hc_mult, dim, hidden);
      step.ops.rms_norm(hidden, norm, dim, static_cast<float>(text.rms_norm_eps), hidden);
    }
  });
}

void expand(Step& step, const Stage& stage) {
  const PhaseScope phase(step.phases, Phase::kHyper);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t copies = text.hc_mult;
  step.team.for_range(stage.size(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      step.ops.expand(work.output + t * text.hidden_size, work.post + t * copies,
                      work.comb + t * copies * copies, copies, text.hidden_size,
                      work.stream[stage.buffer] + t * copies * text.hidden_size);
    }
  });
}

}  // namespace cedra::model

// Mixture of experts (spec model.md 4.8).
//
// The active experts of a layer are one flat list of (expert, its rows), the shared expert last.
// Each phase cuts the list's output columns evenly over the team, so one wide expert and many
// narrow ones keep all members busy, and a phase costs one barrier.
#include <algorithm>
#include <cstring>
#include <ranges>

#include "model/step.h"

namespace cedra::model {
namespace {

using kernels::SumRule;

// gate+up+SwiGLU+quantise works on whole quantiser groups.
constexpr int64_t kGroup = 32;

// The n_active experts of greatest score + bias, best first, the lower id among equals; `best` is
// scratch of n_active floats.
void best_experts(const float* scores, const float* bias, int64_t experts, int64_t n_active,
                  int32_t* chosen, float* best) {
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const float score = scores[e] + bias[e];
    if (count == n_active && !(score > best[count - 1])) continue;
    if (count < n_active) ++count;
    int64_t at = count - 1;
    for (; at > 0 && score > best[at - 1]; --at) {
      best[at] = best[at - 1];
      chosen[at] = chosen[at - 1];
    }
    best[at] = score;
    chosen[at] = static_cast<int32_t>(e);
  }
}

void choose_experts(Step& step, const Stage& stage, const MoeWeights& weights, int64_t n_active) {
  const PhaseScope phase(step.phases, Phase::kRouter);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t experts = static_cast<int64_t>(weights.experts.size());
  const kernels::RouterScore kind =
      text.scoring_func == ScoringFunc::kSqrtSoftplus ? kernels::RouterScore::kSqrtSoftplus
      : text.scoring_func == ScoringFunc::kSigmoid    ? kernels::RouterScore::kSigmoid
                                                      : kernels::RouterScore::kSoftmax;
  linear(step, weights.gate, work.hidden, text.hidden_size, stage.size(), SumRule::kWhole,
         {.as_f32 = work.router, .stride = experts});
  step.team.for_range(stage.size(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* scores = work.router + row * experts;
      step.ops.router_scores(scores, experts, kind, static_cast<float>(text.gate_temp));
      // The bias decides who is chosen, never how much it counts.
      const bool image = stage.rows[static_cast<size_t>(row)].image;
      int32_t* chosen = work.chosen + row * n_active;
      float* weight = work.chosen_weight + row * n_active;
      best_experts(scores, image ? weights.bias_vl : weights.bias, experts, n_active, chosen,
                   weight);
      double sum = 0;  // of FP32 terms in the order of choice, rounded once, at every level
      for (int64_t k = 0; k < n_active; ++k) sum += static_cast<double>(scores[chosen[k]]);
      std::sort(chosen, chosen + n_active);
      for (int64_t k = 0; k < n_active; ++k) {
        weight[k] = scores[chosen[k]];
        if (text.norm_topk_prob && n_active > 1) weight[k] /= static_cast<float>(sum) + 1e-20f;
        weight[k] *= static_cast<float>(text.routed_scaling_factor);
      }
    }
  });
}

// Groups rows by expert. Slot s of expert_rows belongs to the expert e with
// expert_begin[e] <= s < expert_begin[e + 1]; e == E is the shared expert, which takes every row.
void group_rows(Workspace& work, int64_t rows, int64_t experts, int64_t n_active) {
  int32_t* begin = work.expert_begin;
  std::fill(begin, begin + experts + 2, 0);
  for (int64_t i = 0; i < rows * n_active; ++i) ++begin[work.chosen[i] + 1];
  for (int64_t e = 0; e < experts; ++e) begin[e + 1] += begin[e];
  begin[experts + 1] = begin[experts] + static_cast<int32_t>(rows);
  // expert_begin is used as the fill position and then shifted back.
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < n_active; ++k) {
      const int32_t slot = begin[work.chosen[row * n_active + k]]++;
      work.expert_rows[slot] = static_cast<int32_t>(row);
      work.slot_of[row * (n_active + 1) + k] = slot;
    }
    const int32_t slot = begin[experts] + static_cast<int32_t>(row);
    work.expert_rows[slot] = static_cast<int32_t>(row);
    work.slot_of[row * (n_active + 1) + n_active] = slot;
  }
  for (int64_t e = experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
}

const ExpertWeights& expert_weights(const MoeWeights& weights, int64_t e) {
  return e < static_cast<int64_t>(weights.experts.size()) ? weights.experts[static_cast<size_t>(e)]
                                                          : weights.shared;
}

// fn(expert, first slot, rows, begin, end) over a static part of the flat list of all active
// experts' output columns (`width` each), cut at multiples of kGroup. Cost of a column is its
// weight row plus its rows' arithmetic.
void for_each_part(Step& step, const MoeWeights& weights, int64_t width, auto&& fn) {
  const int32_t* begin = step.work.expert_begin;
  const int64_t experts = static_cast<int64_t>(weights.experts.size());
  const int64_t groups = width / kGroup;
  // Reading an FP4 row costs about as much as multiplying it with four rows; FP8 reads twice that.
  const auto cost = [&](int64_t e) -> int64_t {
    const int64_t rows = begin[e + 1] - begin[e];
    return rows == 0 ? 0 : (e == experts ? 8 : 4) + rows;
  };
  int64_t total = 0;
  for (int64_t e = 0; e <= experts; ++e) total += cost(e) * groups;
  step.team.run([&](int member) {
    const int64_t low = total * member / step.team.size();
    const int64_t high = total * (member + 1) / step.team.size();
    int64_t at = 0;
    for (int64_t e = 0; e <= experts; ++e) {
      const int64_t unit = cost(e);
      if (unit == 0) continue;
      const int64_t stop = at + unit * groups;
      // Group g belongs to the member whose part holds the start of its cost interval.
      const int64_t first = low <= at ? 0 : (low - at + unit - 1) / unit;
      const int64_t last = high >= stop ? groups : (high <= at ? 0 : (high - at + unit - 1) / unit);
      if (first < last) {
        fn(e, begin[e], begin[e + 1] - begin[e], first * kGroup, last * kGroup);
      }
      at = stop;
    }
  });
}

}  // namespace

void moe(Step& step, const Stage& stage, const MoeWeights& weights, int64_t n_active) {
  const PhaseScope phase(step.phases, Phase::kExperts);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const kernels::Ops& ops = step.ops;
  const int64_t rows = stage.size();
  const int64_t dim = text.hidden_size;
  const int64_t inter = text.moe_intermediate_size;
  const int64_t experts = static_cast<int64_t>(weights.experts.size());

  choose_experts(step, stage, weights, n_active);
  group_rows(work, rows, experts, n_active);
  if (step.phases != nullptr) {
    const int32_t* begin = work.expert_begin;
    step.phases->add_experts(std::ranges::count_if(
        std::views::iota(int64_t{0}, experts), [&](int64_t e) { return begin[e + 1] > begin[e]; }));
  }
  quantize_rows(step, work.hidden, work.hidden_q, rows, dim);
  step.team.for_range(rows * (n_active + 1), 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t slot = begin; slot < end; ++slot) {
      std::memcpy(work.expert_x + slot * dim, work.hidden_q + work.expert_rows[slot] * dim,
                  static_cast<size_t>(dim) * sizeof(bf16));
    }
  });

  // Gate, up, SwiGLU with the routing weight, quantise: one phase.
  const float limit = static_cast<float>(text.swiglu_limit);
  for_each_part(
      step, weights, inter,
      [&](int64_t e, int64_t slot, int64_t count, int64_t begin, int64_t end) {
        const ExpertWeights& expert = expert_weights(weights, e);
        const bf16* x = work.expert_x + slot * dim;
        linear_part(ops, expert.w1, x, dim, count, SumRule::kBlocks32,
                    {.as_bf16 = work.expert_gate + slot * inter, .stride = inter}, begin, end);
        linear_part(ops, expert.w3, x, dim, count, SumRule::kBlocks32,
                    {.as_bf16 = work.expert_up + slot * inter, .stride = inter}, begin, end);
        for (int64_t s = slot; s < slot + count; ++s) {
          float weight = 1.0f;
          if (e < experts) {
            const int64_t row = work.expert_rows[s];
            const int32_t* chosen = work.chosen + row * n_active;
            const int64_t k =
                std::find(chosen, chosen + n_active, static_cast<int32_t>(e)) - chosen;
            weight = work.chosen_weight[row * n_active + k];
          }
          const int64_t at = s * inter + begin;
          ops.swiglu(work.expert_gate + at, work.expert_up + at, limit, weight, end - begin,
                     work.expert_h + at);
          ops.quantize_q8(work.expert_h + at, work.expert_h + at, end - begin);
        }
      });

  for_each_part(step, weights, dim,
                [&](int64_t e, int64_t slot, int64_t count, int64_t begin, int64_t end) {
                  linear_part(ops, expert_weights(weights, e).w2, work.expert_h + slot * inter,
                              inter, count, SumRule::kBlocks32,
                              {.as_bf16 = work.expert_y + slot * dim, .stride = dim}, begin, end);
                });

  // Routed results in ascending expert id, the shared one last.
  step.team.for_range(rows, 1, [&](int64_t begin, int64_t end, int member) {
    float* sum = work.members[static_cast<size_t>(member)].sum;
    for (int64_t row = begin; row < end; ++row) {
      std::fill(sum, sum + dim, 0.0f);
      const int32_t* slots = work.slot_of + row * (n_active + 1);
      for (int64_t k = 0; k <= n_active; ++k)
        ops.add_rows(work.expert_y + slots[k] * dim, dim, sum);
      ops.round_rows(sum, dim, work.output + row * dim);
    }
  });
}

}  // namespace cedra::model

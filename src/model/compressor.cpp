// Compressor of a KV source (spec model.md 4.5) and its index keys (4.6.1).
#include <algorithm>
#include <array>
#include <cstring>

#include "model/rope.h"
#include "model/step.h"

namespace cedra::model {
namespace {

using kernels::SumRule;

constexpr int64_t kMaxRatio = 16;
// Groups that are worth waking a member for: a few microseconds each.
constexpr int64_t kGroupGrain = 4;

// Latents of all finished groups, in the rows' order, packed to the front of work.latent.
struct Group {
  const Run* run;
  int64_t index;  // j: compressed row j of the sequence
};

int64_t first_group(const Run& run, int64_t ratio) {
  return std::max(run.position, run.replay_until) / ratio;
}
// How many groups the rows finish.
int64_t count_groups(const Stage& stage, int64_t ratio) {
  int64_t groups = 0;
  for (const Run& run : stage.runs) {
    groups += std::max<int64_t>(0, (run.position + run.count) / ratio - first_group(run, ratio));
  }
  return groups;
}

// fn(packed, group) for the groups [begin, end) of count_groups(), in order.
void for_each_group(const Stage& stage, int64_t ratio, int64_t begin, int64_t end, auto&& fn) {
  int64_t packed = 0;  // of the run's first group
  for (const Run& run : stage.runs) {
    const int64_t first = first_group(run, ratio);
    const int64_t count = std::max<int64_t>(0, (run.position + run.count) / ratio - first);
    for (int64_t i = std::max<int64_t>(0, begin - packed); i < std::min(count, end - packed); ++i) {
      fn(packed + i, Group{&run, first + i});
    }
    packed += count;
  }
}

// Raw FP32 (kv, score) rows; groups of `ratio` positions become softmax-weighted means.
int64_t pool_groups(Step& step, const Stage& stage, const CompressorWeights& weights,
                    const cache::SourceLayout& source) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t dim = text.head_dim;
  const int64_t ratio = source.ratio;
  linear(step, weights.wkv, work.hidden, text.hidden_size, stage.size(), SumRule::kWhole,
         {.as_f32 = work.pool_kv, .stride = dim});
  linear(step, weights.wgate, work.hidden, text.hidden_size, stage.size(), SumRule::kWhole,
         {.as_f32 = work.pool_score, .stride = dim});

  const int64_t groups = count_groups(stage, ratio);
  const auto pool = [&](int64_t packed, const Group& group) {
    std::array<const float*, kMaxRatio> kv;
    std::array<const float*, kMaxRatio> score;
    for (int64_t i = 0; i < ratio; ++i) {
      const int64_t position = group.index * ratio + i;
      const int64_t row = group.run->first_row + position - group.run->position;
      const bool in_step = position >= group.run->position;
      kv[i] = in_step ? work.pool_kv + row * dim
                      : group.run->sequence->tail_kv(source.tail_index, position);
      score[i] = in_step ? work.pool_score + row * dim
                         : group.run->sequence->tail_score(source.tail_index, position);
    }
    step.ops.pool_group(kv.data(), score.data(), ratio, dim, work.latent + packed * dim);
  };
  step.team.for_range(groups, kGroupGrain, [&](int64_t begin, int64_t end, int) {
    for_each_group(stage, ratio, begin, end, pool);
  });

  // What does not fill a group waits in the tail, and what may be taken back with it: a group that
  // these rows finish may have to be finished by others.
  const size_t bytes = static_cast<size_t>(dim) * sizeof(float);
  for (const Run& run : stage.runs) {
    const int64_t end = run.position + run.count;
    const int64_t open = (end - run.may_roll_back) / ratio * ratio;
    for (int64_t p = std::max({open, run.position, run.replay_until}); p < end; ++p) {
      const int64_t row = run.first_row + p - run.position;
      std::memcpy(run.sequence->tail_kv(source.tail_index, p), work.pool_kv + row * dim, bytes);
      std::memcpy(run.sequence->tail_score(source.tail_index, p), work.pool_score + row * dim,
                  bytes);
    }
  }
  return groups;
}

// Ratio 1: every row is its own group and an ordinary BF16 linear.
int64_t project_rows(Step& step, const Stage& stage, const CompressorWeights& weights) {
  Workspace& work = step.work;
  const int64_t dim = step.text().head_dim;
  linear(step, weights.wkv, work.hidden, step.text().hidden_size, stage.size(), SumRule::kWhole,
         {.as_bf16 = work.latent, .stride = dim});
  const int64_t groups = count_groups(stage, 1);
  for_each_group(stage, 1, 0, groups, [&](int64_t packed, const Group& group) {
    const int64_t row = group.run->first_row + group.index - group.run->position;
    if (row != packed) {  // rows of a replay were skipped
      std::memmove(work.latent + packed * dim, work.latent + row * dim,
                   static_cast<size_t>(dim) * sizeof(bf16));
    }
  });
  return groups;
}

}  // namespace

void compress(Step& step, const Stage& stage, int64_t layer) {
  const PhaseScope phase(step.phases, Phase::kCompressor);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const cache::CacheLayout& layout = step.pool->layout();
  const cache::SourceLayout& source = layout.sources[static_cast<size_t>(layout.source_of(layer))];
  const CompressorWeights& weights =
      *step.model.weights().layers[static_cast<size_t>(layer)].attn.compressor;
  const int64_t dim = text.head_dim;
  const int64_t index_dim = text.index_head_dim;

  const int64_t groups = source.ratio == 1 ? project_rows(step, stage, weights)
                                           : pool_groups(step, stage, weights, source);
  if (groups == 0) return;
  norm_rows(step, work.latent, weights.norm, work.latent, groups, dim);
  // Index keys come from the latent before its rotation and rounding.
  linear(step, weights.index_wk, work.latent, dim, groups, SumRule::kWhole,
         {.as_bf16 = work.index_key, .stride = index_dim});
  norm_rows(step, work.index_key, weights.index_k_norm, work.index_key, groups, index_dim);

  const int64_t pairs = text.qk_rope_head_dim / 2;
  const auto store = [&](int64_t packed, const Group& group, float* cos, float* sin) {
    // Both rotate at the first position of the group.
    rope_angles(step.model.compressed_frequencies(), source.ratio * group.index, cos, sin);
    bf16* latent = work.latent + packed * dim;
    bf16* key = work.index_key + packed * index_dim;
    step.ops.rope(latent + dim - 2 * pairs, cos, sin, pairs, false);
    step.ops.rope(key + index_dim - 2 * pairs, cos, sin, pairs, false);

    uint8_t* block = step.pool->data(
        group.run->sequence->blocks[static_cast<size_t>(group.index / source.rows_per_block)]);
    const int64_t slot = group.index % source.rows_per_block;
    step.ops.pack_latent(latent, dim, block + source.main_codes + slot * layout.main_code_bytes,
                         block + source.main_scales + slot * layout.main_scale_bytes);
    step.ops.pack_index(key, index_dim, block + source.index_codes + slot * layout.index_code_bytes,
                        block + source.index_scales + slot * layout.index_scale_bytes);
  };
  step.team.for_range(groups, kGroupGrain, [&](int64_t begin, int64_t end, int member) {
    float* cos = work.members[static_cast<size_t>(member)].angles;
    for_each_group(stage, source.ratio, begin, end, [&](int64_t packed, const Group& group) {
      store(packed, group, cos, cos + pairs);
    });
  });
}

}  // namespace cedra::model

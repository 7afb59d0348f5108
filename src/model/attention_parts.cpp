// The parts of attention (spec model.md 4.3 and 4.7) that backbone layers and draft stages share:
// window records, queries, the attention of a row over its list, the output projection.
#include <algorithm>
#include <cmath>

#include "model/step.h"

namespace cedra::model {
namespace {

using kernels::SumRule;

// Rotates the last dims of `count` vectors of width `dim` per row.
void rotate_rows(Step& step, bf16* x, int64_t rows, int64_t count, int64_t dim, int table,
                 bool inverse) {
  const int64_t pairs = step.text().qk_rope_head_dim / 2;
  step.team.for_range(rows * count, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / count;
      step.ops.rope(x + (i + 1) * dim - 2 * pairs, step.work.cos[table] + row * pairs,
                    step.work.sin[table] + row * pairs, pairs, inverse);
    }
  });
}

}  // namespace

void window_rows(Step& step, const AttentionWeights& weights, int64_t rows, int table) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t bytes = window_record_bytes(text);
  linear(step, weights.wkv, work.hidden_q, text.hidden_size, rows, SumRule::kBlocks32,
         {.as_bf16 = work.kv, .stride = text.head_dim});
  norm_rows(step, work.kv, weights.kv_norm, work.kv, rows, text.head_dim);
  rotate_rows(step, work.kv, rows, 1, text.head_dim, table, false);
  step.team.for_range(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      uint8_t* record = work.own_records + t * bytes;
      step.ops.pack_fp8(work.kv + t * text.head_dim, text.head_dim, record, record + text.head_dim);
    }
  });
}

void attention_queries(Step& step, const AttentionWeights& weights, int64_t rows, int table) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t heads_width = text.num_attention_heads * text.head_dim;
  linear(step, weights.wq_a, work.hidden_q, text.hidden_size, rows, SumRule::kBlocks32,
         {.as_bf16 = work.q_latent, .stride = text.q_lora_rank});
  norm_rows(step, work.q_latent, weights.q_norm, work.q_latent, rows, text.q_lora_rank);
  quantize_rows(step, work.q_latent, work.q_latent_q, rows, text.q_lora_rank);
  linear(step, weights.wq_b, work.q_latent_q, text.q_lora_rank, rows, SumRule::kBlocks32,
         {.as_bf16 = work.q, .stride = heads_width});
  rotate_rows(step, work.q, rows, text.num_attention_heads, text.head_dim, table, false);
}

void attend_rows(Step& step, int64_t rows, const float* sink, const AttentionLists& lists) {
  const PhaseScope phase(step.phases, Phase::kAttend);
  const TextConfig& text = step.text();
  const int64_t heads = text.num_attention_heads;
  const int64_t width = heads * text.head_dim;
  const float scale = static_cast<float>(std::pow(static_cast<double>(text.head_dim), -0.5));
  auto& members = step.work.members;
  const auto attend = [&](int64_t row, int64_t h_begin, int64_t h_end, const MemberScratch& list,
                          float* scratch) {
    kernels::AttendJob job;
    job.q = step.work.q + row * width;
    job.keys = list.keys;
    job.present = list.present;
    job.entries = lists.entries(row);
    job.head_dim = text.head_dim;
    job.h_begin = h_begin;
    job.h_end = h_end;
    job.sink = sink;
    job.scale = scale;
    job.out = step.work.heads + row * width;
    job.scratch = scratch;
    step.ops.attend(job);
  };
  if (rows >= 2 * step.team.size() || step.team.size() == 1) {
    step.team.for_range(rows, 1, [&](int64_t begin, int64_t end, int member) {
      MemberScratch& mine = members[static_cast<size_t>(member)];
      for (int64_t row = begin; row < end; ++row) {
        lists.gather(row, 0, lists.entries(row), mine.keys, mine.present);
        attend(row, 0, heads, mine, mine.attend);
      }
    });
    return;
  }
  // Few rows: the team shares the gathering, then the heads, of one row after another.
  MemberScratch& shared = members[0];
  for (int64_t row = 0; row < rows; ++row) {
    step.team.for_range(lists.entries(row), 16, [&](int64_t begin, int64_t end, int) {
      lists.gather(row, begin, end, shared.keys, shared.present);
    });
    step.team.for_range(heads, 1, [&](int64_t begin, int64_t end, int member) {
      attend(row, begin, end, shared, members[static_cast<size_t>(member)].attend);
    });
  }
}

// Grouped and of low rank; its input is not quantised.
void attention_output(Step& step, const AttentionWeights& weights, int64_t rows, int table) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t heads_width = text.num_attention_heads * text.head_dim;
  rotate_rows(step, work.heads, rows, text.num_attention_heads, text.head_dim, table, true);
  const int64_t group_width = heads_width / text.o_groups;
  const int64_t low_rank = text.o_groups * text.o_lora_rank;
  step.team.for_range(low_rank, 32, [&](int64_t begin, int64_t end, int) {
    while (begin < end) {
      const int64_t group = begin / text.o_lora_rank;
      const int64_t stop = std::min(end, (group + 1) * text.o_lora_rank);
      linear_part(step.ops, weights.wo_a, work.heads + group * group_width, heads_width, rows,
                  SumRule::kWhole, {.as_bf16 = work.low_rank, .stride = low_rank}, begin, stop);
      begin = stop;
    }
  });
  quantize_rows(step, work.low_rank, work.low_rank, rows, low_rank);
  linear(step, weights.wo_b, work.low_rank, low_rank, rows, SumRule::kBlocks32,
         {.as_bf16 = work.output, .stride = text.hidden_size});
}

}  // namespace cedra::model

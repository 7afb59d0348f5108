// Attention of a backbone layer (spec model.md 4.3 and 4.7): one shared KV latent per position, the
// layer's own window, and selected compressed rows of a source layer.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/step.h"

namespace cedra::model {
namespace {

using kernels::SumRule;

// Gathers and attends rows [begin, end) with one member's scratch, heads [h_begin, h_end).
class Attender {
 public:
  Attender(Step& step, const Stage& stage, int64_t layer)
      : step_(step),
        stage_(stage),
        layer_(layer),
        text_(step.text()),
        layout_(step.pool.layout()),
        sink_(step.model.weights().layers[static_cast<size_t>(layer)].attn.sink),
        scale_(static_cast<float>(std::pow(static_cast<double>(text_.head_dim), -0.5))) {
    if (text_.compress_ratios[static_cast<size_t>(layer)] > 0) {
      source_ = &layout_.sources[static_cast<size_t>(layout_.source_of(layer))];
    }
  }

  int64_t entries(int64_t row) const {
    return layout_.window + (source_ ? step_.work.selected_count[row] : 0);
  }

  // Entries [begin, end) of the row's list into keys and present: the window oldest first, then the
  // selected compressed rows ascending.
  void gather(int64_t row, int64_t begin, int64_t end, bf16* keys, uint8_t* present) const {
    const Row& place = stage_.rows[static_cast<size_t>(row)];
    const Run& run = stage_.runs[static_cast<size_t>(place.run)];
    const int64_t dim = text_.head_dim;
    for (int64_t e = begin; e < std::min(end, layout_.window); ++e) {
      const int64_t position = place.position - layout_.window + 1 + e;
      present[e] = position >= run.window_start && position >= 0;
      if (!present[e]) continue;
      const uint8_t* record =
          position >= run.position
              ? step_.work.own_records +
                    (run.first_row + position - run.position) * layout_.window_record_bytes()
              : run.sequence->window_record(layer_, position);
      step_.ops.unpack_fp8(record, record + layout_.window_code_bytes, dim, keys + e * dim);
    }
    if (source_ == nullptr) return;
    const int32_t* selected = step_.work.selected + row * text_.index_topk;
    for (int64_t e = std::max(begin, layout_.window); e < end; ++e) {
      const int64_t j = selected[e - layout_.window];
      const uint8_t* block =
          step_.pool.data(run.sequence->blocks[static_cast<size_t>(j / source_->rows_per_block)]);
      const int64_t slot = j % source_->rows_per_block;
      present[e] = 1;
      step_.ops.unpack_latent(block + source_->main_codes + slot * layout_.main_code_bytes,
                              block + source_->main_scales + slot * layout_.main_scale_bytes, dim,
                              keys + e * dim);
    }
  }

  void attend(int64_t row, int64_t h_begin, int64_t h_end, const bf16* keys, const uint8_t* present,
              float* scratch) const {
    const int64_t width = text_.num_attention_heads * text_.head_dim;
    kernels::AttendJob job;
    job.q = step_.work.q + row * width;
    job.keys = keys;
    job.present = present;
    job.entries = entries(row);
    job.head_dim = text_.head_dim;
    job.h_begin = h_begin;
    job.h_end = h_end;
    job.sink = sink_;
    job.scale = scale_;
    job.out = step_.work.heads + row * width;
    job.scratch = scratch;
    step_.ops.attend(job);
  }

 private:
  Step& step_;
  const Stage& stage_;
  int64_t layer_;
  const TextConfig& text_;
  const cache::CacheLayout& layout_;
  const cache::SourceLayout* source_ = nullptr;
  const float* sink_;
  float scale_;
};

void attend_rows(Step& step, const Stage& stage, int64_t layer) {
  const Attender attender(step, stage, layer);
  const int64_t heads = step.text().num_attention_heads;
  const int64_t rows = stage.size();
  auto& members = step.work.members;
  if (rows >= 2 * step.team.size() || step.team.size() == 1) {
    step.team.for_range(rows, 1, [&](int64_t begin, int64_t end, int member) {
      MemberScratch& mine = members[static_cast<size_t>(member)];
      for (int64_t row = begin; row < end; ++row) {
        attender.gather(row, 0, attender.entries(row), mine.keys, mine.present);
        attender.attend(row, 0, heads, mine.keys, mine.present, mine.attend);
      }
    });
    return;
  }
  // Few rows: the team shares the gathering, then the heads, of one row after another.
  MemberScratch& shared = members[0];
  for (int64_t row = 0; row < rows; ++row) {
    step.team.for_range(attender.entries(row), 16, [&](int64_t begin, int64_t end, int) {
      attender.gather(row, begin, end, shared.keys, shared.present);
    });
    step.team.for_range(heads, 1, [&](int64_t begin, int64_t end, int member) {
      attender.attend(row, begin, end, shared.keys, shared.present,
                      members[static_cast<size_t>(member)].attend);
    });
  }
}

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

// The FP8 record that is key and value of all heads, one per row.
void window_rows(Step& step, const AttentionWeights& weights, int64_t rows, int table) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const cache::CacheLayout& layout = step.pool.layout();
  linear(step, weights.wkv, work.hidden_q, text.hidden_size, rows, SumRule::kBlocks32,
         {.as_bf16 = work.kv, .stride = text.head_dim});
  norm_rows(step, work.kv, weights.kv_norm, work.kv, rows, text.head_dim);
  rotate_rows(step, work.kv, rows, 1, text.head_dim, table, false);
  step.team.for_range(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      uint8_t* record = work.own_records + t * layout.window_record_bytes();
      step.ops.pack_fp8(work.kv + t * text.head_dim, text.head_dim, record,
                        record + layout.window_code_bytes);
    }
  });
}

// This layer's window as it is at `capture.position`: newer rows are the step's own, older ones are
// still in the ring.
void capture_window(Step& step, const Run& run, int64_t layer, const WindowCapture& capture) {
  const cache::CacheLayout& layout = step.pool.layout();
  const int64_t bytes = layout.window_record_bytes();
  uint8_t* out = capture.out + layer * layout.window * bytes;
  for (int64_t p = std::max<int64_t>(0, capture.position - layout.window); p < capture.position;
       ++p) {
    const uint8_t* record = p >= run.position
                                ? step.work.own_records + (run.first_row + p - run.position) * bytes
                                : run.sequence->window_record(layer, p);
    std::memcpy(out + (p % layout.window) * bytes, record, static_cast<size_t>(bytes));
  }
}

// The newest W rows of every run go into its ring, after all reads of this layer.
void store_windows(Step& step, const Stage& stage, int64_t layer) {
  const cache::CacheLayout& layout = step.pool.layout();
  const size_t bytes = static_cast<size_t>(layout.window_record_bytes());
  for (const Run& run : stage.runs) {
    for (const WindowCapture& capture : run.captures) capture_window(step, run, layer, capture);
    for (int64_t i = std::max<int64_t>(0, run.count - layout.window); i < run.count; ++i) {
      std::memcpy(run.sequence->window_record(layer, run.position + i),
                  step.work.own_records + (run.first_row + i) * layout.window_record_bytes(),
                  bytes);
    }
  }
}

bool wanted(const Stage& stage, const Row& row) {
  const Run& run = stage.runs[static_cast<size_t>(row.run)];
  if (run.want == Want::kAll) return true;
  return run.want == Want::kLast && row.position == run.position + run.count - 1;
}

template <class T>
void move_row(T* base, int64_t width, int64_t from, int64_t to) {
  std::memmove(base + to * width, base + from * width, static_cast<size_t>(width) * sizeof(T));
}

// Drops the rows that nobody wants from everything that the rest of the layer reads per row. Runs
// stay as they were: they tell where the step's own window records lie.
void keep_wanted_rows(Step& step, Stage& stage) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t pairs = text.qk_rope_head_dim / 2;
  int64_t kept = 0;
  for (int64_t t = 0; t < stage.size(); ++t) {
    const Row row = stage.rows[static_cast<size_t>(t)];
    if (!wanted(stage, row)) continue;
    if (kept != t) {
      move_row(work.stream[stage.buffer], text.hc_mult * text.hidden_size, t, kept);
      move_row(work.hidden, text.hidden_size, t, kept);
      move_row(work.hidden_q, text.hidden_size, t, kept);
      move_row(work.selected, text.index_topk, t, kept);
      move_row(work.selected_count, 1, t, kept);
      if (text.candidate_topk_blocks > 0) {
        move_row(work.candidates, text.candidate_topk_blocks, t, kept);
        move_row(work.candidate_count, 1, t, kept);
      }
      for (int table = 0; table < 2; ++table) {
        move_row(work.cos[table], pairs, t, kept);
        move_row(work.sin[table], pairs, t, kept);
      }
      stage.rows[static_cast<size_t>(kept)] = row;
    }
    ++kept;
  }
  stage.rows.resize(static_cast<size_t>(kept));
}

}  // namespace

void attention(Step& step, Stage& stage, int64_t layer, bool compressed_early, bool narrow) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const AttentionWeights& weights = step.model.weights().layers[static_cast<size_t>(layer)].attn;
  const int64_t dim = text.hidden_size;
  const int64_t heads_width = text.num_attention_heads * text.head_dim;
  const bool compressed = text.compress_ratios[static_cast<size_t>(layer)] > 0;
  const int table = compressed ? 1 : 0;

  quantize_rows(step, work.hidden, work.hidden_q, stage.size(), dim);
  window_rows(step, weights, stage.size(), table);
  if (text.is_kv_source(layer) && !compressed_early) compress(step, stage, layer);
  if (narrow) keep_wanted_rows(step, stage);

  const int64_t rows = stage.size();
  if (rows > 0) {
    linear(step, weights.wq_a, work.hidden_q, dim, rows, SumRule::kBlocks32,
           {.as_bf16 = work.q_latent, .stride = text.q_lora_rank});
    norm_rows(step, work.q_latent, weights.q_norm, work.q_latent, rows, text.q_lora_rank);
    quantize_rows(step, work.q_latent, work.q_latent_q, rows, text.q_lora_rank);
    linear(step, weights.wq_b, work.q_latent_q, text.q_lora_rank, rows, SumRule::kBlocks32,
           {.as_bf16 = work.q, .stride = heads_width});
    rotate_rows(step, work.q, rows, text.num_attention_heads, text.head_dim, table, false);

    if (text.is_index_source(layer)) select(step, stage, layer);
    attend_rows(step, stage, layer);

    // Grouped low-rank output projection; its input is not quantised.
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
           {.as_bf16 = work.output, .stride = dim});
  }
  store_windows(step, stage, layer);
}

}  // namespace cedra::model

// Attention of a backbone layer (spec model.md 4.3 and 4.7): one shared KV latent per position, the
// layer's own window, and selected compressed rows of a source layer.
#include <algorithm>
#include <cstring>

#include "model/step.h"

namespace cedra::model {
namespace {

// What a backbone row attends to: its window, oldest first, then the selected compressed rows,
// ascending.
class LayerLists : public AttentionLists {
 public:
  LayerLists(const Step& step, const Stage& stage, int64_t layer)
      : step_(step),
        stage_(stage),
        layer_(layer),
        text_(step.text()),
        layout_(step.pool->layout()) {
    if (text_.compress_ratios[static_cast<size_t>(layer)] > 0) {
      source_ = &layout_.sources[static_cast<size_t>(layout_.source_of(layer))];
    }
  }

  int64_t entries(int64_t row) const override {
    return layout_.window + (source_ ? step_.work.selected_count[row] : 0);
  }

  void gather(int64_t row, int64_t begin, int64_t end, bf16* keys,
              uint8_t* present) const override {
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
          step_.pool->data(run.sequence->blocks[static_cast<size_t>(j / source_->rows_per_block)]);
      const int64_t slot = j % source_->rows_per_block;
      present[e] = 1;
      step_.ops.unpack_latent(block + source_->main_codes + slot * layout_.main_code_bytes,
                              block + source_->main_scales + slot * layout_.main_scale_bytes, dim,
                              keys + e * dim);
    }
  }

 private:
  const Step& step_;
  const Stage& stage_;
  int64_t layer_;
  const TextConfig& text_;
  const cache::CacheLayout& layout_;
  const cache::SourceLayout* source_ = nullptr;
};

// This layer's window as it is at `capture.position`: newer rows are the step's own, older ones are
// still in the ring.
void capture_window(Step& step, const Run& run, int64_t layer, const WindowCapture& capture) {
  const cache::CacheLayout& layout = step.pool->layout();
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
  const cache::CacheLayout& layout = step.pool->layout();
  const size_t bytes = static_cast<size_t>(layout.window_record_bytes());
  for (const Run& run : stage.runs) {
    const int64_t end = run.position + run.count;
    for (const WindowCapture& capture : run.captures) capture_window(step, run, layer, capture);
    for (int64_t p = end - run.may_roll_back; p < end; ++p) {
      const int64_t before = p - layout.window;
      std::memcpy(run.sequence->saved_record(layer, p),
                  before >= run.position
                      ? step.work.own_records +
                            (run.first_row + before - run.position) * layout.window_record_bytes()
                      : run.sequence->window_record(layer, p),
                  bytes);
    }
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
  const PhaseScope phase(step.phases, Phase::kAttention);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const AttentionWeights& weights = step.model.weights().layers[static_cast<size_t>(layer)].attn;
  const int64_t dim = text.hidden_size;
  const bool compressed = text.compress_ratios[static_cast<size_t>(layer)] > 0;
  const int table = compressed ? 1 : 0;

  quantize_rows(step, work.hidden, work.hidden_q, stage.size(), dim);
  window_rows(step, weights, stage.size(), table);
  if (text.is_kv_source(layer) && !compressed_early) compress(step, stage, layer);
  if (narrow) keep_wanted_rows(step, stage);

  const int64_t rows = stage.size();
  if (rows > 0) {
    attention_queries(step, weights, rows, table);
    if (text.is_index_source(layer)) select(step, stage, layer);
    attend_rows(step, rows, weights.sink, LayerLists(step, stage, layer));
    attention_output(step, weights, rows, table);
  }
  store_windows(step, stage, layer);
}

}  // namespace cedra::model

// Indexer (spec model.md 4.6): scores every visible compressed row of a source, tile by tile, and
// keeps the best; at the candidate source also the best blocks, which later index sources choose
// from.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/step.h"

namespace cedra::model {
namespace {

using kernels::SumRule;

// Scores of one query row against runs of its source's keys.
class Scorer {
 public:
  Scorer(Step& step, const Stage& stage, int64_t layer)
      : step_(step),
        stage_(stage),
        text_(step.text()),
        layout_(step.pool->layout()),
        source_(layout_.sources[static_cast<size_t>(layout_.source_of(layer))]),
        makes_candidates_(layer == text_.candidate_source_layer_id),
        filtered_(text_.candidate_source_layer_id >= 0 && layer > text_.candidate_source_layer_id) {
  }

  bool makes_candidates() const { return makes_candidates_; }
  int64_t visible(int64_t row) const {
    return visible_rows(stage_.rows[static_cast<size_t>(row)].position, source_.ratio);
  }
  int64_t block_size() const { return text_.candidate_block_size; }
  int64_t blocks(int64_t row) const { return (visible(row) + block_size() - 1) / block_size(); }

  // Whether every visible row is chosen, so that nothing needs a score.
  bool takes_all(int64_t row) const {
    return visible(row) <= text_.index_topk &&
           (!makes_candidates_ || blocks(row) <= text_.candidate_topk_blocks);
  }

  // Pushes rows [begin, end) that this layer may choose from. Block maxima go to top_blocks where
  // candidates are made; then begin is a multiple of the candidate block size.
  void scan(int64_t row, int64_t begin, int64_t end, float* scores, RunningTopK& top_rows,
            RunningTopK* top_blocks) const {
    if (!filtered_ || step_.work.candidate_count[row] < 0) {
      scan_run(row, begin, end, scores, top_rows, top_blocks);
      return;
    }
    const int32_t* candidates = step_.work.candidates + row * text_.candidate_topk_blocks;
    const int64_t count = step_.work.candidate_count[row];
    for (int64_t i = 0; i < count;) {
      int64_t last = i;  // neighbouring blocks are scored as one run
      while (last + 1 < count && candidates[last + 1] == candidates[last] + 1) ++last;
      scan_run(row, std::max(begin, candidates[i] * block_size()),
               std::min(end, (candidates[last] + 1) * block_size()), scores, top_rows, nullptr);
      i = last + 1;
    }
  }

 private:
  void scan_run(int64_t row, int64_t begin, int64_t end, float* scores, RunningTopK& top_rows,
                RunningTopK* top_blocks) const {
    const Run& run = stage_.runs[static_cast<size_t>(stage_.rows[static_cast<size_t>(row)].run)];
    kernels::IndexJob job;
    job.heads = text_.index_n_heads;
    job.dim = text_.index_head_dim;
    job.q = step_.work.index_q + row * job.heads * job.dim;
    job.head_weight = step_.work.head_weight_f + row * job.heads;
    job.scores = scores;
    const int64_t newest_block = (visible(row) - 1) / std::max<int64_t>(block_size(), 1);
    float block_best = -std::numeric_limits<float>::infinity();
    for (int64_t j = begin; j < end; j += job.n) {
      const int64_t slot = j % source_.rows_per_block;
      job.n = std::min({source_.rows_per_block - slot, end - j, step_.work.score_tile});
      const uint8_t* block =
          step_.pool->data(run.sequence->blocks[static_cast<size_t>(j / source_.rows_per_block)]);
      job.codes = block + source_.index_codes + slot * layout_.index_code_bytes;
      job.scales = block + source_.index_scales + slot * layout_.index_scale_bytes;
      step_.ops.index_scores(job);
      top_rows.push_run(scores, j, job.n);
      if (top_blocks == nullptr) continue;
      for (int64_t i = 0; i < job.n; ++i) {
        block_best = std::max(block_best, scores[i]);
        const int64_t next = j + i + 1;
        if (next % block_size() != 0 && next != end) continue;
        const int64_t candidate = (next - 1) / block_size();
        // The block of the newest visible row is always kept.
        if (candidate == newest_block) block_best = std::numeric_limits<float>::infinity();
        top_blocks->push(block_best, static_cast<int32_t>(candidate));
        block_best = -std::numeric_limits<float>::infinity();
      }
    }
  }

  Step& step_;
  const Stage& stage_;
  const TextConfig& text_;
  const cache::CacheLayout& layout_;
  const cache::SourceLayout& source_;
  bool makes_candidates_;
  bool filtered_;
};

// index_q and head weights of all rows.
void index_queries(Step& step, const Stage& stage, const IndexerWeights& weights) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t rows = stage.size();
  const int64_t heads = text.index_n_heads;
  const int64_t dim = text.index_head_dim;
  const int64_t pairs = text.qk_rope_head_dim / 2;
  linear(step, weights.wq_b, work.q_latent_q, text.q_lora_rank, rows, SumRule::kBlocks32,
         {.as_bf16 = work.index_q, .stride = heads * dim});
  linear(step, weights.weights_proj, work.hidden, text.hidden_size, rows, SumRule::kWhole,
         {.as_bf16 = work.head_weight, .stride = heads});
  const float head_scale = static_cast<float>(std::pow(static_cast<double>(dim), -0.5) *
                                              std::pow(static_cast<double>(heads), -0.5));
  step.team.for_range(rows * heads, 8, [&](int64_t begin, int64_t end, int) {
    uint8_t codes[kernels::kMaxIndexDim / 2];
    uint8_t scales[kernels::kMaxIndexDim / 32];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / heads;
      bf16* q = work.index_q + i * dim;
      step.ops.rope(q + dim - 2 * pairs, work.cos[1] + t * pairs, work.sin[1] + t * pairs, pairs,
                    false);
      step.ops.pack_index(q, dim, codes, scales);
      step.ops.unpack_index(codes, scales, dim, q);
      work.head_weight_f[i] = round_bf16(to_float(work.head_weight[i]) * head_scale);
    }
  });
}

void take_all(Workspace& work, const TextConfig& text, int64_t row, int64_t visible) {
  for (int64_t j = 0; j < visible; ++j) {
    work.selected[row * text.index_topk + j] = static_cast<int32_t>(j);
  }
  work.selected_count[row] = static_cast<int32_t>(visible);
}

// Writes the finished top-k of a row.
void publish(Workspace& work, const TextConfig& text, const Scorer& scorer, int64_t row,
             RunningTopK& top_rows, RunningTopK& top_blocks) {
  const int64_t count = top_rows.finish();
  for (int64_t i = 0; i < count; ++i) {
    work.selected[row * text.index_topk + i] = top_rows.items()[i].index;
  }
  work.selected_count[row] = static_cast<int32_t>(count);
  if (!scorer.makes_candidates()) return;
  if (scorer.blocks(row) <= text.candidate_topk_blocks) {
    work.candidate_count[row] = -1;
    return;
  }
  const int64_t blocks = top_blocks.finish();
  for (int64_t i = 0; i < blocks; ++i) {
    work.candidates[row * text.candidate_topk_blocks + i] = top_blocks.items()[i].index;
  }
  work.candidate_count[row] = static_cast<int32_t>(blocks);
}

void select_row(Step& step, const Scorer& scorer, int64_t row, MemberScratch& mine) {
  const TextConfig& text = step.text();
  RunningTopK top_rows(mine.top_rows, text.index_topk);
  RunningTopK top_blocks(mine.top_blocks, text.candidate_topk_blocks);
  scorer.scan(row, 0, scorer.visible(row), mine.scores, top_rows,
              scorer.makes_candidates() ? &top_blocks : nullptr);
  publish(step.work, text, scorer, row, top_rows, top_blocks);
}

// One row over the whole team: every member scans a part of the context, the caller merges. The
// result is a set under a total order, so the cut cannot change it.
void select_row_together(Step& step, const Scorer& scorer, int64_t row) {
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const int64_t visible = scorer.visible(row);
  const int64_t grain = std::max<int64_t>(1, text.candidate_block_size) * 64;
  const int members = step.team.size();
  step.team.run([&](int member) {
    MemberScratch& mine = work.members[static_cast<size_t>(member)];
    RunningTopK top_rows(mine.top_rows, text.index_topk);
    RunningTopK top_blocks(mine.top_blocks, text.candidate_topk_blocks);
    const Range part = static_part(visible, grain, member, members);
    scorer.scan(row, part.begin, part.end, mine.scores, top_rows,
                scorer.makes_candidates() ? &top_blocks : nullptr);
    mine.found_rows = top_rows.finish();
    mine.found_blocks = scorer.makes_candidates() ? top_blocks.finish() : 0;
  });
  RunningTopK top_rows(work.merge_rows, text.index_topk);
  RunningTopK top_blocks(work.merge_blocks, text.candidate_topk_blocks);
  for (const MemberScratch& part : work.members) {
    for (int64_t i = 0; i < part.found_rows; ++i) {
      top_rows.push(part.top_rows[i].score, part.top_rows[i].index);
    }
    for (int64_t i = 0; i < part.found_blocks; ++i) {
      top_blocks.push(part.top_blocks[i].score, part.top_blocks[i].index);
    }
  }
  publish(work, text, scorer, row, top_rows, top_blocks);
}

}  // namespace

void select(Step& step, const Stage& stage, int64_t layer) {
  const PhaseScope phase(step.phases, Phase::kIndexer);
  Workspace& work = step.work;
  const TextConfig& text = step.text();
  const Scorer scorer(step, stage, layer);
  const int64_t rows = stage.size();
  bool any_scored = false;
  for (int64_t row = 0; row < rows; ++row) {
    if (scorer.takes_all(row)) {
      take_all(work, text, row, scorer.visible(row));
      if (scorer.makes_candidates()) work.candidate_count[row] = -1;
    } else {
      any_scored = true;
    }
  }
  if (any_scored) {
    index_queries(step, stage,
                  *step.model.weights().layers[static_cast<size_t>(layer)].attn.indexer);
    if (rows >= 2 * step.team.size() || step.team.size() == 1) {
      step.team.for_range(rows, 1, [&](int64_t begin, int64_t end, int member) {
        for (int64_t row = begin; row < end; ++row) {
          if (!scorer.takes_all(row)) {
            select_row(step, scorer, row, work.members[static_cast<size_t>(member)]);
          }
        }
      });
    } else {
      for (int64_t row = 0; row < rows; ++row) {
        if (!scorer.takes_all(row)) select_row_together(step, scorer, row);
      }
    }
  }
  if (step.probe == nullptr) return;
  // The probe wants the reference's shape: a rectangle, -1 = none.
  for (int64_t row = 0; row < rows; ++row) {
    std::fill(work.selected + row * text.index_topk + work.selected_count[row],
              work.selected + (row + 1) * text.index_topk, -1);
  }
  step.probe->selected(layer, rows, text.index_topk, work.selected);
}

}  // namespace cedra::model

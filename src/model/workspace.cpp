#include "model/workspace.h"

#include <cstring>
#include <new>
#include <numeric>

namespace cedra::model {
namespace {

constexpr int64_t kAlign = 64;

// Hands out aligned pieces of one region; with a null base it only counts.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}
  template <class T>
  void take(T*& target, int64_t count) {
    if (base_ != nullptr) target = reinterpret_cast<T*>(base_ + offset_);
    offset_ += (count * int64_t{sizeof(T)} + kAlign - 1) / kAlign * kAlign;
  }
  int64_t used() const { return offset_; }

 private:
  uint8_t* base_;
  int64_t offset_ = 0;
};

void carve(Workspace& w, Carver& c, const TextConfig& t, const WorkspaceLimits& limits,
           int threads) {
  const int64_t T = limits.rows;
  const int64_t C = t.hc_mult;
  const int64_t D = t.hidden_size;
  const int64_t pairs = t.qk_rope_head_dim / 2;
  const int64_t heads_width = t.num_attention_heads * t.head_dim;
  const int64_t P = T * (t.num_experts_per_tok + 1);
  for (int stage = 0; stage < 2; ++stage) {
    c.take(w.stream[stage], T * C * D);
    c.take(w.pre[stage], T * C);
    c.take(w.cos[stage], T * pairs);
    c.take(w.sin[stage], T * pairs);
  }
  c.take(w.mix_dots, T * t.hc_mixes());
  c.take(w.pre_attn, T * C);
  c.take(w.pre_ffn, T * C);
  c.take(w.post, T * C);
  c.take(w.comb, T * C * C);
  c.take(w.hidden, T * D);
  c.take(w.hidden_q, T * D);
  c.take(w.output, T * D);

  c.take(w.q_latent, T * t.q_lora_rank);
  c.take(w.q_latent_q, T * t.q_lora_rank);
  c.take(w.q, T * heads_width);
  c.take(w.kv, T * t.head_dim);
  c.take(w.own_records, T * (t.head_dim + t.head_dim / 32));
  c.take(w.heads, T * heads_width);
  c.take(w.low_rank, T * t.o_groups * t.o_lora_rank);

  c.take(w.pool_kv, T * t.head_dim);
  c.take(w.pool_score, T * t.head_dim);
  c.take(w.latent, T * t.head_dim);
  c.take(w.index_key, T * t.index_head_dim);

  c.take(w.index_q, T * t.index_n_heads * t.index_head_dim);
  c.take(w.head_weight, T * t.index_n_heads);
  c.take(w.head_weight_f, T * t.index_n_heads);
  c.take(w.selected, T * t.index_topk);
  c.take(w.selected_count, T);
  c.take(w.candidates, T * t.candidate_topk_blocks);
  c.take(w.candidate_count, T);

  c.take(w.router, T * t.n_routed_experts);
  c.take(w.chosen, T * t.num_experts_per_tok);
  c.take(w.chosen_weight, T * t.num_experts_per_tok);
  c.take(w.expert_rows, P);
  c.take(w.slot_of, P);
  c.take(w.expert_begin, t.n_routed_experts + 2);
  c.take(w.expert_x, P * D);
  c.take(w.expert_gate, P * t.moe_intermediate_size);
  c.take(w.expert_up, P * t.moe_intermediate_size);
  c.take(w.expert_h, P * t.moe_intermediate_size);
  c.take(w.expert_y, P * D);

  const int64_t tables = static_cast<int64_t>(t.engram_layer_ids.size());
  if (tables > 0) {
    c.take(w.engram_rows, T * tables * t.engram_columns());
    c.take(w.engram_e, T * t.engram_columns() * t.engram_head_dim);
    c.take(w.engram_kv, T * (C + 1) * D);
  }
  c.take(w.normed, T * D);
  c.take(w.logits, limits.logit_rows * t.vocab_size);
  const int64_t taps = static_cast<int64_t>(t.dspark_target_layer_ids.size());
  c.take(w.taps, limits.tap_rows * taps * D);
  c.take(w.early_taps, limits.tap_rows > 0 ? T * limits.early_taps * D : 0);

  for (int member = 0; member < threads; ++member) {
    MemberScratch scratch;
    c.take(scratch.keys, limits.entries * t.head_dim);
    c.take(scratch.present, limits.entries);
    c.take(scratch.attend, kernels::attend_scratch_floats(t.head_dim));
    c.take(scratch.scores, w.score_tile);
    c.take(scratch.top_rows, RunningTopK::capacity(t.index_topk));
    c.take(scratch.top_blocks, RunningTopK::capacity(t.candidate_topk_blocks));
    c.take(scratch.angles, 2 * pairs);
    c.take(scratch.sum, D);
    w.members[static_cast<size_t>(member)] = scratch;
  }
  c.take(w.merge_rows, RunningTopK::capacity(t.index_topk));
  c.take(w.merge_blocks, RunningTopK::capacity(t.candidate_topk_blocks));
}

constexpr int64_t kScoreTile = 1024;

}  // namespace

Workspace::Workspace(const TextConfig& config, const WorkspaceLimits& limits, int threads)
    : Workspace(threads) {
  Carver count(nullptr);
  carve(*this, count, config, limits, threads);
  Result<Pages> memory = Pages::reserve(count.used());
  if (!memory.has_value()) throw std::bad_alloc();
  memory_ = std::move(*memory);
  Carver place(memory_.data());
  carve(*this, place, config, limits, threads);
}

Workspace::Workspace(int threads) : score_tile(kScoreTile), members(static_cast<size_t>(threads)) {}

void Workspace::poison() { std::memset(memory_.data(), 0xFF, memory_.bytes().size()); }

int64_t Workspace::bytes(const TextConfig& config, const WorkspaceLimits& limits, int threads) {
  Carver count(nullptr);
  Workspace sizes(threads);
  carve(sizes, count, config, limits, threads);
  return count.used();
}

}  // namespace cedra::model

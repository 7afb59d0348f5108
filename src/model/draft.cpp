// One proposal, in the order of spec dspark.md 5: block of anchor and noise, the stages, head,
// Markov chain with confidences. Blocks are made of the same parts as the backbone's layers.
#include "model/draft.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "model/rope.h"
#include "model/step.h"
#include "parallel/populate.h"

namespace cedra::model {
namespace {

using kernels::SumRule;

// The dims of the stages' workspace: their own experts, no index, no Engram.
TextConfig stage_dims(TextConfig text) {
  text.n_routed_experts = text.dspark_n_routed_experts;
  text.num_experts_per_tok = text.dspark_num_experts_per_tok;
  text.index_n_heads = 0;
  text.index_topk = 0;
  text.candidate_topk_blocks = 0;
  text.engram_layer_ids.clear();
  return text;
}

WorkspaceLimits workspace_limits(const TextConfig& text, const DraftLimits& limits) {
  WorkspaceLimits work;
  work.rows = limits.max_rows;
  work.logit_rows = limits.max_rows;
  work.entries = text.sliding_window + limits.max_rows;
  return work;
}

// Every query of a block sees the whole context, oldest first, and then all rows of its block,
// later ones too.
class BlockLists : public AttentionLists {
 public:
  BlockLists(const Step& step, const Stage& stage, std::span<const DraftRequest> requests,
             int64_t draft_stage)
      : step_(step), stage_(stage), requests_(requests), draft_stage_(draft_stage) {}

  int64_t entries(int64_t row) const override { return state(row).context() + run(row).count; }

  void gather(int64_t row, int64_t begin, int64_t end, bf16* keys,
              uint8_t* present) const override {
    const TextConfig& text = step_.text();
    const DraftState& from = state(row);
    const int64_t context = from.context();
    for (int64_t e = begin; e < end; ++e) {
      const uint8_t* record = e < context
                                  ? from.record(draft_stage_, from.committed - context + e)
                                  : step_.work.own_records + (run(row).first_row + e - context) *
                                                                 window_record_bytes(text);
      step_.ops.unpack_fp8(record, record + text.head_dim, text.head_dim, keys + e * text.head_dim);
      present[e] = 1;
    }
  }

 private:
  const Run& run(int64_t row) const {
    return stage_.runs[static_cast<size_t>(stage_.rows[static_cast<size_t>(row)].run)];
  }
  const DraftState& state(int64_t row) const {
    return *requests_[static_cast<size_t>(stage_.rows[static_cast<size_t>(row)].run)].state;
  }
  const Step& step_;
  const Stage& stage_;
  std::span<const DraftRequest> requests_;
  int64_t draft_stage_;
};

}  // namespace

// ---- windows

DraftState::DraftState(const TextConfig& config)
    : window_(config.sliding_window),
      record_bytes_(window_record_bytes(config)),
      bytes_(slot_bytes(config)),
      windows_(new uint8_t[static_cast<size_t>(bytes_)]()) {}

void DraftState::reset() {
  start = 0;
  committed = 0;
}

int64_t DraftState::slot_bytes(const TextConfig& config) {
  return config.num_nextn_predict_layers * config.sliding_window * window_record_bytes(config);
}

struct Drafter::Impl {
  Impl(const Model& model, const kernels::Ops& ops, Team& team, const DraftLimits& limits_in)
      : limits(limits_in),
        weights(*model.draft()),
        work(stage_dims(model.text()), workspace_limits(model.text(), limits_in), team.size()),
        step{model, ops, team, work, nullptr} {
    const TextConfig& text = model.text();
    const auto elements = [](int64_t rows, int64_t width) {
      return static_cast<size_t>(rows * width);
    };
    stage.runs.reserve(elements(limits.max_requests, 1));
    stage.rows.reserve(elements(limits.max_rows, 1));
    committing.reserve(elements(limits.max_rows, 1));
    active.reserve(elements(limits.max_requests, 1));
    main.resize(elements(limits.max_rows, tap_width()));
    features.resize(elements(limits.max_requests, text.hidden_size + text.dspark_markov_rank));
    bias.resize(elements(limits.max_requests, text.vocab_size));
    scores.resize(elements(limits.max_requests, 1));
    tokens.resize(elements(limits.max_rows, 1));
    confidence.resize(elements(limits.max_rows, 1));
  }

  // A tapped position on its way into the windows.
  struct Position {
    DraftState* state;
    int64_t position;
    const bf16* taps;
  };

  void write_windows();
  void rotations(int64_t rows, auto&& position_of);
  void enter(std::span<const DraftRequest> requests);
  void run_stage(std::span<const DraftRequest> requests, int64_t n);
  void exit();
  void chain(std::span<const DraftRequest> requests, DraftChooser* chooser);
  void score_slot(std::span<const DraftRequest> requests, int64_t slot);

  int64_t tap_width() const {
    const TextConfig& text = step.text();
    return static_cast<int64_t>(text.dspark_target_layer_ids.size()) * text.hidden_size;
  }
  const Run& run(int64_t request) const { return stage.runs[static_cast<size_t>(request)]; }

  DraftLimits limits;
  const DraftWeights& weights;
  Workspace work;
  Step step;
  Stage stage;                       // a run per request
  std::vector<Position> committing;  // at most max_rows
  std::vector<int64_t> active;       // requests whose block has the slot in hand
  std::vector<bf16> main;            // [T, taps * D], quantised
  std::vector<bf16> features;        // [R, D + r]: hidden, then the embedding of the token before
  std::vector<float> bias;           // [R, V]
  std::vector<float> scores;         // [R]
  std::vector<int32_t> tokens;       // [T]
  std::vector<float> confidence;     // [T]
};

void Drafter::Impl::rotations(int64_t rows, auto&& position_of) {
  const int64_t pairs = step.text().qk_rope_head_dim / 2;
  for (int64_t t = 0; t < rows; ++t) {
    rope_angles(step.model.window_frequencies(), position_of(t), work.cos[0] + t * pairs,
                work.sin[0] + t * pairs);
  }
}

// ---- commits (dspark.md 3 and 4)

// Everything in `committing` into the windows of all stages.
void Drafter::Impl::write_windows() {
  const TextConfig& text = step.text();
  const int64_t rows = static_cast<int64_t>(committing.size());
  if (rows == 0) return;
  const int64_t width = tap_width();
  step.team.for_range(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      step.ops.quantize_q8(committing[static_cast<size_t>(t)].taps, main.data() + t * width, width);
    }
  });
  linear(step, weights.main_proj, main.data(), width, rows, SumRule::kBlocks32,
         {.as_bf16 = work.hidden, .stride = text.hidden_size});
  norm_rows(step, work.hidden, weights.main_norm, work.hidden, rows, text.hidden_size);
  quantize_rows(step, work.hidden, work.hidden_q, rows, text.hidden_size);
  rotations(rows, [&](int64_t t) { return committing[static_cast<size_t>(t)].position; });
  const int64_t bytes = window_record_bytes(text);
  for (size_t n = 0; n < weights.stages.size(); ++n) {
    window_rows(step, weights.stages[n].attn, rows, 0);
    for (int64_t t = 0; t < rows; ++t) {
      const Position& to = committing[static_cast<size_t>(t)];
      std::memcpy(to.state->record(static_cast<int64_t>(n), to.position),
                  work.own_records + t * bytes, static_cast<size_t>(bytes));
    }
  }
  committing.clear();
}

void Drafter::commit(std::span<const DraftCommit> commits) {
  Impl& impl = *impl_;
  const int64_t width = impl.tap_width();
  impl.committing.clear();
  for (const DraftCommit& commit : commits) {
    const Taps& taps = commit.taps;
    if (taps.count == 0) continue;
    DraftState& state = *commit.state;
    assert(taps.position >= state.committed);
    // Older rows would be overwritten by newer ones.
    for (int64_t i = std::max<int64_t>(0, taps.count - state.window()); i < taps.count; ++i) {
      impl.committing.push_back({&state, taps.position + i, taps.rows + i * width});
      if (static_cast<int64_t>(impl.committing.size()) == impl.limits.max_rows) {
        impl.write_windows();
      }
    }
    if (taps.position != state.committed) state.start = taps.position;
    state.committed = taps.position + taps.count;
  }
  impl.write_windows();
}

// ---- proposals (dspark.md 5)

void Drafter::Impl::enter(std::span<const DraftRequest> requests) {
  const TextConfig& text = step.text();
  const int64_t row_bytes = text.hidden_size * int64_t{sizeof(bf16)};
  stage.runs.clear();
  stage.rows.clear();
  for (size_t r = 0; r < requests.size(); ++r) {
    const DraftRequest& request = requests[r];
    assert(request.width >= 1 && stage.size() + request.width <= limits.max_rows);
    Run run;
    run.first_row = stage.size();
    run.position = request.state->committed;
    run.count = request.width;
    for (int64_t slot = 0; slot < request.width; ++slot) {
      const int64_t id = slot == 0 ? request.anchor : text.dspark_noise_token_id;
      enter_row(step, stage, stage.size(), step.model.weights().embed + id * row_bytes);
      stage.rows.push_back({static_cast<int32_t>(r), false, run.position + slot});
    }
    stage.runs.push_back(run);
  }
  rotations(stage.size(), [&](int64_t t) { return stage.rows[static_cast<size_t>(t)].position; });
}

void Drafter::Impl::run_stage(std::span<const DraftRequest> requests, int64_t n) {
  const TextConfig& text = step.text();
  const LayerWeights& layer = weights.stages[static_cast<size_t>(n)];
  const int64_t rows = stage.size();

  sublayer_input(step, stage, work.pre[0], layer.attn_norm);
  quantize_rows(step, work.hidden, work.hidden_q, rows, text.hidden_size);
  window_rows(step, layer.attn, rows, 0);
  attention_queries(step, layer.attn, rows, 0);
  attend_rows(step, rows, layer.attn.sink, BlockLists(step, stage, requests, n));
  attention_output(step, layer.attn, rows, 0);
  mixes(step, stage, layer.hc_attn, work.pre_attn);
  expand(step, stage);

  mixes(step, stage, layer.hc_ffn, work.pre_ffn);
  sublayer_input(step, stage, work.pre_attn, layer.ffn_norm);
  moe(step, stage, layer.ffn, text.dspark_num_experts_per_tok);
  expand(step, stage);
  std::memcpy(work.pre[0], work.pre_ffn, static_cast<size_t>(rows * text.hc_mult) * sizeof(float));
}

// work.hidden = the collapsed stream, work.logits = head of its norm.
void Drafter::Impl::exit() {
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  for (int64_t t = 0; t < stage.size(); ++t) {
    step.ops.collapse(work.stream[0] + t * text.hc_mult * dim, work.pre[0] + t * text.hc_mult,
                      text.hc_mult, dim, work.hidden + t * dim);
  }
  norm_rows(step, work.hidden, weights.norm, work.normed, stage.size(), dim);
  linear(step, step.model.weights().head, work.normed, dim, stage.size(), SumRule::kWhole,
         {.as_f32 = work.logits, .stride = text.vocab_size});
}

// Adds what the token before the slot says to the slot's logits, and its confidence, for all
// requests in `active`.
void Drafter::Impl::score_slot(std::span<const DraftRequest> requests, int64_t slot) {
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  const int64_t rank = text.dspark_markov_rank;
  const int64_t width = dim + rank;
  const int64_t vocab = text.vocab_size;
  const int64_t count = static_cast<int64_t>(active.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t request = active[static_cast<size_t>(i)];
    const int64_t row = run(request).first_row + slot;
    const int64_t before = slot == 0 ? requests[static_cast<size_t>(request)].anchor
                                     : tokens[static_cast<size_t>(row - 1)];
    bf16* feature = features.data() + i * width;
    std::memcpy(feature, work.hidden + row * dim, static_cast<size_t>(dim) * sizeof(bf16));
    std::memcpy(feature + dim, weights.markov_embed + before * rank * int64_t{sizeof(bf16)},
                static_cast<size_t>(rank) * sizeof(bf16));
  }
  linear(step, weights.markov_head, features.data() + dim, width, count, SumRule::kWhole,
         {.as_f32 = bias.data(), .stride = vocab});
  linear(step, weights.confidence, features.data(), width, count, SumRule::kWhole,
         {.as_f32 = scores.data(), .stride = 1});
  step.team.for_range(vocab, 4096, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = run(active[static_cast<size_t>(i)]).first_row + slot;
      float* logits = work.logits + row * vocab;
      for (int64_t v = begin; v < end; ++v) logits[v] += bias[static_cast<size_t>(i * vocab + v)];
    }
  });
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = run(active[static_cast<size_t>(i)]).first_row + slot;
    confidence[static_cast<size_t>(row)] = scores[static_cast<size_t>(i)];
  }
}

// Slot after slot, because each token changes the logits of the next.
void Drafter::Impl::chain(std::span<const DraftRequest> requests, DraftChooser* chooser) {
  const size_t vocab = static_cast<size_t>(step.text().vocab_size);
  for (int64_t slot = 0;; ++slot) {
    active.clear();
    for (size_t r = 0; r < requests.size(); ++r) {
      if (slot < requests[r].width) active.push_back(static_cast<int64_t>(r));
    }
    if (active.empty()) return;
    score_slot(requests, slot);
    for (const int64_t request : active) {
      const size_t row = static_cast<size_t>(run(request).first_row + slot);
      const std::span<const float> logits(work.logits + row * vocab, vocab);
      tokens[row] = chooser != nullptr
                        ? chooser->choose(request, slot, logits)
                        : static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
    }
  }
}

void Drafter::propose(std::span<const DraftRequest> requests, DraftChooser* chooser) {
  Impl& impl = *impl_;
  assert(static_cast<int64_t>(requests.size()) <= impl.limits.max_requests);
  impl.enter(requests);
  if (impl.stage.size() == 0) return;
  for (size_t n = 0; n < impl.weights.stages.size(); ++n) {
    impl.run_stage(requests, static_cast<int64_t>(n));
  }
  impl.exit();
  impl.chain(requests, chooser);
}

Draft Drafter::draft(int64_t request) const {
  const Impl& impl = *impl_;
  const Run& run = impl.run(request);
  const size_t first = static_cast<size_t>(run.first_row);
  const size_t count = static_cast<size_t>(run.count);
  return {.tokens = {impl.tokens.data() + first, count},
          .logits = impl.work.logits + run.first_row * impl.step.text().vocab_size,
          .confidence = {impl.confidence.data() + first, count}};
}

// ---- construction

Result<std::unique_ptr<Drafter>> Drafter::create(const Model& model, const kernels::Ops& ops,
                                                 Team& team, const DraftLimits& limits) {
  if (model.draft() == nullptr) {
    return err(Code::kUnsupported,
               "this checkpoint has no draft stages (num_nextn_predict_layers is 0 or they were "
               "switched off): run it without speculative decoding");
  }
  if (limits.max_requests < 1 || limits.max_rows < limits.max_requests) {
    return err(Code::kInvalid, "a proposal needs a row for each of its {} requests, got {} rows",
               limits.max_requests, limits.max_rows);
  }
  try {
    std::unique_ptr<Drafter> drafter(new Drafter(std::make_unique<Impl>(model, ops, team, limits)));
    CEDRA_TRY(populate(team, drafter->impl_->work.memory()));
    return drafter;
  } catch (const std::bad_alloc&) {
    return err(Code::kExhausted, "cannot reserve {} bytes to draft {} rows at once",
               workspace_bytes(model.text(), limits, team.size()), limits.max_rows);
  }
}

Drafter::Drafter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Drafter::~Drafter() = default;

int64_t Drafter::workspace_bytes(const TextConfig& config, const DraftLimits& limits, int threads) {
  const int64_t taps = static_cast<int64_t>(config.dspark_target_layer_ids.size());
  const int64_t main = taps * config.hidden_size * int64_t{sizeof(bf16)};
  const int64_t features = (config.hidden_size + config.dspark_markov_rank) * int64_t{sizeof(bf16)};
  return Workspace::bytes(stage_dims(config), workspace_limits(config, limits), threads) +
         limits.max_rows * (main + int64_t{sizeof(int32_t)} + int64_t{sizeof(float)}) +
         limits.max_requests * (features + (config.vocab_size + 1) * int64_t{sizeof(float)});
}

void Drafter::poison() {
  Impl& impl = *impl_;
  impl.work.poison();
  const auto fill = [](auto& values) {
    std::memset(values.data(), 0xFF, values.size() * sizeof(values[0]));
  };
  fill(impl.main);
  fill(impl.features);
  fill(impl.bias);
  fill(impl.scores);
  fill(impl.tokens);
  fill(impl.confidence);
}

}  // namespace cedra::model

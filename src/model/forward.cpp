// The whole pass, in the words of the report: entry, layers, exit (spec model.md 4.1, 4.2, 4.9),
// and the cut at the seam for bounded prefill (kv_cache.md 4b). Layer files hold the loops.
#include "model/forward.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "model/rope.h"
#include "model/step.h"
#include "parallel/populate.h"

namespace cedra::model {

namespace {

// Tap layers before the seam.
int64_t early_taps(const TextConfig& text) {
  const int64_t seam = text.replay_seam();
  return std::ranges::count_if(text.dspark_target_layer_ids,
                               [&](int64_t layer) { return layer < seam; });
}

WorkspaceLimits workspace_limits(const TextConfig& text, const ForwardLimits& limits) {
  WorkspaceLimits work;
  work.rows = limits.max_rows;
  work.logit_rows = limits.max_logit_rows;
  work.entries = text.sliding_window + text.index_topk;
  if (limits.draft_taps) {
    work.tap_rows = limits.max_rows;
    if (text.replay_seam() >= 0) {
      // Every segment may be the end of a bounded prefill, whose one row here brings a window.
      work.tap_rows += std::min(limits.max_segments, limits.max_rows) * (text.sliding_window - 1);
    }
    work.early_taps = early_taps(text);
  }
  return work;
}

}  // namespace

int64_t early_tap_width(const TextConfig& config) {
  return early_taps(config) * config.hidden_size;
}

struct Forward::Impl {
  Impl(const Model& model, const kernels::Ops& ops, Team& team, const ForwardLimits& limits_in,
       cache::BlockPool& pool)
      : limits(limits_in),
        work(model.text(), workspace_limits(model.text(), limits_in), team.size()),
        step{model, ops, team, work, &pool},
        seam(model.text().replay_seam()),
        early_width(early_tap_width(model.text())) {
    for (Stage* stage : {&encoder, &decoder}) {
      stage->runs.reserve(static_cast<size_t>(limits.max_segments));
      stage->rows.reserve(static_cast<size_t>(limits.max_rows));
    }
    decoder.buffer = 1;
    taps.reserve(static_cast<size_t>(limits.max_segments));
    const int64_t lookback = std::max<int64_t>(model.text().engram_max_ngram_size - 1, 0);
    // A history is longer than the look-back by the rows of the step before that it can give back.
    compressed_ids.reserve(static_cast<size_t>(2 * limits.max_rows + lookback));
  }

  void enter(std::span<const Segment> segments);
  void run_layers(Stage& stage, int64_t begin, int64_t end, bool seam_compressed);
  void layer(Stage& stage, int64_t n, bool compressed_early);
  void run_decoder(std::span<const Segment> segments);
  void keep_for_decoder(const Segment& segment, const Run& run);
  void place_decoder_rows(std::span<const Segment> segments, size_t index);
  void rotations(const Stage& stage);
  void exit(const Stage& stage);
  void tap(const Stage& stage, int64_t n);
  bf16* place_taps(size_t segment, const Run& run);
  void place_early_taps(const bf16* early, bf16* row);
  void tap_whole_step();

  ForwardLimits limits;
  Workspace work;
  Step step;
  int64_t seam;   // first layer of the decoder half, -1: none
  Stage encoder;  // all rows
  Stage decoder;  // rows from the seam on, where they differ
  std::vector<int32_t> compressed_ids;
  int64_t wanted = 0;  // rows in work.normed
  // With limits.draft_taps.
  std::vector<Taps> taps;  // per segment
  int64_t tap_row = 0;     // row of work.taps where the current stage begins
  int64_t early_width;     // tap elements of a row from layers before the seam
};

// ---- entry (4.1) and exit (4.9)

void Forward::Impl::enter(std::span<const Segment> segments) {
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  const EngramHasher* hasher = step.model.hasher();
  Stage& stage = encoder;
  stage.runs.clear();
  stage.rows.clear();
  wanted = 0;
  for (const Segment& segment : segments) {
    cache::Sequence& sequence = *segment.sequence;
    Run run;
    run.sequence = &sequence;
    run.first_row = stage.size();
    run.position = sequence.length;
    run.count = static_cast<int64_t>(segment.tokens.size());
    run.window_start = sequence.encoder_window_start;
    run.replay_until = segment.replay_until;
    run.may_roll_back = segment.may_roll_back;
    assert(run.may_roll_back <= std::min(run.count, sequence.limits().max_rollback));
    assert(run.may_roll_back == 0 || !segment.bounded);
    sequence.rollback_floor = run.position + run.count - run.may_roll_back;
    run.want = segment.want;
    run.captures = segment.captures;
    for (int64_t i = 0; i < run.count; ++i) {
      const bool image = !segment.kinds.empty() && segment.kinds[i] == RowKind::kImage;
      const void* embedding = nullptr;
      if (image) {
        embedding = segment.embeddings[i];
      } else {
        embedding = step.model.weights().embed + segment.tokens[i] * dim * int64_t{sizeof(bf16)};
      }
      enter_row(step, stage, stage.size(), embedding);
      stage.rows.push_back({static_cast<int32_t>(stage.runs.size()), image, run.position + i});
    }
    if (hasher != nullptr) {
      // Look-back, then this segment; its last ids are the next look-back.
      compressed_ids.assign(sequence.engram_history.begin(), sequence.engram_history.end());
      const int64_t history = static_cast<int64_t>(compressed_ids.size());
      for (int64_t i = 0; i < run.count; ++i) {
        const bool image = stage.rows[static_cast<size_t>(run.first_row + i)].image;
        compressed_ids.push_back(hasher->compress(segment.tokens[i], image));
      }
      hasher->rows(compressed_ids, history,
                   work.engram_rows + run.first_row * hasher->tables() * text.engram_columns());
      const size_t keep =
          std::min(compressed_ids.size(), static_cast<size_t>(sequence.history_capacity()));
      sequence.engram_history.assign(compressed_ids.end() - static_cast<std::ptrdiff_t>(keep),
                                     compressed_ids.end());
    }
    stage.runs.push_back(run);
  }
  if (step.probe != nullptr && hasher != nullptr) {
    step.probe->engram_rows(stage.size(), hasher->tables() * text.engram_columns(),
                            work.engram_rows);
  }
}

// Final collapse and norm of the rows that are left; the head follows on demand.
void Forward::Impl::exit(const Stage& stage) {
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  const PhaseScope phase(step.phases, Phase::kHead);
  assert(wanted + stage.size() <= limits.max_rows);
  for (int64_t t = 0; t < stage.size(); ++t) {
    bf16* normed = work.normed + (wanted + t) * dim;
    step.ops.collapse(work.stream[stage.buffer] + t * text.hc_mult * dim,
                      work.pre[stage.buffer] + t * text.hc_mult, text.hc_mult, dim, normed);
    step.ops.rms_norm(normed, step.model.weights().norm, dim, static_cast<float>(text.rms_norm_eps),
                      normed);
  }
  wanted += stage.size();
}

// ---- one layer (4.2)

namespace {

void show(Step& step, const Stage& stage, int64_t layer, std::string_view module, int64_t width,
          const bf16* values) {
  if (step.probe != nullptr) step.probe->output(layer, module, stage.size(), width, values);
}

}  // namespace

void Forward::Impl::layer(Stage& stage, int64_t n, bool compressed_early) {
  const TextConfig& text = step.text();
  const LayerWeights& weights = step.model.weights().layers[static_cast<size_t>(n)];
  const bool last = n == text.num_hidden_layers - 1;
  const int64_t dim = text.hidden_size;

  // Each sublayer is read with the pre-mix of the sublayer before it.
  sublayer_input(step, stage, work.pre[stage.buffer], weights.attn_norm);
  attention(step, stage, n, compressed_early, last);
  if (stage.size() == 0) return;  // the windows are written, and nobody wants more
  show(step, stage, n, "attn", dim, work.output);
  mixes(step, stage, weights.hc_attn, work.pre_attn);
  expand(step, stage);

  mixes(step, stage, weights.hc_ffn, work.pre_ffn);
  sublayer_input(step, stage, work.pre_attn, weights.ffn_norm);
  moe(step, stage, weights.ffn, text.num_experts_per_tok);
  show(step, stage, n, "ffn", dim, work.output);
  expand(step, stage);
  std::memcpy(work.pre[stage.buffer], work.pre_ffn,
              static_cast<size_t>(stage.size() * text.hc_mult) * sizeof(float));
  show(step, stage, n, "stream", text.hc_mult * dim, work.stream[stage.buffer]);
  if (step.probe != nullptr) {
    step.probe->pre(n, stage.size(), text.hc_mult, work.pre[stage.buffer]);
  }
}

// Layers [begin, end). seam_compressed: layer `begin` has seen its probe, its Engram and its
// compressor already, on all rows.
void Forward::Impl::run_layers(Stage& stage, int64_t begin, int64_t end, bool seam_compressed) {
  const TextConfig& text = step.text();
  rotations(stage);
  for (int64_t n = begin; n < end && stage.size() > 0; ++n) {
    const bool entered = seam_compressed && n == begin;
    if (!entered && step.probe != nullptr) {
      step.probe->enter(n, stage.size(), work.stream[stage.buffer], work.pre[stage.buffer]);
    }
    if (!entered && text.engram_index(n) >= 0) {
      engram(step, stage, n);
      show(step, stage, n, "engram", text.hc_mult * text.hidden_size, work.stream[stage.buffer]);
    }
    if (limits.draft_taps) tap(stage, n);
    layer(stage, n, entered);
  }
}

// cos and sin of every row, for both kinds of layer (4.4).
void Forward::Impl::rotations(const Stage& stage) {
  const int64_t pairs = step.text().qk_rope_head_dim / 2;
  step.team.for_range(stage.size(), 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = stage.rows[static_cast<size_t>(t)].position;
      rope_angles(step.model.window_frequencies(), position, work.cos[0] + t * pairs,
                  work.sin[0] + t * pairs);
      rope_angles(step.model.compressed_frequencies(), position, work.cos[1] + t * pairs,
                  work.sin[1] + t * pairs);
    }
  });
}

// ---- draft taps (dspark.md 3)

// The stage is about to run layer n: the mean of its copies, if the layer is tapped.
void Forward::Impl::tap(const Stage& stage, int64_t n) {
  const TextConfig& text = step.text();
  const int64_t dim = text.hidden_size;
  const std::vector<int64_t>& ids = text.dspark_target_layer_ids;
  int64_t early = 0;
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k] == n) {
      const int64_t width = static_cast<int64_t>(ids.size()) * dim;
      bf16* out = n < seam ? work.early_taps + early * dim
                           : work.taps + tap_row * width + static_cast<int64_t>(k) * dim;
      const int64_t stride = n < seam ? early_width : width;
      step.team.for_range(stage.size(), 4, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          step.ops.copy_mean(work.stream[stage.buffer] + t * text.hc_mult * dim, text.hc_mult, dim,
                             out + t * stride);
        }
      });
    }
    if (ids[k] < seam) ++early;
  }
}

// Where the taps of a run go; the run's rows are numbered from the start of the current stage.
bf16* Forward::Impl::place_taps(size_t segment, const Run& run) {
  const TextConfig& text = step.text();
  const int64_t width =
      static_cast<int64_t>(text.dspark_target_layer_ids.size()) * text.hidden_size;
  bf16* rows = work.taps + (tap_row + run.first_row) * width;
  taps[segment] = {.position = run.position, .count = run.count, .rows = rows};
  return rows;
}

// One row's taps of layers before the seam, to their places among the others.
void Forward::Impl::place_early_taps(const bf16* early, bf16* row) {
  const TextConfig& text = step.text();
  const size_t bytes = static_cast<size_t>(text.hidden_size) * sizeof(bf16);
  for (const int64_t layer : text.dspark_target_layer_ids) {
    if (layer < seam) {
      std::memcpy(row, early, bytes);
      early += text.hidden_size;
    }
    row += text.hidden_size;
  }
}

// All rows of the step run all layers.
void Forward::Impl::tap_whole_step() {
  const int64_t width =
      static_cast<int64_t>(step.text().dspark_target_layer_ids.size()) * step.text().hidden_size;
  for (size_t i = 0; i < encoder.runs.size(); ++i) place_taps(i, encoder.runs[i]);
  for (int64_t t = 0; t < encoder.size() && early_width > 0; ++t) {
    place_early_taps(work.early_taps + t * early_width, work.taps + t * width);
  }
}

// ---- the seam (kv_cache.md 4b)

// Copies what the decoder half needs of the newest W rows of a bounded prefill into the sequence.
void Forward::Impl::keep_for_decoder(const Segment& segment, const Run& run) {
  const TextConfig& text = step.text();
  const int64_t width = text.hc_mult * text.hidden_size;
  cache::Sequence& sequence = *segment.sequence;
  for (int64_t i = std::max<int64_t>(0, run.count - text.sliding_window); i < run.count; ++i) {
    const int64_t row = run.first_row + i;
    const int64_t position = run.position + i;
    std::memcpy(sequence.seam_stream(position), work.stream[0] + row * width,
                static_cast<size_t>(width) * sizeof(bf16));
    std::memcpy(sequence.seam_pre(position), work.pre[0] + row * text.hc_mult,
                static_cast<size_t>(text.hc_mult) * sizeof(float));
    *sequence.seam_image(position) = encoder.rows[static_cast<size_t>(row)].image;
    if (limits.draft_taps && early_width > 0) {
      assert(sequence.limits().seam_tap_width == early_width);
      std::memcpy(sequence.seam_taps(position), work.early_taps + row * early_width,
                  static_cast<size_t>(early_width) * sizeof(bf16));
    }
  }
  sequence.prefill_rows += run.count;
}

// Appends the segment's rows to the decoder stage.
void Forward::Impl::place_decoder_rows(std::span<const Segment> segments, size_t index) {
  const TextConfig& text = step.text();
  const Segment& segment = segments[index];
  const Run& run = encoder.runs[index];
  const int64_t width = text.hc_mult * text.hidden_size;
  cache::Sequence& sequence = *segment.sequence;
  const int64_t end = run.position + run.count;
  Run kept = run;
  kept.first_row = decoder.size();
  if (segment.bounded) {
    kept.count = std::min(sequence.prefill_rows, text.sliding_window);
    kept.position = end - kept.count;
    // Rows that were dropped left no window keys behind them.
    if (sequence.prefill_rows > kept.count) sequence.decoder_window_start = kept.position;
  }
  kept.window_start = sequence.decoder_window_start;
  bf16* tap_rows = limits.draft_taps ? place_taps(index, kept) : nullptr;
  for (int64_t i = 0; i < kept.count; ++i) {
    const int64_t position = kept.position + i;
    const int64_t row = run.first_row + position - run.position;
    const bf16* stream =
        segment.bounded ? sequence.seam_stream(position) : work.stream[0] + row * width;
    const float* pre =
        segment.bounded ? sequence.seam_pre(position) : work.pre[0] + row * text.hc_mult;
    const bool image = segment.bounded ? *sequence.seam_image(position) != 0
                                       : encoder.rows[static_cast<size_t>(row)].image;
    std::memcpy(work.stream[1] + decoder.size() * width, stream,
                static_cast<size_t>(width) * sizeof(bf16));
    std::memcpy(work.pre[1] + decoder.size() * text.hc_mult, pre,
                static_cast<size_t>(text.hc_mult) * sizeof(float));
    if (limits.draft_taps && early_width > 0) {
      place_early_taps(
          segment.bounded ? sequence.seam_taps(position) : work.early_taps + row * early_width,
          tap_rows);
      tap_rows += static_cast<int64_t>(text.dspark_target_layer_ids.size()) * text.hidden_size;
    }
    decoder.rows.push_back({static_cast<int32_t>(decoder.runs.size()), image, position});
  }
  decoder.runs.push_back(kept);
}

// Everything from the seam on: its compressor sees all rows, the rest only the rows that are kept.
void Forward::Impl::run_decoder(std::span<const Segment> segments) {
  const TextConfig& text = step.text();
  if (step.probe != nullptr) {
    step.probe->enter(seam, encoder.size(), work.stream[0], work.pre[0]);
  }
  if (text.engram_index(seam) >= 0) {
    engram(step, encoder, seam);
    show(step, encoder, seam, "engram", text.hc_mult * text.hidden_size, work.stream[0]);
  }
  sublayer_input(step, encoder, work.pre[0],
                 step.model.weights().layers[static_cast<size_t>(seam)].attn_norm);
  compress(step, encoder, seam);

  const bool any_bounded = std::ranges::any_of(segments, &Segment::bounded);
  if (!any_bounded) {
    for (Run& run : encoder.runs) run.window_start = run.sequence->decoder_window_start;
    if (limits.draft_taps) tap_whole_step();
    run_layers(encoder, seam, text.num_hidden_layers, true);
    exit(encoder);
    return;
  }
  // Kept rows can be more than a step's rows (many prompts that end together): whole segments are
  // taken in groups that fit.
  size_t next = 0;
  while (next < segments.size()) {
    decoder.rows.clear();
    decoder.runs.clear();
    for (; next < segments.size(); ++next) {
      const Segment& segment = segments[next];
      const Run& run = encoder.runs[next];
      const int64_t rows = segment.bounded ? std::min(segment.sequence->prefill_rows + run.count,
                                                      text.sliding_window)
                                           : run.count;
      if (decoder.size() + rows > limits.max_rows) break;
      if (segment.bounded) keep_for_decoder(segment, run);
      if (!segment.bounded || !segment.more_follows) place_decoder_rows(segments, next);
    }
    const int64_t rows = decoder.size();
    if (rows == 0) continue;
    run_layers(decoder, seam, text.num_hidden_layers, true);
    exit(decoder);
    tap_row += rows;
  }
}

// ---- the interface

Result<std::unique_ptr<Forward>> Forward::create(const Model& model, const kernels::Ops& ops,
                                                 Team& team, const ForwardLimits& limits,
                                                 cache::BlockPool& pool) {
  if (limits.max_rows < model.text().sliding_window) {
    return err(Code::kInvalid, "a step must hold at least one window of {} rows, got {}",
               model.text().sliding_window, limits.max_rows);
  }
  if (limits.max_segments < 1 || limits.max_logit_rows < 1) {
    return err(Code::kInvalid, "a step needs room for one sequence and one row of logits");
  }
  if (limits.draft_taps && model.draft() == nullptr) {
    return err(Code::kUnsupported,
               "draft taps of a checkpoint that has no draft stages, or was opened without them");
  }
  try {
    std::unique_ptr<Forward> forward(
        new Forward(std::make_unique<Impl>(model, ops, team, limits, pool)));
    CEDRA_TRY(populate(team, forward->impl_->work.memory()));
    return forward;
  } catch (const std::bad_alloc&) {
    return err(Code::kExhausted, "cannot reserve {} bytes for the workspaces of {} rows",
               workspace_bytes(model.text(), limits, team.size()), limits.max_rows);
  }
}

Forward::Forward(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Forward::~Forward() = default;

void Forward::run(std::span<const Segment> segments, Probe* probe) {
  Impl& impl = *impl_;
  const TextConfig& text = impl.step.text();
  assert(static_cast<int64_t>(segments.size()) <= impl.limits.max_segments);
  const PhaseScope phase(impl.step.phases, Phase::kOther);
  impl.step.probe = probe;
  impl.enter(segments);
  impl.taps.assign(segments.size(), Taps{});
  impl.tap_row = 0;
  const int64_t split = impl.seam >= 0 ? impl.seam : text.num_hidden_layers;
  if (impl.encoder.size() > 0) {
    impl.run_layers(impl.encoder, 0, split, false);
    if (impl.seam >= 0) {
      impl.run_decoder(segments);
    } else {
      if (impl.limits.draft_taps) impl.tap_whole_step();
      impl.exit(impl.encoder);
    }
  }
  for (const Segment& segment : segments) {
    segment.sequence->length += static_cast<int64_t>(segment.tokens.size());
  }
}

void Forward::measure(PhaseTimes* times) { impl_->step.phases = times; }

int64_t Forward::wanted_rows() const { return impl_->wanted; }

const bf16* Forward::normed(int64_t row) const {
  return impl_->work.normed + row * impl_->step.text().hidden_size;
}

const float* Forward::logits(int64_t first, int64_t count) {
  Impl& impl = *impl_;
  assert(count <= impl.limits.max_logit_rows && first + count <= impl.wanted);
  const TextConfig& text = impl.step.text();
  const PhaseScope phase(impl.step.phases, Phase::kHead);
  linear(impl.step, impl.step.model.weights().head, normed(first), text.hidden_size, count,
         kernels::SumRule::kWhole, {.as_f32 = impl.work.logits, .stride = text.vocab_size});
  return impl.work.logits;
}

Taps Forward::taps(int64_t index) const {
  assert(impl_->limits.draft_taps);
  return impl_->taps[static_cast<size_t>(index)];
}

int64_t Forward::workspace_bytes(const TextConfig& config, const ForwardLimits& limits,
                                 int threads) {
  return Workspace::bytes(config, workspace_limits(config, limits), threads);
}

void Forward::poison() { impl_->work.poison(); }

}  // namespace cedra::model

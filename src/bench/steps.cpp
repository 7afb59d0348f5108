#include "bench/steps.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "bench/buffer.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "cache/block_pool.h"
#include "cache/layout.h"
#include "cache/sequence.h"
#include "checkpoint/checkpoint.h"
#include "model/forward.h"
#include "model/model.h"
#include "synth/counter_random.h"
#include "synth/release_config.h"
#include "text/tokenizer.h"

namespace cedra::bench {
namespace {

constexpr int64_t kLogitRows = 32;
constexpr uint8_t kScaleByte = 120;     // E8M0, 2^-7
constexpr uint8_t kLatentScale = 0x28;  // E4M3, 2^-2
constexpr int64_t kReadBytes = int64_t{256} << 20;

using Progress = std::function<void(const std::string&)>;

// The model, and room for the sequences of one measurement at a time.
class Rig {
 public:
  static Result<std::unique_ptr<Rig>> create(const StepOptions& options, const Progress& progress,
                                             StepReport& report);

  Result<StepResult> decode(int64_t batch, int64_t context);
  Result<StepResult> prompt(int64_t rows);

 private:
  Rig(const StepOptions& options, const kernels::Ops& ops)
      : options_(options), ops_(ops), team_({.threads = options.threads}) {}

  Result<> make_forward(int64_t rows, int64_t batch, int64_t context);
  std::unique_ptr<cache::Sequence> new_sequence(int64_t length, int64_t room);
  void release(cache::Sequence& sequence);
  void finish(StepResult& result) const;
  int32_t next_token() {
    const uint64_t word = synth::random_word(3, next_token_++);
    return static_cast<int32_t>(word % static_cast<uint64_t>(model_->text().vocab_size));
  }
  // One timed step of `segments`; its parts go to the samples.
  void step(std::span<const model::Segment> segments);

  const StepOptions& options_;
  const kernels::Ops& ops_;
  Team team_;
  std::unique_ptr<Buffer> memory_;  // to read as fast as can be
  std::unique_ptr<model::Model> model_;
  cache::CacheLayout layout_;
  cache::SequenceLimits sequence_limits_;
  std::unique_ptr<cache::BlockPool> pool_;
  std::unique_ptr<model::Forward> forward_;
  model::PhaseTimes times_;
  uint64_t next_token_ = 0;
  std::vector<double> seconds_, reads_, experts_;
  std::array<std::vector<double>, model::kPhases> phases_;
};

bool read_by_steps(Component component) {
  return component != Component::kEngramTable && component != Component::kEmbed;
}

Result<std::unique_ptr<Rig>> Rig::create(const StepOptions& options, const Progress& progress,
                                         StepReport& report) {
  const kernels::Ops* ops = kernels::find_ops(options.isa);
  if (ops == nullptr) {
    return err(Code::kInvalid, "isa '{}' is unknown or not in this processor", options.isa);
  }
  std::unique_ptr<Rig> rig(new Rig(options, *ops));
  progress("opening");
  const double begin = wall_seconds();
  CEDRA_ASSIGN(Checkpoint checkpoint,
               Checkpoint::open(options.folder, {.follow_symlinks = options.follow_symlinks,
                                                 .language_model_only = true,
                                                 .skip_draft = true,
                                                 .verify = Verify::kHeaders}));
  const TextConfig& text = checkpoint.config().text;
  text::CompressedTokenMap map;
  if (!text.engram_layer_ids.empty()) {
    CEDRA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(options.folder));
    map = text::compressed_token_map(tokenizer, text.vocab_size);
  }
  const double opened = wall_seconds();
  CEDRA_TRY(checkpoint.populate(read_by_steps, rig->team_.size(), [&](int64_t done, int64_t total) {
    report.populate_bytes = static_cast<double>(total);
    progress(fmt::format("reading weights, {} %", total > 0 ? done * 100 / total : 100));
  }));
  report.open_seconds = opened - begin;
  report.populate_seconds = wall_seconds() - opened;
  checkpoint.advise(Component::kEngramTable, Access::kRandom);
  CEDRA_ASSIGN(rig->model_,
               model::Model::create(std::move(checkpoint), std::move(map.map), map.size));
  const TextConfig& config = rig->model_->text();
  int64_t block = 1;
  for (const int64_t ratio : config.compress_ratios) {
    if (ratio > 0) block = std::lcm(block, ratio);
  }
  CEDRA_ASSIGN(rig->layout_, cache::make_layout(config, block * std::max<int64_t>(1, 64 / block)));
  rig->sequence_limits_ = {.stream_width = config.hc_mult * config.hidden_size,
                           .copies = config.hc_mult,
                           .lookback = std::max<int64_t>(config.engram_max_ngram_size - 1, 0)};
  CEDRA_ASSIGN(Buffer memory, Buffer::create(kReadBytes, Pages::kHuge));
  rig->memory_ = std::make_unique<Buffer>(std::move(memory));
  fill_with_weights(rig->team_, *rig->memory_);
  report.level = ops->name;
  report.processor = processor_name();
  report.folder = options.folder.string();
  report.threads = rig->team_.size();
  report.rounds = options.rounds;
  report.layers = config.num_hidden_layers;
  report.experts = config.n_routed_experts;
  report.vocab = config.vocab_size;
  return rig;
}

// Room for this measurement alone: the next one may need most of the memory.
Result<> Rig::make_forward(int64_t rows, int64_t batch, int64_t context) {
  const TextConfig& text = model_->text();
  if (batch < 1 || context < 1 || context > text.max_position_embeddings) {
    return err(Code::kInvalid,
               "batch must be at least 1 and context between 1 and the model's {}, got {} and {}",
               text.max_position_embeddings, batch, context);
  }
  forward_.reset();
  pool_.reset();
  CEDRA_ASSIGN(cache::BlockPool pool,
               cache::BlockPool::create(layout_, batch * layout_.blocks_for(context)));
  pool_ = std::make_unique<cache::BlockPool>(std::move(pool));
  sequence_limits_.max_tokens = context;
  CEDRA_ASSIGN(forward_, model::Forward::create(*model_, ops_, team_,
                                                {.max_rows = std::max(rows, text.sliding_window),
                                                 .max_segments = batch,
                                                 .max_context = context,
                                                 .max_logit_rows = kLogitRows},
                                                *pool_));
  forward_->measure(&times_);
  seconds_.clear();
  reads_.clear();
  experts_.clear();
  for (auto& samples : phases_) samples.clear();
  return {};
}

// A sequence of `length` tokens, with blocks for `room`; what it remembers is random.
std::unique_ptr<cache::Sequence> Rig::new_sequence(int64_t length, int64_t room) {
  auto sequence = std::make_unique<cache::Sequence>(layout_, sequence_limits_);
  sequence->length = length;
  for (int64_t i = 0; i < layout_.blocks_for(room); ++i) {
    sequence->blocks.push_back(pool_->take());
  }
  const auto random_bytes = [&](uint8_t* to, int64_t bytes, uint64_t keep) {
    for (int64_t i = 0; i < bytes; i += 8) {
      const uint64_t word = synth::random_word(4, next_token_++) & keep;
      std::memcpy(to + i, &word, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
    }
  };
  if (length > 0) {
    for (const cache::BlockId id : sequence->blocks) {
      uint8_t* block = pool_->data(id);
      for (const cache::SourceLayout& source : layout_.sources) {
        const int64_t rows = source.rows_per_block;
        random_bytes(block + source.main_codes, rows * layout_.main_code_bytes, ~uint64_t{0});
        random_bytes(block + source.index_codes, rows * layout_.index_code_bytes, ~uint64_t{0});
        std::fill_n(block + source.main_scales, rows * layout_.main_scale_bytes, kLatentScale);
        std::fill_n(block + source.index_scales, rows * layout_.index_scale_bytes, kScaleByte);
      }
    }
    for (int64_t layer = 0; layer < layout_.layers; ++layer) {
      for (int64_t slot = 0; slot < layout_.window; ++slot) {
        uint8_t* record = sequence->window_record(layer, slot);
        random_bytes(record, layout_.window_code_bytes, 0xBFBFBFBFBFBFBFBFu);  // no NaN code
        std::fill_n(record + layout_.window_code_bytes, layout_.window_scale_bytes, kScaleByte);
      }
    }
    sequence->engram_history.assign(static_cast<size_t>(sequence_limits_.lookback), 1);
  }
  return sequence;
}

void Rig::release(cache::Sequence& sequence) {
  for (const cache::BlockId id : sequence.blocks) pool_->release(id);
  sequence.reset();
}

void Rig::step(std::span<const model::Segment> segments) {
  reads_.push_back(read_rate(team_, memory_->data(), memory_->size(), Clock::kWall));
  times_.clear();
  const double begin = wall_seconds();
  forward_->run(segments);
  const int64_t rows = forward_->wanted_rows();
  for (int64_t row = 0; row < rows; row += kLogitRows) {
    forward_->logits(row, std::min(kLogitRows, rows - row));
  }
  seconds_.push_back(wall_seconds() - begin);
  for (size_t i = 0; i < model::kPhases; ++i) {
    phases_[i].push_back(times_.seconds(static_cast<model::Phase>(i)));
  }
  phases_[0].back() = 0;  // what lies between two steps
  experts_.push_back(static_cast<double>(times_.experts()));
}

// Medians, without the first step, and the release's share of each component.
void Rig::finish(StepResult& result) const {
  const auto middle = [](const std::vector<double>& all) {
    return median({all.begin() + 1, all.end()});
  };
  result.seconds = middle(seconds_);
  result.read_gb_s = middle(reads_) * 1e-9;
  result.experts = middle(experts_);
  for (size_t i = 0; i < model::kPhases; ++i) result.by_phase[i] = middle(phases_[i]);
}

// time here * cost there / cost here, for every component.
Result<> extrapolate(const Config& config, StepResult& result) {
  CEDRA_ASSIGN(const std::string release, synth::release_config({}, 1));
  CEDRA_ASSIGN(const Config full, parse_config(release));
  result.full_cost = result.prompt ? prefill_cost(full, result.rows)
                                   : decode_cost(full, result.rows, result.context);
  const auto& here = result.prompt ? result.cost.flops : result.cost.bytes;
  const auto& there = result.prompt ? result.full_cost.flops : result.full_cost.bytes;
  const double layers = static_cast<double>(full.text.num_hidden_layers) /
                        static_cast<double>(config.text.num_hidden_layers);
  for (size_t i = 0; i < model::kPhases; ++i) {
    // What has no cost of its own (rotations, selections of everything) grows with the layers.
    result.full_by_phase[i] = result.by_phase[i] * (here[i] > 0 ? there[i] / here[i] : layers);
    result.full_seconds += result.full_by_phase[i];
  }
  return {};
}

Result<StepResult> Rig::decode(int64_t batch, int64_t context) {
  StepResult result{.rows = batch, .context = context};
  const int64_t room = context + options_.rounds + 1;
  CEDRA_TRY(make_forward(batch, batch, room));
  std::vector<std::unique_ptr<cache::Sequence>> sequences;
  for (int64_t i = 0; i < batch; ++i) sequences.push_back(new_sequence(context, room));
  for (int round = 0; round <= options_.rounds; ++round) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < batch; ++i) tokens.push_back(next_token());
    std::vector<model::Segment> segments(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      segments[i].sequence = sequences[i].get();
      segments[i].tokens = {&tokens[i], 1};
    }
    step(segments);
  }
  for (auto& sequence : sequences) release(*sequence);
  finish(result);
  result.cost = decode_cost(model_->config(), batch, context, result.experts);
  CEDRA_TRY(extrapolate(model_->config(), result));
  return result;
}

Result<StepResult> Rig::prompt(int64_t rows) {
  StepResult result{.prompt = true, .rows = rows};
  CEDRA_TRY(make_forward(rows, 1, rows));
  for (int round = 0; round <= options_.rounds; ++round) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < rows; ++i) tokens.push_back(next_token());
    const auto sequence = new_sequence(0, rows);
    model::Segment segment;
    segment.sequence = sequence.get();
    segment.tokens = tokens;
    step({&segment, 1});
    release(*sequence);
  }
  finish(result);
  result.cost = prefill_cost(model_->config(), rows);
  CEDRA_TRY(extrapolate(model_->config(), result));
  return result;
}

}  // namespace

Result<StepReport> measure_steps(const StepOptions& options, const Progress& progress) {
  const auto show = [&](const std::string& what) {
    if (progress) progress(what);
  };
  StepReport report;
  CEDRA_ASSIGN(const auto rig, Rig::create(options, show, report));
  for (const int64_t batch : options.batches) {
    for (const int64_t context : options.contexts) {
      show(fmt::format("decoding {} sequences at {}", batch, context));
      CEDRA_ASSIGN(StepResult result, rig->decode(batch, context));
      report.results.push_back(std::move(result));
    }
  }
  if (options.prompt > 0) {
    show(fmt::format("a prompt of {}", options.prompt));
    CEDRA_ASSIGN(StepResult result, rig->prompt(options.prompt));
    report.results.push_back(std::move(result));
  }
  return report;
}

}  // namespace cedra::bench

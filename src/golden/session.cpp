#include "golden/session.h"

#include <numeric>

#include "text/tokenizer.h"

namespace cedra::golden {

Result<std::unique_ptr<model::Model>> load_model(const std::filesystem::path& folder) {
  CEDRA_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
  text::CompressedTokenMap map;
  if (!checkpoint.config().text.engram_layer_ids.empty()) {
    CEDRA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(folder));
    map = text::compressed_token_map(tokenizer, checkpoint.config().text.vocab_size);
  }
  return model::Model::create(std::move(checkpoint), std::move(map.map), map.size);
}

Result<std::unique_ptr<Session>> Session::create(const model::Model& model,
                                                 const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(model));
  const TextConfig& text = model.text();
  session->ops_ = kernels::find_ops(options.isa);
  if (session->ops_ == nullptr) {
    std::string names;
    for (const kernels::Ops* ops : kernels::available_ops()) names += fmt::format(" {}", ops->name);
    return err(Code::kUnsupported, "this machine cannot run kernel level '{}'; it has:{}",
               options.isa, names);
  }
  session->team_ = std::make_unique<Team>(TeamOptions{.threads = options.threads});

  int64_t block_tokens = 1;
  for (const int64_t ratio : text.compress_ratios) {
    if (ratio > 0) block_tokens = std::lcm(block_tokens, ratio);
  }
  block_tokens *= std::max<int64_t>(1, options.block_tokens / block_tokens);
  CEDRA_ASSIGN(const cache::CacheLayout layout, cache::make_layout(text, block_tokens));
  const int64_t context = text.max_position_embeddings;
  CEDRA_ASSIGN(cache::BlockPool pool,
               cache::BlockPool::create(layout, options.sequences * layout.blocks_for(context)));
  session->pool_ = std::make_unique<cache::BlockPool>(std::move(pool));

  session->max_rows_ = options.max_rows > 0 ? options.max_rows : context;
  model::ForwardLimits limits;
  limits.max_rows = std::max(session->max_rows_, text.sliding_window);
  limits.max_segments = std::max<int64_t>(1, options.sequences);
  limits.max_context = context;
  limits.draft_taps = model.draft() != nullptr;
  CEDRA_ASSIGN(session->forward_, model::Forward::create(model, *session->ops_, *session->team_,
                                                         limits, *session->pool_));
  if (model.draft() != nullptr) {
    model::DraftLimits draft;
    draft.max_requests = limits.max_segments;
    draft.max_rows = options.draft_rows > 0 ? options.draft_rows : 8 * limits.max_segments;
    CEDRA_ASSIGN(session->drafter_,
                 model::Drafter::create(model, *session->ops_, *session->team_, draft));
  }
  session->sequence_limits_ = {.max_tokens = context,
                               .stream_width = text.hc_mult * text.hidden_size,
                               .copies = text.hc_mult,
                               .lookback = std::max<int64_t>(text.engram_max_ngram_size - 1, 0),
                               .keep_seam = text.replay_seam() >= 0,
                               .seam_tap_width = model::early_tap_width(text),
                               .max_rollback = 7};
  return session;
}

void Session::Release::operator()(cache::Sequence* sequence) const {
  for (const cache::BlockId block : sequence->blocks) session->pool_->release(block);
  delete sequence;
}

Session::SequencePtr Session::new_sequence() {
  return {new cache::Sequence(pool_->layout(), sequence_limits_), Release{this}};
}

void Session::reserve(cache::Sequence& sequence, int64_t tokens) {
  while (static_cast<int64_t>(sequence.blocks.size()) < pool_->layout().blocks_for(tokens)) {
    sequence.blocks.push_back(pool_->take());
  }
}

std::vector<float> Session::run(cache::Sequence& sequence, std::span<const int32_t> tokens,
                                model::Want want, model::Probe* probe) {
  model::Segment segment;
  segment.sequence = &sequence;
  segment.tokens = tokens;
  segment.want = want;
  return run(segment, probe);
}

std::vector<float> Session::run(const model::Segment& segment, model::Probe* probe) {
  reserve(*segment.sequence,
          segment.sequence->length + static_cast<int64_t>(segment.tokens.size()));
  forward_->run({&segment, 1}, probe);
  std::vector<float> logits;
  const int64_t vocab = model_.text().vocab_size;
  for (int64_t row = 0; row < forward_->wanted_rows(); ++row) {
    const float* values = forward_->logits(row, 1);
    logits.insert(logits.end(), values, values + vocab);
  }
  return logits;
}

}  // namespace cedra::golden

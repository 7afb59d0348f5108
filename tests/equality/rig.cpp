#include "rig.h"

#include <algorithm>
#include <cstring>

namespace cedra::equality {

const model::Model& model_of(const std::string& folder) {
  static std::map<std::string, std::unique_ptr<model::Model>> loaded;
  std::unique_ptr<model::Model>& model = loaded[folder];
  if (model == nullptr) {
    Result<std::unique_ptr<model::Model>> result =
        golden::load_model(CEDRA_SOURCE_DIR "/tests/golden/" + folder);
    if (!result.has_value()) throw std::runtime_error(result.error().message);
    model = std::move(*result);
  }
  return *model;
}

std::vector<std::string> levels() {
  std::vector<std::string> names;
  for (const kernels::Ops* ops : kernels::available_ops()) names.emplace_back(ops->name);
  return names;
}

std::vector<std::string> fast_levels() {
  std::vector<std::string> names = levels();
  if (names.size() > 1) names.erase(names.begin());
  return names;
}

Tokens random_tokens(const model::Model& model, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<uint32_t>(model.text().vocab_size));
  }
  return tokens;
}

std::unique_ptr<Session> Rig::session(golden::SessionOptions options) const {
  options.isa = level_;
  if (options.threads == 0) options.threads = 1;
  Result<std::unique_ptr<Session>> session = Session::create(model_, options);
  if (!session.has_value()) throw std::runtime_error(session.error().message);
  return std::move(*session);
}

Logits Rig::one_shot(const Tokens& tokens) const {
  const std::unique_ptr<Session> fresh = session();
  const Session::SequencePtr sequence = fresh->new_sequence();
  return fresh->run(*sequence, tokens, Want::kAll);
}

Logits Rig::rows(const Logits& all, int64_t begin, int64_t end) const {
  const int64_t vocab = text().vocab_size;
  return {all.begin() + begin * vocab, all.begin() + end * vocab};
}

testing::AssertionResult Rig::same(const Logits& got, const Logits& want) const {
  const size_t vocab = static_cast<size_t>(text().vocab_size);
  if (got.size() != want.size()) {
    return testing::AssertionFailure()
           << got.size() / vocab << " rows of logits, want " << want.size() / vocab;
  }
  // Two NaN with the same bits would be equal too, and say nothing.
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(want[i]) && std::memcmp(&got[i], &want[i], sizeof(float)) == 0) continue;
    return testing::AssertionFailure()
           << "row " << i / vocab << " of " << got.size() / vocab << ", token " << i % vocab << ": "
           << got[i] << ", want " << want[i];
  }
  return testing::AssertionSuccess();
}

Logits run_chunks(Session& session, cache::Sequence& sequence, std::span<const int32_t> tokens,
                  int64_t chunk) {
  Logits all;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk)) {
    const size_t count = std::min(tokens.size() - at, static_cast<size_t>(chunk));
    const Logits some = session.run(sequence, tokens.subspan(at, count), Want::kAll);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Logits run_bounded(Session& session, cache::Sequence& sequence, std::span<const int32_t> tokens,
                   int64_t chunk, Want want) {
  sequence.begin_prefill();
  Logits logits;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk)) {
    const size_t count = std::min(tokens.size() - at, static_cast<size_t>(chunk));
    Segment segment;
    segment.sequence = &sequence;
    segment.tokens = tokens.subspan(at, count);
    segment.want = want;
    segment.bounded = true;
    segment.more_follows = at + count < tokens.size();
    const Logits some = session.run(segment);
    logits.insert(logits.end(), some.begin(), some.end());
  }
  return logits;
}

Logits all_logits(Session& session) {
  const int64_t vocab = session.model().text().vocab_size;
  Logits logits;
  for (int64_t row = 0; row < session.forward().wanted_rows(); ++row) {
    const float* values = session.forward().logits(row, 1);
    logits.insert(logits.end(), values, values + vocab);
  }
  return logits;
}

std::vector<uint8_t> compressed_bytes(Session& session, const cache::Sequence& sequence,
                                      int64_t tokens) {
  const cache::CacheLayout& layout = session.pool().layout();
  std::vector<uint8_t> bytes;
  const auto add = [&](const uint8_t* from, int64_t count) {
    bytes.insert(bytes.end(), from, from + count);
  };
  for (const cache::SourceLayout& source : layout.sources) {
    for (int64_t j = 0; j < tokens / source.ratio; ++j) {
      const size_t index = static_cast<size_t>(j / source.rows_per_block);
      const uint8_t* block = session.pool().data(sequence.blocks[index]);
      const int64_t slot = j % source.rows_per_block;
      add(block + source.main_codes + slot * layout.main_code_bytes, layout.main_code_bytes);
      add(block + source.main_scales + slot * layout.main_scale_bytes, layout.main_scale_bytes);
      add(block + source.index_codes + slot * layout.index_code_bytes, layout.index_code_bytes);
      add(block + source.index_scales + slot * layout.index_scale_bytes, layout.index_scale_bytes);
    }
  }
  return bytes;
}

std::vector<uint8_t> window_bytes(cache::Sequence& sequence, int64_t layer, int64_t begin,
                                  int64_t end) {
  std::vector<uint8_t> bytes;
  for (int64_t p = begin; p < end; ++p) {
    const uint8_t* record = sequence.window_record(layer, p);
    bytes.insert(bytes.end(), record, record + sequence.layout().window_record_bytes());
  }
  return bytes;
}

void shuffle_free_blocks(cache::BlockPool& pool, std::mt19937& random) {
  std::vector<cache::BlockId> ids;
  while (pool.free_count() > 0) ids.push_back(pool.take());
  std::ranges::shuffle(ids, random);
  for (const cache::BlockId id : ids) {
    std::memset(pool.data(id), 0xFF, static_cast<size_t>(pool.layout().block_bytes));
    pool.release(id);
  }
}

void soil(cache::Sequence& sequence) {
  const cache::CacheLayout& layout = sequence.layout();
  for (int64_t layer = 0; layer < layout.layers; ++layer) {
    std::ranges::fill(sequence.window_layer(layer), uint8_t{0xFF});
  }
  const size_t row = static_cast<size_t>(layout.head_dim) * sizeof(float);
  for (int64_t tail = 0; tail < layout.tails; ++tail) {
    for (int64_t slot = 0; slot < sequence.tail_slots(); ++slot) {
      std::memset(sequence.tail_kv(tail, slot), 0xFF, row);
      std::memset(sequence.tail_score(tail, slot), 0xFF, row);
    }
  }
  sequence.rollback_floor = 0;
  std::memset(sequence.saved_record(0, 0), 0xFF,
              static_cast<size_t>(layout.layers * sequence.limits().max_rollback *
                                  layout.window_record_bytes()));
  if (!sequence.limits().keep_seam) return;
  for (int64_t p = 0; p < layout.window; ++p) {
    std::memset(sequence.seam_stream(p), 0xFF,
                static_cast<size_t>(sequence.limits().stream_width) * sizeof(bf16));
    std::memset(sequence.seam_pre(p), 0xFF,
                static_cast<size_t>(sequence.limits().copies) * sizeof(float));
    *sequence.seam_image(p) = 0xFF;
    std::memset(sequence.seam_taps(p), 0xFF,
                static_cast<size_t>(sequence.limits().seam_tap_width) * sizeof(bf16));
  }
}

}  // namespace cedra::equality

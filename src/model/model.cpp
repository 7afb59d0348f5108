#include "model/model.h"

#include "model/rope.h"

namespace cedra::model {
namespace {

int64_t matrix_bytes(const kernels::Matrix& m) {
  switch (m.format) {
    case kernels::MatrixFormat::kFp8Tile32:
      return m.rows * m.cols + ((m.rows + 31) / 32) * ((m.cols + 31) / 32);
    case kernels::MatrixFormat::kFp4Row32:
      return m.rows * m.cols / 2 + m.rows * (m.cols / 32);
    case kernels::MatrixFormat::kBf16:
      return m.rows * m.cols * 2;
    case kernels::MatrixFormat::kF32:
      return m.rows * m.cols * 4;
  }
  return 0;
}

int64_t expert_bytes(const ExpertWeights& expert) {
  return matrix_bytes(expert.w1) + matrix_bytes(expert.w2) + matrix_bytes(expert.w3);
}

}  // namespace

Result<std::unique_ptr<Model>> Model::create(Checkpoint checkpoint, std::vector<int32_t> token_map,
                                             int64_t token_map_size) {
  std::unique_ptr<Model> model(new Model(std::move(checkpoint)));
  const TextConfig& text = model->text();
  CEDRA_ASSIGN(model->weights_, bind_weights(model->checkpoint_));
  if (text.num_nextn_predict_layers > 0) {
    CEDRA_ASSIGN(model->draft_, bind_draft_weights(model->checkpoint_));
  }
  model->window_frequencies_ = rope_frequencies(text.rope_theta, text.qk_rope_head_dim);
  model->compressed_frequencies_ =
      yarn_frequencies(text.compress_rope_theta, text.qk_rope_head_dim, text.rope_scaling);
  if (!text.engram_layer_ids.empty()) {
    if (token_map_size != text.engram_compressed_vocab_size) {
      return err(Code::kCorrupt,
                 "the tokenizer gives {} compressed tokens, but config.json says "
                 "engram_compressed_vocab_size = {}: tokenizer and weights do not belong together",
                 token_map_size, text.engram_compressed_vocab_size);
    }
    CEDRA_TRY(EngramHasher::check(text, token_map));
    model->hasher_ = std::make_unique<EngramHasher>(text, std::move(token_map));
  }
  return model;
}

int64_t Model::bytes_per_token() const {
  const TextConfig& text = this->text();
  int64_t bytes = matrix_bytes(weights_.head);
  for (const LayerWeights& layer : weights_.layers) {
    const AttentionWeights& attn = layer.attn;
    for (const kernels::Matrix* m : {&attn.wq_a, &attn.wq_b, &attn.wkv, &attn.wo_a, &attn.wo_b,
                                     &layer.hc_attn.fn, &layer.hc_ffn.fn, &layer.ffn.gate}) {
      bytes += matrix_bytes(*m);
    }
    if (attn.compressor.has_value()) {
      bytes += matrix_bytes(attn.compressor->wkv) + matrix_bytes(attn.compressor->wgate) +
               matrix_bytes(attn.compressor->index_wk);
    }
    if (attn.indexer.has_value()) {
      bytes += matrix_bytes(attn.indexer->wq_b) + matrix_bytes(attn.indexer->weights_proj);
    }
    bytes += text.num_experts_per_tok * expert_bytes(layer.ffn.experts.front());
    bytes += expert_bytes(layer.ffn.shared);
    if (layer.engram.has_value()) {
      bytes += matrix_bytes(layer.engram->wkv);
      bytes += text.engram_columns() * (text.engram_head_dim + text.engram_head_dim / 32);
    }
  }
  return bytes;
}

}  // namespace cedra::model

#include "model/binder.h"

#include <cstring>

namespace cedra::model {

using kernels::Matrix;
using kernels::MatrixFormat;

Matrix Binder::matrix(const std::string& name) {
  Result<WeightRef> found = checkpoint_.weight(name);
  if (!found.has_value()) {
    if (!error_.has_value()) error_ = found.error();
    return {};
  }
  Matrix matrix;
  matrix.data = found->data;
  matrix.scales = found->scale;
  matrix.rows = found->rows;
  matrix.cols = found->cols;
  switch (found->dtype) {
    case Dtype::kF8E4M3:
      matrix.format = MatrixFormat::kFp8Tile32;
      break;
    case Dtype::kI8:
      matrix.format = MatrixFormat::kFp4Row32;
      break;
    case Dtype::kBf16:
      matrix.format = MatrixFormat::kBf16;
      break;
    case Dtype::kF32:
      matrix.format = MatrixFormat::kF32;
      break;
    default:
      fail(name, "has a type that no kernel reads");
  }
  return matrix;
}

const uint8_t* Binder::copy(const std::string& name) {
  const TensorView* view = checkpoint_.find(name);
  if (view == nullptr) {
    fail(name, "is not in the checkpoint");
    return nullptr;
  }
  const size_t bytes = static_cast<size_t>(view->bytes);
  vectors_.push_back(std::make_unique<uint8_t[]>(bytes));
  std::memcpy(vectors_.back().get(), view->data, bytes);
  return vectors_.back().get();
}

const uint8_t* Binder::bytes(const std::string& name) {
  const TensorView* view = checkpoint_.find(name);
  if (view == nullptr) fail(name, "is not in the checkpoint");
  return view == nullptr ? nullptr : view->data;
}

void Binder::fail(const std::string& name, std::string_view why) {
  if (!error_.has_value()) error_ = Error{Code::kInternal, fmt::format("tensor {} {}", name, why)};
}

ExpertWeights Binder::expert(const std::string& prefix) {
  return {.w1 = matrix(prefix + "w1"), .w3 = matrix(prefix + "w3"), .w2 = matrix(prefix + "w2")};
}

HyperWeights Binder::hyper(const std::string& prefix) {
  return {.fn = matrix(prefix + "_fn"),
          .base = vector<float>(prefix + "_base"),
          .scale = vector<float>(prefix + "_scale")};
}

AttentionWeights Binder::attention(const std::string& prefix, int64_t layer) {
  const TextConfig& text = checkpoint_.config().text;
  AttentionWeights attn;
  attn.wq_a = matrix(prefix + "wq_a");
  attn.wq_b = matrix(prefix + "wq_b");
  attn.wkv = matrix(prefix + "wkv");
  attn.wo_a = matrix(prefix + "wo_a");
  attn.wo_b = matrix(prefix + "wo_b");
  attn.q_norm = vector<bf16>(prefix + "q_norm.weight");
  attn.kv_norm = vector<bf16>(prefix + "kv_norm.weight");
  attn.sink = vector<float>(prefix + "attn_sink");
  if (text.is_kv_source(layer)) {
    CompressorWeights compressor;
    compressor.wkv = matrix(prefix + "compressor.wkv");
    if (text.compress_ratios[static_cast<size_t>(layer)] > 1) {
      compressor.wgate = matrix(prefix + "compressor.wgate");
    }
    compressor.norm = vector<bf16>(prefix + "compressor.norm.weight");
    compressor.index_wk = matrix(prefix + "indexer.wk");
    compressor.index_k_norm = vector<bf16>(prefix + "indexer.k_norm.weight");
    attn.compressor = compressor;
  }
  if (text.is_index_source(layer)) {
    attn.indexer = IndexerWeights{.wq_b = matrix(prefix + "indexer.wq_b"),
                                  .weights_proj = matrix(prefix + "indexer.weights_proj")};
  }
  return attn;
}

MoeWeights Binder::moe(const std::string& prefix, int64_t experts, bool vision) {
  MoeWeights moe;
  moe.gate = matrix(prefix + "gate");
  moe.bias = vector<float>(prefix + "gate.bias");
  if (vision) moe.bias_vl = vector<float>(prefix + "gate.bias_vl");
  moe.experts.reserve(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) {
    moe.experts.push_back(expert(fmt::format("{}experts.{}.", prefix, e)));
  }
  moe.shared = expert(prefix + "shared_experts.");
  return moe;
}

LayerWeights Binder::block(const std::string& prefix, int64_t layer, int64_t experts, bool vision) {
  LayerWeights block;
  block.attn_norm = vector<bf16>(prefix + "attn_norm.weight");
  block.ffn_norm = vector<bf16>(prefix + "ffn_norm.weight");
  block.hc_attn = hyper(prefix + "hc_attn");
  block.hc_ffn = hyper(prefix + "hc_ffn");
  block.attn = attention(prefix + "attn.", layer);
  block.ffn = moe(prefix + "ffn.", experts, vision);
  return block;
}

}  // namespace cedra::model

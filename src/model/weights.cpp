#include "model/weights.h"

#include <cstring>

namespace cedra::model {
namespace {

using kernels::Matrix;
using kernels::MatrixFormat;

// Looks tensors up by name; remembers the first failure so that binding reads as a list.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, Weights& weights)
      : checkpoint_(checkpoint), weights_(weights) {}

  Matrix matrix(const std::string& name) {
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

  template <class T>
  const T* vector(const std::string& name) {
    const TensorView* view = checkpoint_.find(name);
    if (view == nullptr) {
      fail(name, "is not in the checkpoint");
      return nullptr;
    }
    const size_t bytes = static_cast<size_t>(view->bytes);
    weights_.vectors.push_back(std::make_unique<uint8_t[]>(bytes));
    std::memcpy(weights_.vectors.back().get(), view->data, bytes);
    return reinterpret_cast<const T*>(weights_.vectors.back().get());
  }

  const uint8_t* bytes(const std::string& name) {
    const TensorView* view = checkpoint_.find(name);
    if (view == nullptr) fail(name, "is not in the checkpoint");
    return view == nullptr ? nullptr : view->data;
  }

  ExpertWeights expert(const std::string& prefix) {
    return {.w1 = matrix(prefix + "w1"), .w3 = matrix(prefix + "w3"), .w2 = matrix(prefix + "w2")};
  }

  HyperWeights hyper(const std::string& prefix) {
    return {.fn = matrix(prefix + "_fn"),
            .base = vector<float>(prefix + "_base"),
            .scale = vector<float>(prefix + "_scale")};
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  void fail(const std::string& name, std::string_view why) {
    if (!error_.has_value())
      error_ = Error{Code::kInternal, fmt::format("tensor {} {}", name, why)};
  }
  const Checkpoint& checkpoint_;
  Weights& weights_;
  std::optional<Error> error_;
};

AttentionWeights bind_attention(Binder& bind, const TextConfig& text, int64_t layer,
                                const std::string& prefix) {
  AttentionWeights attn;
  attn.wq_a = bind.matrix(prefix + "wq_a");
  attn.wq_b = bind.matrix(prefix + "wq_b");
  attn.wkv = bind.matrix(prefix + "wkv");
  attn.wo_a = bind.matrix(prefix + "wo_a");
  attn.wo_b = bind.matrix(prefix + "wo_b");
  attn.q_norm = bind.vector<bf16>(prefix + "q_norm.weight");
  attn.kv_norm = bind.vector<bf16>(prefix + "kv_norm.weight");
  attn.sink = bind.vector<float>(prefix + "attn_sink");
  if (text.is_kv_source(layer)) {
    CompressorWeights compressor;
    compressor.wkv = bind.matrix(prefix + "compressor.wkv");
    if (text.compress_ratios[static_cast<size_t>(layer)] > 1) {
      compressor.wgate = bind.matrix(prefix + "compressor.wgate");
    }
    compressor.norm = bind.vector<bf16>(prefix + "compressor.norm.weight");
    compressor.index_wk = bind.matrix(prefix + "indexer.wk");
    compressor.index_k_norm = bind.vector<bf16>(prefix + "indexer.k_norm.weight");
    attn.compressor = compressor;
  }
  if (text.is_index_source(layer)) {
    attn.indexer = IndexerWeights{.wq_b = bind.matrix(prefix + "indexer.wq_b"),
                                  .weights_proj = bind.matrix(prefix + "indexer.weights_proj")};
  }
  return attn;
}

MoeWeights bind_moe(Binder& bind, int64_t experts, bool vision, const std::string& prefix) {
  MoeWeights moe;
  moe.gate = bind.matrix(prefix + "gate");
  moe.bias = bind.vector<float>(prefix + "gate.bias");
  if (vision) moe.bias_vl = bind.vector<float>(prefix + "gate.bias_vl");
  moe.experts.reserve(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) {
    moe.experts.push_back(bind.expert(fmt::format("{}experts.{}.", prefix, e)));
  }
  moe.shared = bind.expert(prefix + "shared_experts.");
  return moe;
}

}  // namespace

Result<Weights> bind_weights(const Checkpoint& checkpoint) {
  const Config& config = checkpoint.config();
  const TextConfig& text = config.text;
  Weights weights;
  Binder bind(checkpoint, weights);
  weights.embed = bind.bytes("embed.weight");
  weights.norm = bind.vector<bf16>("norm.weight");
  weights.head = bind.matrix("head");
  if (config.vision.has_value()) {
    weights.image_start = bind.vector<bf16>("image_start");
    weights.image_end = bind.vector<bf16>("image_end");
    weights.image_newline = bind.vector<bf16>("image_newline");
  }
  for (int64_t n = 0; n < text.num_hidden_layers; ++n) {
    const std::string prefix = fmt::format("layers.{}.", n);
    LayerWeights layer;
    layer.attn_norm = bind.vector<bf16>(prefix + "attn_norm.weight");
    layer.ffn_norm = bind.vector<bf16>(prefix + "ffn_norm.weight");
    layer.hc_attn = bind.hyper(prefix + "hc_attn");
    layer.hc_ffn = bind.hyper(prefix + "hc_ffn");
    layer.attn = bind_attention(bind, text, n, prefix + "attn.");
    layer.ffn = bind_moe(bind, text.n_routed_experts, config.vision.has_value(), prefix + "ffn.");
    if (text.engram_index(n) >= 0) {
      EngramWeights engram;
      engram.table = bind.bytes(prefix + "engram.embed.weight");
      engram.table_scales = bind.bytes(prefix + "engram.embed.scale");
      engram.wkv = bind.matrix(prefix + "engram.wkv");
      engram.q_weight = bind.vector<bf16>(prefix + "engram.q_weight");
      engram.k_weight = bind.vector<bf16>(prefix + "engram.k_weight");
      layer.engram = engram;
    }
    weights.layers.push_back(std::move(layer));
  }
  if (bind.error().has_value()) return std::unexpected(*bind.error());
  return weights;
}

}  // namespace cedra::model

#include "checkpoint/registry.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/checked.h"

namespace cedra {
namespace {

constexpr int64_t kScaleTile = 32;

class Inventory {
 public:
  explicit Inventory(const Config& config) : config_(config), t_(config.text) {}

  std::vector<TensorSpec> build() {
    add(Component::kEmbed, "embed.weight", Dtype::kBf16, {t_.vocab_size, t_.hidden_size});
    add(Component::kHead, "head.weight", Dtype::kBf16, {t_.vocab_size, t_.hidden_size});
    add(Component::kHead, "norm.weight", Dtype::kBf16, {t_.hidden_size});
    for (int64_t layer = 0; layer < t_.num_hidden_layers; ++layer) {
      const std::string prefix = fmt::format("layers.{}.", layer);
      add_block(prefix, t_.n_routed_experts);
      if (t_.is_kv_source(layer)) add_kv_source(prefix + "attn.", layer);
      if (t_.is_index_source(layer)) add_index_source(prefix + "attn.indexer.");
      if (t_.engram_index(layer) >= 0) add_engram(prefix + "engram.", layer);
    }
    draft_ = true;
    for (int64_t stage = 0; stage < t_.num_nextn_predict_layers; ++stage) {
      add_block(fmt::format("mtp.{}.", stage), t_.dspark_n_routed_experts);
    }
    if (t_.num_nextn_predict_layers > 0) add_draft_ends();
    draft_ = false;
    if (config_.vision) add_vision(*config_.vision);
    return std::move(specs_);
  }

 private:
  void add(Component component, std::string name, Dtype dtype, std::vector<int64_t> shape) {
    if (draft_) {
      component =
          component == Component::kRoutedExperts ? Component::kDraftExperts : Component::kDraft;
    }
    specs_.push_back({std::move(name), dtype, std::move(shape), component});
  }

  // Dense FP8 matrix, one scale per 32 x 32 tile.
  void add_fp8(Component component, const std::string& name, int64_t rows, int64_t cols) {
    add(component, name + ".weight", Dtype::kF8E4M3, {rows, cols});
    add(component, name + ".scale", Dtype::kF8E8M0,
        {ceil_div(rows, kScaleTile), ceil_div(cols, kScaleTile)});
  }

  // FP4 matrix, two values per byte, one scale per 32 inputs of a row.
  void add_fp4(Component component, const std::string& name, int64_t rows, int64_t cols) {
    add(component, name + ".weight", Dtype::kI8, {rows, cols / 2});
    add(component, name + ".scale", Dtype::kF8E8M0, {rows, cols / kScaleTile});
  }

  void add_block(const std::string& prefix, int64_t experts) {
    const int64_t hidden = t_.hidden_size;
    const int64_t head_width = t_.num_attention_heads * t_.head_dim;
    const int64_t group_rank = t_.o_groups * t_.o_lora_rank;
    const std::string attn = prefix + "attn.";
    add_fp8(Component::kAttention, attn + "wq_a", t_.q_lora_rank, hidden);
    add_fp8(Component::kAttention, attn + "wq_b", head_width, t_.q_lora_rank);
    add_fp8(Component::kAttention, attn + "wkv", t_.head_dim, hidden);
    add_fp8(Component::kAttention, attn + "wo_a", group_rank, head_width / t_.o_groups);
    add_fp8(Component::kAttention, attn + "wo_b", hidden, group_rank);
    add(Component::kAttention, attn + "q_norm.weight", Dtype::kBf16, {t_.q_lora_rank});
    add(Component::kAttention, attn + "kv_norm.weight", Dtype::kBf16, {t_.head_dim});
    add(Component::kAttention, attn + "attn_sink", Dtype::kF32, {t_.num_attention_heads});
    for (const std::string part : {"attn", "ffn"}) {
      add(Component::kNorm, prefix + part + "_norm.weight", Dtype::kBf16, {hidden});
      const std::string hc = prefix + "hc_" + part;
      add(Component::kHyperConnections, hc + "_fn", Dtype::kF32,
          {t_.hc_mixes(), t_.hc_mult * hidden});
      add(Component::kHyperConnections, hc + "_base", Dtype::kF32, {t_.hc_mixes()});
      add(Component::kHyperConnections, hc + "_scale", Dtype::kF32, {3});
    }
    const std::string gate = prefix + "ffn.gate.";
    add(Component::kRouter, gate + "weight", Dtype::kBf16, {experts, hidden});
    add(Component::kRouter, gate + "bias", Dtype::kF32, {experts});
    if (config_.vision) add(Component::kRouter, gate + "bias_vl", Dtype::kF32, {experts});
    add_expert(Component::kSharedExpert, prefix + "ffn.shared_experts.", false);
    const bool fp4 = config_.expert_dtype == ExpertDtype::kFp4;
    for (int64_t expert = 0; expert < experts; ++expert) {
      add_expert(Component::kRoutedExperts, fmt::format("{}ffn.experts.{}.", prefix, expert), fp4);
    }
  }

  // Gate (w1), down (w2) and up (w3) projection of one expert.
  void add_expert(Component component, const std::string& prefix, bool fp4) {
    const int64_t hidden = t_.hidden_size;
    const int64_t inner = t_.moe_intermediate_size;
    const auto add_matrix = fp4 ? &Inventory::add_fp4 : &Inventory::add_fp8;
    (this->*add_matrix)(component, prefix + "w1", inner, hidden);
    (this->*add_matrix)(component, prefix + "w2", hidden, inner);
    (this->*add_matrix)(component, prefix + "w3", inner, hidden);
  }

  void add_kv_source(const std::string& attn, int64_t layer) {
    const std::string compressor = attn + "compressor.";
    add(Component::kCompressor, compressor + "wkv.weight", Dtype::kBf16,
        {t_.head_dim, t_.hidden_size});
    if (t_.compress_ratios[static_cast<size_t>(layer)] > 1) {
      add(Component::kCompressor, compressor + "wgate.weight", Dtype::kBf16,
          {t_.head_dim, t_.hidden_size});
    }
    add(Component::kCompressor, compressor + "norm.weight", Dtype::kBf16, {t_.head_dim});
    add(Component::kIndexer, attn + "indexer.wk.weight", Dtype::kBf16,
        {t_.index_head_dim, t_.head_dim});
    add(Component::kIndexer, attn + "indexer.k_norm.weight", Dtype::kBf16, {t_.index_head_dim});
  }

  void add_index_source(const std::string& indexer) {
    add_fp8(Component::kIndexer, indexer + "wq_b", t_.index_n_heads * t_.index_head_dim,
            t_.q_lora_rank);
    add(Component::kIndexer, indexer + "weights_proj.weight", Dtype::kBf16,
        {t_.index_n_heads, t_.hidden_size});
  }

  void add_engram(const std::string& prefix, int64_t layer) {
    const int64_t rows = t_.engram_num_embeddings[static_cast<size_t>(t_.engram_index(layer))];
    const int64_t width = t_.engram_head_dim;
    // One scale per 32 values of a row, not per tile.
    add(Component::kEngramTable, prefix + "embed.weight", Dtype::kF8E4M3, {rows, width});
    add(Component::kEngramTable, prefix + "embed.scale", Dtype::kF8E8M0,
        {rows, width / kScaleTile});
    add_fp8(Component::kEngram, prefix + "wkv", (t_.hc_mult + 1) * t_.hidden_size,
            t_.engram_columns() * width);
    add(Component::kEngram, prefix + "q_weight", Dtype::kBf16, {t_.hc_mult, t_.hidden_size});
    add(Component::kEngram, prefix + "k_weight", Dtype::kBf16, {t_.hc_mult, t_.hidden_size});
  }

  void add_draft_ends() {
    const int64_t hidden = t_.hidden_size;
    const int64_t rank = t_.dspark_markov_rank;
    const auto taps = static_cast<int64_t>(t_.dspark_target_layer_ids.size());
    const std::string last = fmt::format("mtp.{}.", t_.num_nextn_predict_layers - 1);
    add_fp8(Component::kDraft, "mtp.0.main_proj", hidden, taps * hidden);
    add(Component::kDraft, "mtp.0.main_norm.weight", Dtype::kBf16, {hidden});
    add(Component::kDraft, last + "norm.weight", Dtype::kBf16, {hidden});
    add(Component::kDraft, last + "markov_head.embed.weight", Dtype::kBf16, {t_.vocab_size, rank});
    add(Component::kDraft, last + "markov_head.head.weight", Dtype::kBf16, {t_.vocab_size, rank});
    add(Component::kDraft, last + "confidence_head.proj.weight", Dtype::kBf16, {1, hidden + rank});
  }

  void add_vision(const VisionConfig& v) {
    const int64_t width = v.hidden_size;
    const int64_t hidden = t_.hidden_size;
    const auto bf16 = [&](std::string name, std::vector<int64_t> shape) {
      add(Component::kVision, std::move(name), Dtype::kBf16, std::move(shape));
    };
    bf16("vision.patch_embed.proj.weight", {width, 3 * v.patch_size * v.patch_size});
    bf16("vision.patch_embed.proj.bias", {width});
    for (int64_t block = 0; block < v.num_hidden_layers; ++block) {
      const std::string prefix = fmt::format("vision.blocks.{}.", block);
      bf16(prefix + "norm1.weight", {width});
      bf16(prefix + "attn.wqkv.weight", {3 * width, width});
      bf16(prefix + "attn.wqkv.bias", {3 * width});
      bf16(prefix + "attn.wo.weight", {width, width});
      bf16(prefix + "attn.wo.bias", {width});
      bf16(prefix + "norm2.weight", {width});
      bf16(prefix + "mlp.w1.weight", {2 * v.intermediate_size, width});
      bf16(prefix + "mlp.w2.weight", {width, v.intermediate_size});
    }
    bf16("vision.norm.weight", {width});
    bf16("aligner.w1.weight", {hidden, width * v.downsample_ratio * v.downsample_ratio});
    bf16("aligner.w1.bias", {hidden});
    bf16("aligner.w2.weight", {hidden, hidden});
    bf16("aligner.w2.bias", {hidden});
    for (const char* name : {"image_start", "image_end", "image_newline"}) bf16(name, {hidden});
  }

  const Config& config_;
  const TextConfig& t_;
  std::vector<TensorSpec> specs_;
  bool draft_ = false;
};

}  // namespace

std::string_view component_name(Component component) {
  constexpr std::array<std::string_view, kComponents> kNames = {
      "embed",          "head",          "attention",
      "compressor",     "indexer",       "hyper-connections",
      "norms",          "router",        "shared experts",
      "routed experts", "engram tables", "engram",
      "draft",          "draft experts", "vision"};
  return kNames[static_cast<size_t>(component)];
}

std::vector<TensorSpec> tensor_inventory(const Config& config) { return Inventory(config).build(); }

int64_t tensor_bytes(const TensorSpec& spec) {
  // Dims are bounded by parse_config: the product stays far below 2^63.
  int64_t elements = 1;
  for (const int64_t dim : spec.shape) elements *= dim;
  return elements * dtype_bytes(spec.dtype);
}

}  // namespace cedra

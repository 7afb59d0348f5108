#include "synth/release_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/engram_primes.h"
#include "synth/tokenizer_file.h"

namespace cedra::synth {
namespace {

using Json = nlohmann::ordered_json;

// Released sizes that the rules below refer to.
constexpr int64_t kMaxLayers = 2048;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxVocab = 1 << 20;  // what a tokenizer.json may hold
constexpr int64_t kWindowLayers = 2;
constexpr int64_t kSourceEvery = 6;
constexpr int64_t kIndexerEvery = 4;
constexpr int64_t kDraftExpertShare = 3;
constexpr int64_t kDraftActive = 3;
constexpr int64_t kEngramStart = 16'000'000;
constexpr int64_t kEngramOrders = 4;
constexpr int64_t kEngramHeads = 8;
constexpr int64_t kEngramColumns = (kEngramOrders - 1) * kEngramHeads;

Result<> check(const Sizes& sizes) {
  const auto between = [](const char* name, int64_t value, int64_t low, int64_t high) -> Result<> {
    if (value >= low && value <= high) return {};
    return err(Code::kInvalid, "{} must be between {} and {}, got {}", name, low, high, value);
  };
  CEDRA_TRY(between("layers", sizes.layers, kLeastLayers, kMaxLayers));
  CEDRA_TRY(between("experts", sizes.experts, kLeastExperts, kMaxExperts));
  CEDRA_TRY(between("vocab", sizes.vocab, kLeastVocab, kMaxVocab));
  if (sizes.engram_rows != 0) {
    CEDRA_TRY(between("engram-rows", sizes.engram_rows, 2 * kEngramColumns, kEngramColumns << 30));
  }
  return between("draft-stages", sizes.draft_stages, 0, kWindowLayers + 1);
}

struct Schedule {
  std::vector<int64_t> ratios, kv_sources, index_sources, engram_layers;
  int64_t middle = 0;
};

Schedule schedule(const Sizes& sizes) {
  Schedule out;
  out.middle = sizes.layers / 2;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    out.ratios.push_back(layer < kWindowLayers ? 0 : layer < out.middle ? 2 : 1);
  }
  out.ratios.insert(out.ratios.end(), static_cast<size_t>(sizes.draft_stages), 0);
  for (int64_t layer = kWindowLayers; layer < out.middle; layer += kSourceEvery) {
    out.kv_sources.push_back(layer);
  }
  out.engram_layers = {1, out.kv_sources.back()};
  out.kv_sources.push_back(out.middle);
  out.index_sources = out.kv_sources;
  for (int64_t layer = out.middle + kIndexerEvery; layer < sizes.layers; layer += kIndexerEvery) {
    out.index_sources.push_back(layer);
  }
  return out;
}

std::vector<int64_t> table_rows(const std::vector<int64_t>& layers, int64_t start) {
  TextConfig text;
  text.engram_layer_ids = layers;
  text.engram_max_ngram_size = kEngramOrders;
  text.engram_n_heads = kEngramHeads;
  text.engram_vocab_size = start;
  std::vector<int64_t> rows;
  for (const auto& orders : engram_table_primes(text)) {
    int64_t sum = 0;
    for (const auto& heads : orders) {
      for (const int64_t prime : heads) sum += prime;
    }
    rows.push_back(sum);
  }
  return rows;
}

Json text_config(const Sizes& sizes, int64_t compressed_vocab) {
  const Schedule plan = schedule(sizes);
  const int64_t engram_start =
      sizes.engram_rows == 0 ? kEngramStart : sizes.engram_rows / kEngramColumns;
  Json text = {
      {"model_type", "deepseek_v41_text"},
      {"vocab_size", sizes.vocab},
      {"hidden_size", 5120},
      {"moe_intermediate_size", 2304},
      {"num_hidden_layers", sizes.layers},
      {"num_attention_heads", 64},
      {"num_key_value_heads", 1},
      {"head_dim", 512},
      {"qk_rope_head_dim", 64},
      {"q_lora_rank", 1280},
      {"o_lora_rank", 1024},
      {"o_groups", 8},
      {"hidden_act", "silu"},
      {"swiglu_limit", 10.0},
      {"rms_norm_eps", 1e-20},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"initializer_range", 0.02},
      {"use_cache", true},
      {"tie_word_embeddings", false},
      {"max_position_embeddings", 1048576},
      {"rope_theta", 10000},
      {"rope_scaling",
       {{"rope_type", "yarn"},
        {"factor", 16},
        {"beta_fast", 32},
        {"beta_slow", 1},
        {"original_max_position_embeddings", 65536}}},
      {"compress_rope_theta", 160000},
      {"n_routed_experts", sizes.experts},
      {"n_shared_experts", 1},
      {"num_experts_per_tok", kLeastExperts},
      {"scoring_func", "sqrtsoftplus"},
      {"topk_method", "noaux_tc"},
      {"norm_topk_prob", true},
      {"routed_scaling_factor", 1.5},
      {"sliding_window", 128},
      {"compress_ratios", plan.ratios},
      {"kv_source_layer_ids", plan.kv_sources},
      {"index_source_layer_ids", plan.index_sources},
      {"index_n_heads", 32},
      {"index_head_dim", 128},
      {"index_topk", 512},
      {"candidate_source_layer_id", plan.middle},
      {"candidate_topk_blocks", 2048},
      {"candidate_block_size", 8},
      {"hc_mult", 4},
      {"hc_sinkhorn_iters", 20},
      {"hc_eps", 1e-6},
      {"engram_layer_ids", plan.engram_layers},
      {"engram_num_embeddings", table_rows(plan.engram_layers, engram_start)},
      {"engram_max_ngram_size", kEngramOrders},
      {"engram_vocab_size", engram_start},
      {"engram_n_heads", kEngramHeads},
      {"engram_head_dim", 256},
      {"engram_pad_token_id", 2},
      {"engram_compressed_vocab_size", compressed_vocab},
      {"num_nextn_predict_layers", sizes.draft_stages},
  };
  if (sizes.draft_stages > 0) {
    text["dspark_block_size"] = 5;
    text["dspark_noise_token_id"] = first_late_token(sizes.vocab);
    text["dspark_target_layer_ids"] = {sizes.layers - 3, sizes.layers - 2, sizes.layers - 1};
    text["dspark_markov_rank"] = 256;
    text["dspark_n_routed_experts"] =
        std::max(kDraftActive, (sizes.experts + kDraftExpertShare - 1) / kDraftExpertShare);
    text["dspark_num_experts_per_tok"] = kDraftActive;
  }
  return text;
}

}  // namespace

Result<std::string> release_config(const Sizes& sizes, int64_t compressed_vocab) {
  CEDRA_TRY(check(sizes));
  Json root = {
      {"architectures", {"DeepseekV41ForCausalLM"}},
      {"model_type", "deepseek_v41"},
      {"dtype", "bfloat16"},
      {"bos_token_id", 0},
      {"eos_token_id", 1},
      {"pad_token_id", 2},
      {"image_token_id", image_token(sizes.vocab)},
      {"quantization_config",
       {{"quant_method", "fp8"},
        {"activation_scheme", "dynamic"},
        {"weight_block_size", {32, 32}},
        {"scale_fmt", "ue8m0"},
        {"expert_dtype", "fp4"}}},
      {"text_config", text_config(sizes, compressed_vocab)},
  };
  if (sizes.vision) {
    root["vision_config"] = {
        {"model_type", "deepseek_v41_vision"},
        {"num_hidden_layers", 32},
        {"hidden_size", 1024},
        {"num_attention_heads", 16},
        {"intermediate_size", 2816},
        {"patch_size", 14},
        {"rope_theta", 10000},
        {"downsample_ratio", 3},
        {"max_image_tokens", 1024},
        {"min_pixels", 295936},
        {"max_wh_ratio", nullptr},
    };
  }
  return root.dump(1) + "\n";
}

}  // namespace cedra::synth

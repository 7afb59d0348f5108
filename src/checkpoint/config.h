// config.json of a checkpoint folder: every value that the model uses, validated against every
// other (spec model.md 1). Nothing about the released size is hard-coded anywhere else: dims,
// schedule, sources, experts and stages all come from here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cedra {

enum class ScoringFunc { kSqrtSoftplus, kSoftmax, kSigmoid };
enum class ExpertDtype { kFp4, kFp8 };

// YaRN parameters of the layers with a compress ratio (model.md 4.4).
struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

// `text_config`. Names are the HF keys. Defaults only where the spec allows a missing key.
struct TextConfig {
  int64_t vocab_size = 0;           // V
  int64_t hidden_size = 0;          // D
  int64_t num_hidden_layers = 0;    // L
  int64_t num_attention_heads = 0;  // H
  int64_t head_dim = 0;             // Dh
  int64_t qk_rope_head_dim = 0;     // the LAST dims of head_dim and of index_head_dim rotate
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  int64_t moe_intermediate_size = 0;
  int64_t n_routed_experts = 0;     // E
  int64_t num_experts_per_tok = 0;  // K
  ScoringFunc scoring_func = ScoringFunc::kSqrtSoftplus;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;
  double gate_temp = 1;
  double swiglu_limit = 0;  // 0 = off
  double rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;
  RopeScaling rope_scaling;
  double compress_rope_theta = 0;
  int64_t sliding_window = 0;            // W, includes the current token
  std::vector<int64_t> compress_ratios;  // [L + stages]
  std::vector<int64_t> kv_source_layer_ids;
  std::vector<int64_t> index_source_layer_ids;
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t candidate_source_layer_id = -1;  // -1 = off
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;
  int64_t hc_mult = 0;  // C
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows per Engram layer
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;  // where the prime search starts
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int64_t engram_pad_token_id = 2;
  int64_t engram_compressed_vocab_size = 0;
  int64_t num_nextn_predict_layers = 0;  // draft stages
  int64_t dspark_block_size = 0;
  int64_t dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;     // 0 in the file means the backbone's; resolved here
  int64_t dspark_num_experts_per_tok = 0;  // likewise

  // Table rows looked up per token and table: one per order (2..max) and head.
  int64_t engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  // Rows of hc_*_fn: pre, post and comb of C copies.
  int64_t hc_mixes() const { return (2 + hc_mult) * hc_mult; }
  bool is_kv_source(int64_t layer) const;
  bool is_index_source(int64_t layer) const;
  // Index in engram_layer_ids, or -1.
  int64_t engram_index(int64_t layer) const;
  // Greatest KV source <= layer, or -1.
  int64_t kv_source_of(int64_t layer) const;
  // First layer of the decoder half for bounded replay (kv_cache.md 4b), or -1 where the mode is
  // not defined: it is the last KV source and L/2, no ratio > 1 from there on, no Engram layer
  // after it.
  int64_t replay_seam() const;
};

// `vision_config` (vision.md 1).
struct VisionConfig {
  int64_t num_hidden_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  double rope_theta = 0;
  int64_t downsample_ratio = 0;
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;
};

struct Config {
  TextConfig text;
  std::optional<VisionConfig> vision;
  ExpertDtype expert_dtype = ExpertDtype::kFp4;
  int64_t bos_token_id = 0;
  int64_t eos_token_id = 1;
  int64_t pad_token_id = 2;
  int64_t image_token_id = 129264;
  std::vector<std::string> warnings;  // unknown keys and the like, for the user to read once
};

// Parts that the caller switches off: their keys are not checked and the parsed Config says that
// the model has no such part.
struct ConfigOptions {
  bool language_model_only = false;  // Config::vision stays empty
  bool skip_draft = false;           // num_nextn_predict_layers becomes 0
};

inline constexpr int64_t kMaxConfigBytes = int64_t{4} << 20;

// The text of config.json, in the nested HF spelling or the flat one of the reference (model.md
// 1.1). An error lists every broken rule: key, found, expected. kCorrupt: not JSON, or a key twice;
// kInvalid: a rule of model.md 1.2 is broken; kTooLarge: over kMaxConfigBytes.
Result<Config> parse_config(std::string_view json, const ConfigOptions& options = {});
Result<Config> load_config(const std::filesystem::path& folder, const ConfigOptions& options = {});

}  // namespace cedra

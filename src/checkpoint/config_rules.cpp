#include "checkpoint/config_rules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/engram_primes.h"

namespace cedra {
namespace {

constexpr int64_t kScaleTile = 32;
constexpr int64_t kMaxRatio = 16;                  // model/compressor.cpp has as much room
constexpr int64_t kMaxWidth = int64_t{1} << 24;    // a product of two sizes; keeps bytes in 64 bits
constexpr int64_t kMaxExperts = int64_t{1} << 20;  // over all layers; bounds the inventory
constexpr int64_t kMaxEngramPrimes = 4096;         // over all tables; bounds the prime search

class Rules {
 public:
  Rules(const Config& config, const std::set<std::string>& unread,
        std::vector<std::string>& problems)
      : config_(config), t_(config.text), unread_(unread), problems_(problems) {}

  void check_all() {
    if (read({"vocab_size"})) check_tokens();
    check_sizes();
    check_quantised_sizes();
    if (read({"num_hidden_layers", "num_nextn_predict_layers", "compress_ratios"})) check_ratios();
    if (read({"num_hidden_layers"})) check_source_lists();
    if (read({"num_hidden_layers", "compress_ratios", "kv_source_layer_ids",
              "index_source_layer_ids"})) {
      check_sources();
    }
    if (read({"kv_source_layer_ids", "index_source_layer_ids", "candidate_source_layer_id"})) {
      check_candidates();
    }
    if (read({"vocab_size", "engram_layer_ids", "engram_num_embeddings", "engram_max_ngram_size",
              "engram_vocab_size", "engram_n_heads"})) {
      check_engram();
    }
    if (read({"num_hidden_layers", "num_nextn_predict_layers", "dspark_target_layer_ids"})) {
      check_draft();
    }
    check_vision();
  }

 private:
  template <class... Args>
  void require(bool good, fmt::format_string<Args...> format, Args&&... args) {
    if (!good) problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool read(std::initializer_list<const char*> keys) const {
    return std::ranges::none_of(keys, [&](const char* key) { return unread_.contains(key); });
  }

  void check_tokens() {
    const auto in_vocab = [&](const char* key, int64_t id) {
      require(id < t_.vocab_size, "{} is {}, must be below vocab_size {}", key, id, t_.vocab_size);
    };
    in_vocab("bos_token_id", config_.bos_token_id);
    in_vocab("eos_token_id", config_.eos_token_id);
    in_vocab("pad_token_id", config_.pad_token_id);
    if (config_.vision) in_vocab("image_token_id", config_.image_token_id);
  }

  void check_sizes() {
    if (read({"num_attention_heads", "o_groups"})) {
      require(t_.num_attention_heads % t_.o_groups == 0,
              "num_attention_heads {} must be a multiple of o_groups {}", t_.num_attention_heads,
              t_.o_groups);
    }
    if (read({"qk_rope_head_dim"})) {
      const int64_t rope = t_.qk_rope_head_dim;
      require(rope % 2 == 0, "qk_rope_head_dim is {}, must be even", rope);
      require(!read({"head_dim"}) || rope <= t_.head_dim,
              "qk_rope_head_dim is {}, must be at most head_dim {}", rope, t_.head_dim);
      require(!read({"index_head_dim"}) || rope <= t_.index_head_dim,
              "qk_rope_head_dim is {}, must be at most index_head_dim {}", rope, t_.index_head_dim);
    }
    if (read({"text_config.rope_scaling.beta_slow", "text_config.rope_scaling.beta_fast",
              "rope_scaling.beta_slow", "rope_scaling.beta_fast"})) {
      require(t_.rope_scaling.beta_slow < t_.rope_scaling.beta_fast,
              "rope_scaling.beta_slow is {}, must be below beta_fast {}", t_.rope_scaling.beta_slow,
              t_.rope_scaling.beta_fast);
    }
    if (!read({"n_routed_experts"})) return;
    require(!read({"num_experts_per_tok"}) || t_.num_experts_per_tok <= t_.n_routed_experts,
            "num_experts_per_tok is {}, must be at most n_routed_experts {}",
            t_.num_experts_per_tok, t_.n_routed_experts);
    const int64_t experts = t_.num_hidden_layers * t_.n_routed_experts +
                            t_.num_nextn_predict_layers * t_.dspark_n_routed_experts;
    require(experts <= kMaxExperts, "{} routed experts over all layers, at most {} are supported",
            experts, kMaxExperts);
  }

  void check_multiple(const char* what, int64_t size) {
    require(size % kScaleTile == 0, "{} is {}, must be a multiple of {} (scale tile)", what, size,
            kScaleTile);
    require(size <= kMaxWidth, "{} is {}, at most {} is supported", what, size, kMaxWidth);
  }

  void check_quantised_sizes() {
    const auto one = [&](const char* key, int64_t size) {
      if (read({key})) check_multiple(key, size);
    };
    one("hidden_size", t_.hidden_size);
    one("q_lora_rank", t_.q_lora_rank);
    one("head_dim", t_.head_dim);
    one("moe_intermediate_size", t_.moe_intermediate_size);
    one("index_head_dim", t_.index_head_dim);
    if (!t_.engram_layer_ids.empty()) one("engram_head_dim", t_.engram_head_dim);
    const int64_t head_width = t_.num_attention_heads * t_.head_dim;
    if (read({"num_attention_heads", "head_dim"})) {
      check_multiple("num_attention_heads * head_dim", head_width);
      if (read({"o_groups"})) {
        check_multiple("num_attention_heads * head_dim / o_groups", head_width / t_.o_groups);
      }
    }
    if (read({"o_groups", "o_lora_rank"})) {
      check_multiple("o_groups * o_lora_rank", t_.o_groups * t_.o_lora_rank);
    }
    if (read({"index_n_heads", "index_head_dim"})) {
      check_multiple("index_n_heads * index_head_dim", t_.index_n_heads * t_.index_head_dim);
    }
  }

  void check_ratios() {
    const auto size = static_cast<int64_t>(t_.compress_ratios.size());
    const int64_t layers = t_.num_hidden_layers;
    const int64_t stages = t_.num_nextn_predict_layers;
    require(size >= layers, "compress_ratios has {} entries, num_hidden_layers is {}", size,
            layers);
    require(stages == 0 || size == layers + stages,
            "compress_ratios has {} entries, must have {} (num_hidden_layers {} + "
            "num_nextn_predict_layers {})",
            size, layers + stages, layers, stages);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t ratio = t_.compress_ratios[static_cast<size_t>(i)];
      require(ratio >= 0 && ratio <= kMaxRatio, "compress_ratios[{}] is {}, must be 0..{}", i,
              ratio, kMaxRatio);
      require(i < layers || i >= layers + stages || ratio == 0,
              "compress_ratios[{}] of a draft stage is {}, must be 0", i, ratio);
    }
  }

  void check_source_lists() {
    check_layer_list("kv_source_layer_ids", t_.kv_source_layer_ids);
    check_layer_list("index_source_layer_ids", t_.index_source_layer_ids);
    check_layer_list("engram_layer_ids", t_.engram_layer_ids);
  }

  void check_layer_list(const char* key, const std::vector<int64_t>& ids) {
    require(std::ranges::adjacent_find(ids, std::greater_equal{}) == ids.end(),
            "{} is {}, must be strictly ascending", key, ids);
    for (const int64_t id : ids) {
      require(id >= 0 && id < t_.num_hidden_layers, "{} has layer {}, layers are 0..{}", key, id,
              t_.num_hidden_layers - 1);
    }
  }

  // 0 beyond the list: that mistake is reported once, by check_ratios().
  int64_t ratio_of(int64_t layer) const {
    const auto at = static_cast<size_t>(layer);
    return layer >= 0 && at < t_.compress_ratios.size() ? t_.compress_ratios[at] : 0;
  }
  bool is_layer(int64_t id) const { return id >= 0 && id < t_.num_hidden_layers; }

  void check_sources() {
    for (const int64_t layer : t_.kv_source_layer_ids) {
      if (!is_layer(layer)) continue;
      require(ratio_of(layer) != 0, "kv_source_layer_ids has layer {}, whose compress ratio is 0",
              layer);
      require(t_.is_index_source(layer),
              "kv_source_layer_ids has layer {}, which index_source_layer_ids lacks", layer);
    }
    for (const int64_t layer : t_.index_source_layer_ids) {
      require(!is_layer(layer) || ratio_of(layer) != 0,
              "index_source_layer_ids has layer {}, whose compress ratio is 0", layer);
    }
    for (int64_t layer = 0; layer < t_.num_hidden_layers; ++layer) {
      const int64_t ratio = ratio_of(layer);
      if (ratio == 0) continue;
      const int64_t source = t_.kv_source_of(layer);
      if (source < 0) {
        require(false,
                "layer {} has compress ratio {} but no kv_source_layer_ids entry at or below it",
                layer, ratio);
      } else {
        require(ratio_of(source) == ratio,
                "layer {} has compress ratio {}, its KV source {} has {}: must be equal", layer,
                ratio, source, ratio_of(source));
      }
    }
  }

  void check_candidates() {
    const int64_t source = t_.candidate_source_layer_id;
    if (source < 0) return;
    require(t_.is_index_source(source),
            "candidate_source_layer_id is {}, which index_source_layer_ids lacks", source);
    for (const int64_t layer : t_.index_source_layer_ids) {
      require(layer <= source || t_.kv_source_of(layer) == t_.kv_source_of(source),
              "index source {} after candidate_source_layer_id {} reads KV source {}, must read {}",
              layer, source, t_.kv_source_of(layer), t_.kv_source_of(source));
    }
    if (!read({"candidate_topk_blocks", "candidate_block_size", "index_topk"})) return;
    const int64_t safe = (t_.candidate_topk_blocks - 1) * t_.candidate_block_size + 1;
    require(safe >= t_.index_topk,
            "candidate_topk_blocks {} of candidate_block_size {} leave as few as {} rows, "
            "index_topk is {}",
            t_.candidate_topk_blocks, t_.candidate_block_size, safe, t_.index_topk);
  }

  void check_engram() {
    const size_t tables = t_.engram_layer_ids.size();
    if (tables == 0) {
      require(t_.engram_num_embeddings.empty(),
              "engram_num_embeddings has {} tables but engram_layer_ids is empty",
              t_.engram_num_embeddings.size());
      return;
    }
    require(t_.engram_pad_token_id < t_.vocab_size,
            "engram_pad_token_id is {}, must be below vocab_size {}", t_.engram_pad_token_id,
            t_.vocab_size);
    require(
        !read({"engram_compressed_vocab_size"}) || t_.engram_compressed_vocab_size <= t_.vocab_size,
        "engram_compressed_vocab_size is {}, must be at most vocab_size {}",
        t_.engram_compressed_vocab_size, t_.vocab_size);
    if (t_.engram_num_embeddings.size() != tables) {
      require(false, "engram_num_embeddings has {} entries, engram_layer_ids has {}",
              t_.engram_num_embeddings.size(), tables);
      return;
    }
    const int64_t primes = static_cast<int64_t>(tables) * t_.engram_columns();
    if (primes > kMaxEngramPrimes) {
      require(false, "{} Engram columns over all tables, at most {} are supported", primes,
              kMaxEngramPrimes);
      return;
    }
    const auto all = engram_table_primes(t_);
    for (size_t table = 0; table < tables; ++table) {
      int64_t rows = 0;
      for (const auto& order : all[table]) {
        for (const int64_t prime : order) rows += prime;
      }
      require(rows == t_.engram_num_embeddings[table],
              "engram_num_embeddings[{}] is {}, the primes from engram_vocab_size {} on sum to {}",
              table, t_.engram_num_embeddings[table], t_.engram_vocab_size, rows);
    }
  }

  void check_draft() {
    if (t_.num_nextn_predict_layers == 0) return;
    require(!t_.dspark_target_layer_ids.empty(),
            "dspark_target_layer_ids is empty, the draft stages need at least one tap");
    std::vector<int64_t> taps = t_.dspark_target_layer_ids;
    std::ranges::sort(taps);
    require(std::ranges::adjacent_find(taps) == taps.end(),
            "dspark_target_layer_ids is {}, must not repeat a layer", t_.dspark_target_layer_ids);
    for (const int64_t id : taps) {
      require(is_layer(id), "dspark_target_layer_ids has layer {}, layers are 0..{}", id,
              t_.num_hidden_layers - 1);
    }
    require(!read({"vocab_size"}) || t_.dspark_noise_token_id < t_.vocab_size,
            "dspark_noise_token_id is {}, must be below vocab_size {}", t_.dspark_noise_token_id,
            t_.vocab_size);
    require(!read({"n_routed_experts", "num_experts_per_tok"}) ||
                t_.dspark_num_experts_per_tok <= t_.dspark_n_routed_experts,
            "dspark_num_experts_per_tok is {}, must be at most dspark_n_routed_experts {}",
            t_.dspark_num_experts_per_tok, t_.dspark_n_routed_experts);
  }

  void check_vision() {
    if (!config_.vision) return;
    if (!read({"vision_config.hidden_size", "vision_config.num_attention_heads"})) return;
    const VisionConfig& v = *config_.vision;
    require(v.hidden_size % (4 * v.num_attention_heads) == 0,
            "vision hidden_size {} must be a multiple of 4 * num_attention_heads {}: rotary "
            "positions take a quarter of a head each",
            v.hidden_size, v.num_attention_heads);
  }

  const Config& config_;
  const TextConfig& t_;
  const std::set<std::string>& unread_;
  std::vector<std::string>& problems_;
};

}  // namespace

void check_config(const Config& config, const std::set<std::string>& unread,
                  std::vector<std::string>& problems) {
  Rules(config, unread, problems).check_all();
}

bool TextConfig::is_kv_source(int64_t layer) const {
  return std::ranges::find(kv_source_layer_ids, layer) != kv_source_layer_ids.end();
}

bool TextConfig::is_index_source(int64_t layer) const {
  return std::ranges::find(index_source_layer_ids, layer) != index_source_layer_ids.end();
}

int64_t TextConfig::engram_index(int64_t layer) const {
  const auto found = std::ranges::find(engram_layer_ids, layer);
  return found == engram_layer_ids.end() ? -1 : found - engram_layer_ids.begin();
}

int64_t TextConfig::kv_source_of(int64_t layer) const {
  int64_t best = -1;
  for (const int64_t source : kv_source_layer_ids) {
    if (source <= layer) best = std::max(best, source);
  }
  return best;
}

int64_t TextConfig::replay_seam() const {
  if (kv_source_layer_ids.empty()) return -1;
  const int64_t seam = kv_source_layer_ids.back();
  if (seam != num_hidden_layers / 2) return -1;
  for (int64_t layer = seam; layer < num_hidden_layers; ++layer) {
    if (compress_ratios[static_cast<size_t>(layer)] > 1) return -1;
  }
  const bool engram_after = !engram_layer_ids.empty() && engram_layer_ids.back() > seam;
  return engram_after ? -1 : seam;
}

}  // namespace cedra

// Reads config.json into Config: both spellings, every key typed and in range, unknown keys listed.
// The rules between keys are in config_rules.cpp.
#include "checkpoint/config.h"

#include <fmt/ranges.h>
#include <simdjson.h>

#include <array>
#include <initializer_list>
#include <map>
#include <set>

#include "base/mapped_file.h"
#include "checkpoint/config_rules.h"

namespace cedra {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr size_t kMaxDepth = 16;
constexpr int64_t kMaxDim = int64_t{1} << 24;    // one dimension of a matrix
constexpr int64_t kMaxCount = int64_t{1} << 40;  // table rows, positions
constexpr int64_t kMaxVocab = int64_t{1} << 31;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxCopies = 8;  // hc_mult that the kernels are made for
constexpr size_t kMaxListed = 40;  // problems or unknown keys printed

enum class Need {
  kAlways,
  kNested,  // required in the HF spelling; the flat one has no such key
  kOptional,
};

// One value of the model: where it may stand. Paths are full ("text_config.hidden_size").
struct Key {
  const char* name;   // HF key
  const char* alias;  // flat key, or nullptr
  Need need = Need::kAlways;
};

std::string describe(element value) {
  std::string text = simdjson::minify(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// Copies: value_unsafe() refers into the result object, which dies before a range-for ends.
simdjson::dom::array array_of(element value) { return value.get_array().value_unsafe(); }
simdjson::dom::object object_of(element value) { return value.get_object().value_unsafe(); }
std::string_view text_of(element value) { return value.get_string().value_unsafe(); }

bool is_text(element value, std::string_view wanted) {
  return value.type() == element_type::STRING && text_of(value) == wanted;
}

bool is_number(element value) {
  return value.type() == element_type::INT64 || value.type() == element_type::UINT64 ||
         value.type() == element_type::DOUBLE;
}

double as_double(element value) {
  switch (value.type()) {
    case element_type::INT64:
      return static_cast<double>(int64_t(value.get_int64().value_unsafe()));
    case element_type::UINT64:
      return static_cast<double>(uint64_t(value.get_uint64().value_unsafe()));
    default:
      return value.get_double().value_unsafe();
  }
}

bool same_value(element a, element b) {
  if (is_number(a) && is_number(b)) {
    if (a.type() == b.type()) return simdjson::minify(a) == simdjson::minify(b);
    return as_double(a) == as_double(b);
  }
  if (a.type() != b.type()) return false;
  return simdjson::minify(a) == simdjson::minify(b);
}

// All values of the file by path; sections are opened, everything else is one value.
class Reader {
 public:
  Reader(std::vector<std::string>& problems) : problems_(problems) {}

  Result<> flatten(element root) {
    if (root.type() != element_type::OBJECT) {
      return err(Code::kCorrupt, "config.json: the top level is {}, must be an object",
                 describe(root));
    }
    return flatten_object(root, "");
  }

  bool nested() const { return nested_; }
  bool has_section(const std::string& path) const { return sections_.contains(path); }

  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // The value at one of the paths, all of which must agree; marks them as known.
  std::optional<element> find(const std::vector<std::string>& paths, std::string* where = nullptr) {
    std::optional<element> found;
    std::string first;
    for (const std::string& path : paths) {
      known_.insert(path);
      const auto at = values_.find(path);
      // null is how some writers spell "not set".
      if (at == values_.end() || at->second.type() == element_type::NULL_VALUE) continue;
      if (!found) {
        found = at->second;
        first = path;
      } else if (!same_value(*found, at->second)) {
        problem("{} is {} but {} is {}, must be equal", first, describe(*found), path,
                describe(at->second));
      }
    }
    if (where != nullptr) *where = found ? first : paths.front();
    return found;
  }

  void ignore(const std::string& path) { known_.insert(path); }

  // A key whose value could not be taken: rules that need it are left out.
  void mark_unread(const std::string& name) { unread_.insert(name); }
  const std::set<std::string>& unread() const { return unread_; }

  // Paths nobody asked for.
  std::vector<std::string> unknown() const {
    std::vector<std::string> paths = dotted_;
    for (const auto& [path, value] : values_) {
      if (!known_.contains(path)) paths.push_back(path);
    }
    return paths;
  }

  const std::map<std::string, element>& values() const { return values_; }

 private:
  static bool is_section(const std::string& path) {
    return path == "text_config" || path == "vision_config" || path == "quantization_config" ||
           path == "rope_scaling" || path == "text_config.rope_scaling";
  }

  Result<> flatten_object(element object, const std::string& prefix) {
    std::set<std::string> seen;
    for (const auto field : object_of(object)) {
      const std::string path = prefix + std::string(field.key);
      if (!seen.insert(path).second) {
        return err(Code::kCorrupt, "config.json: key \"{}\" stands twice", path);
      }
      if (field.key.find('.') != std::string_view::npos) {
        dotted_.push_back(path);  // never one of ours, though its path may look so
        continue;
      }
      if (!is_section(path) || field.value.type() == element_type::NULL_VALUE) {
        values_.emplace(path, field.value);
        continue;
      }
      if (field.value.type() != element_type::OBJECT) {
        problem("{} is {}, must be an object", path, describe(field.value));
        known_.insert(path);
        continue;
      }
      sections_.insert(path);
      CEDRA_TRY(flatten_object(field.value, path + "."));
    }
    nested_ = sections_.contains("text_config");
    return {};
  }

  std::vector<std::string>& problems_;
  std::map<std::string, element> values_;
  std::set<std::string> sections_;
  std::set<std::string> known_;
  std::set<std::string> unread_;
  std::vector<std::string> dotted_;
  bool nested_ = false;
};

// Typed access to the keys of one section: inside `section` under both names, then at the top
// level.
class Section {
 public:
  // top_level_names: false where only the alias may stand at the top level (vision_config).
  Section(Reader& reader, std::string section, bool top_level_names = true)
      : reader_(reader), section_(std::move(section)), top_level_names_(top_level_names) {}

  std::optional<element> find(const Key& key, std::string* where = nullptr) {
    std::vector<std::string> paths = {section_ + "." + key.name};
    if (top_level_names_) paths.emplace_back(key.name);
    if (key.alias != nullptr) {
      if (top_level_names_) paths.push_back(section_ + "." + key.alias);
      paths.emplace_back(key.alias);
    }
    if (!reader_.nested() && top_level_names_) {
      std::rotate(paths.begin(), paths.begin() + 1, paths.end());
    }
    const auto found = reader_.find(paths, where);
    const bool needed =
        key.need == Need::kAlways || (key.need == Need::kNested && reader_.nested());
    if (!found && needed) {
      mark_unread(key);
      if (key.alias != nullptr) {
        reader_.problem("{} (or {}) is missing", paths.front(), key.alias);
      } else {
        reader_.problem("{} is missing", paths.front());
      }
    }
    return found;
  }

  void integer(const Key& key, int64_t& out, int64_t low, int64_t high) {
    std::string where;
    const auto value = find(key, &where);
    if (value && !read_integer(*value, where, out, low, high)) mark_unread(key);
  }

  void number(const Key& key, double& out, double low, double high) {
    std::string where;
    const auto value = find(key, &where);
    if (!value) return;
    if (!is_number(*value)) {
      mark_unread(key);
      reader_.problem("{} is {}, must be a number", where, describe(*value));
      return;
    }
    const double found = as_double(*value);
    if (!(found >= low && found <= high)) {
      mark_unread(key);
      reader_.problem("{} is {}, must be between {} and {}", where, describe(*value), low, high);
      return;
    }
    out = found;
  }

  void boolean(const Key& key, bool& out) {
    std::string where;
    const auto value = find(key, &where);
    if (!value) return;
    if (value->type() != element_type::BOOL) {
      reader_.problem("{} is {}, must be true or false", where, describe(*value));
      return;
    }
    out = value->get_bool().value_unsafe();
  }

  void integers(const Key& key, std::vector<int64_t>& out, int64_t low, int64_t high) {
    std::string where;
    const auto value = find(key, &where);
    if (!value) return;
    if (value->type() != element_type::ARRAY) {
      mark_unread(key);
      reader_.problem("{} is {}, must be a list of integers", where, describe(*value));
      return;
    }
    const simdjson::dom::array array = array_of(*value);
    if (array.size() > static_cast<size_t>(kMaxLayers)) {
      mark_unread(key);
      reader_.problem("{} has {} entries, at most {} are supported", where, array.size(),
                      kMaxLayers);
      return;
    }
    for (const element item : array) {
      int64_t number = low;
      const std::string place = fmt::format("{}[{}]", where, out.size());
      if (!read_integer(item, place, number, low, high)) mark_unread(key);
      out.push_back(number);
    }
  }

  // The index of the found string in `allowed`, or nothing (reported) for any other value.
  std::optional<size_t> choice(const Key& key, std::initializer_list<std::string_view> allowed) {
    std::string where;
    const auto value = find(key, &where);
    if (!value) return std::nullopt;
    size_t index = 0;
    for (const std::string_view word : allowed) {
      if (is_text(*value, word)) return index;
      ++index;
    }
    reader_.problem("{} is {}, must be \"{}\"", where, describe(*value),
                    fmt::join(allowed, "\" or \""));
    return std::nullopt;
  }

  // A key that must have one value, because another value means another model.
  void must_be(const Key& key, int64_t wanted) {
    int64_t found = wanted;
    integer(key, found, wanted, wanted);
  }
  void must_be_false(const Key& key) {
    std::string where;
    const auto value = find(key, &where);
    if (value && !(value->type() == element_type::BOOL && !value->get_bool().value_unsafe())) {
      reader_.problem("{} is {}, must be false", where, describe(*value));
    }
  }

 private:
  void mark_unread(const Key& key) {
    reader_.mark_unread(top_level_names_ ? key.name : section_ + "." + key.name);
  }

  bool read_integer(element value, const std::string& where, int64_t& out, int64_t low,
                    int64_t high) {
    if (value.type() != element_type::INT64) {
      reader_.problem("{} is {}, must be an integer", where, describe(value));
      return false;
    }
    const int64_t found = value.get_int64().value_unsafe();
    if (found < low || found > high) {
      if (low == high) {
        reader_.problem("{} is {}, must be {}", where, found, low);
      } else {
        reader_.problem("{} is {}, must be between {} and {}", where, found, low, high);
      }
      return false;
    }
    out = found;
    return true;
  }

  Reader& reader_;
  std::string section_;
  bool top_level_names_;
};

void read_identity(Reader& reader) {
  const std::string where = "architectures";
  const auto architectures = reader.find({where});
  if (architectures) {
    bool good = false;
    if (architectures->type() == element_type::ARRAY) {
      for (const element item : array_of(*architectures)) {
        good = good || is_text(item, "DeepseekV41ForCausalLM");
      }
    }
    if (!good) {
      reader.problem("architectures is {}, must contain \"DeepseekV41ForCausalLM\"",
                     describe(*architectures));
    }
  } else if (reader.nested()) {
    reader.problem("architectures is missing");
  }

  const auto model_type = [&](const std::string& path, std::string_view wanted, bool needed) {
    const auto value = reader.find({path});
    if (!value) {
      if (needed) reader.problem("{} is missing", path);
      return;
    }
    if (!is_text(*value, wanted)) {
      reader.problem("{} is {}, must be \"{}\"", path, describe(*value), wanted);
    }
  };
  model_type("model_type", "deepseek_v41", reader.nested());
  model_type("text_config.model_type", "deepseek_v41_text", false);
  model_type("vision_config.model_type", "deepseek_v41_vision", false);
}

void read_quantization(Reader& reader, Config& config) {
  Section quant(reader, "quantization_config");
  // Top-level `dtype` is the activation type in the nested spelling, the storage in the flat one.
  if (reader.has_section("quantization_config") || reader.nested()) {
    quant.choice({"quant_method", nullptr, Need::kAlways}, {"fp8"});
    if (const auto dtype = reader.find({"dtype"})) {
      if (!is_text(*dtype, "bfloat16")) {
        reader.problem("dtype is {}, must be \"bfloat16\"", describe(*dtype));
      }
    }
  } else {
    quant.choice({"quant_method", "dtype", Need::kAlways}, {"fp8"});
  }
  quant.choice({"scale_fmt", nullptr, Need::kNested}, {"ue8m0"});
  quant.choice({"activation_scheme", nullptr, Need::kNested}, {"dynamic"});
  if (const auto found = quant.choice({"expert_dtype", nullptr, Need::kAlways}, {"fp4", "fp8"})) {
    config.expert_dtype = *found == 0 ? ExpertDtype::kFp4 : ExpertDtype::kFp8;
  }
  const Key block_size = {"weight_block_size", nullptr, Need::kNested};
  std::string where;
  if (const auto value = quant.find(block_size, &where)) {
    if (simdjson::minify(*value) != "[32,32]") {
      reader.problem("{} is {}, must be [32,32]", where, describe(*value));
    }
  }
}

void read_rope(Reader& reader, TextConfig& text) {
  const std::string section = reader.nested() ? "text_config.rope_scaling" : "rope_scaling";
  // Aliases are top-level keys; plain names of this section ("factor") never are.
  Section rope(reader, section, false);
  RopeScaling& r = text.rope_scaling;
  rope.choice({"rope_type", nullptr, Need::kNested}, {"yarn"});
  rope.number({"factor", "rope_factor"}, r.factor, 1, 1e6);
  rope.number({"beta_fast", "beta_fast"}, r.beta_fast, 1e-6, 1e6);
  rope.number({"beta_slow", "beta_slow"}, r.beta_slow, 1e-6, 1e6);
  rope.integer({"original_max_position_embeddings", "original_seq_len"},
               r.original_max_position_embeddings, 1, kMaxCount);
}

void read_attention(Section& s, TextConfig& t) {
  s.integer({"num_attention_heads", "n_heads"}, t.num_attention_heads, 1, kMaxDim);
  s.must_be({"num_key_value_heads", nullptr, Need::kNested}, 1);
  s.integer({"head_dim", nullptr}, t.head_dim, 1, kMaxDim);
  s.integer({"qk_rope_head_dim", "rope_head_dim"}, t.qk_rope_head_dim, 2, kMaxDim);
  s.integer({"q_lora_rank", nullptr}, t.q_lora_rank, 1, kMaxDim);
  s.integer({"o_lora_rank", nullptr}, t.o_lora_rank, 1, kMaxDim);
  s.integer({"o_groups", nullptr}, t.o_groups, 1, kMaxDim);
  s.must_be_false({"attention_bias", nullptr, Need::kOptional});
  s.number({"rope_theta", nullptr}, t.rope_theta, 1, 1e15);
  s.number({"compress_rope_theta", nullptr}, t.compress_rope_theta, 1, 1e15);
  s.integer({"sliding_window", "window_size"}, t.sliding_window, 1, kMaxDim);
  s.integers({"compress_ratios", nullptr}, t.compress_ratios, 0, kMaxDim);
  s.integers({"kv_source_layer_ids", "kv_source_layers"}, t.kv_source_layer_ids, 0, kMaxLayers);
  s.integers({"index_source_layer_ids", "index_source_layers"}, t.index_source_layer_ids, 0,
             kMaxLayers);
  s.integer({"index_n_heads", nullptr}, t.index_n_heads, 1, kMaxDim);
  s.integer({"index_head_dim", nullptr}, t.index_head_dim, 1, kMaxDim);
  s.integer({"index_topk", nullptr}, t.index_topk, 1, kMaxDim);
  s.integer({"candidate_source_layer_id", "candidate_source_layer", Need::kOptional},
            t.candidate_source_layer_id, -1, kMaxLayers);
  const Need candidates = t.candidate_source_layer_id >= 0 ? Need::kAlways : Need::kOptional;
  s.integer({"candidate_topk_blocks", nullptr, candidates}, t.candidate_topk_blocks, 0, kMaxDim);
  s.integer({"candidate_block_size", nullptr, candidates}, t.candidate_block_size, 0, kMaxDim);
}

void read_experts(Section& s, TextConfig& t) {
  s.integer({"moe_intermediate_size", "moe_inter_dim"}, t.moe_intermediate_size, 1, kMaxDim);
  s.integer({"n_routed_experts", nullptr}, t.n_routed_experts, 1, kMaxDim);
  s.integer({"num_experts_per_tok", "n_activated_experts"}, t.num_experts_per_tok, 1, kMaxDim);
  s.must_be({"n_shared_experts", nullptr}, 1);
  if (const auto found =
          s.choice({"scoring_func", "score_func"}, {"sqrtsoftplus", "softmax", "sigmoid"})) {
    constexpr std::array kFunctions = {ScoringFunc::kSqrtSoftplus, ScoringFunc::kSoftmax,
                                       ScoringFunc::kSigmoid};
    t.scoring_func = kFunctions[*found];
  }
  s.choice({"topk_method", nullptr, Need::kNested}, {"noaux_tc"});
  s.choice({"hidden_act", nullptr, Need::kNested}, {"silu"});
  s.boolean({"norm_topk_prob", nullptr, Need::kOptional}, t.norm_topk_prob);
  s.number({"routed_scaling_factor", "route_scale"}, t.routed_scaling_factor, 1e-6, 1e6);
  s.number({"gate_temp", nullptr, Need::kOptional}, t.gate_temp, 1e-6, 1e6);
  s.number({"swiglu_limit", nullptr}, t.swiglu_limit, 0, 1e30);
}

void read_engram(Section& s, TextConfig& t) {
  s.integers({"engram_layer_ids", nullptr, Need::kOptional}, t.engram_layer_ids, 0, kMaxLayers);
  const bool on = !t.engram_layer_ids.empty();
  const Need need = on ? Need::kAlways : Need::kOptional;
  const int64_t least = on ? 1 : 0;
  s.integers({"engram_num_embeddings", nullptr, need}, t.engram_num_embeddings, 1, kMaxCount);
  s.integer({"engram_max_ngram_size", nullptr, need}, t.engram_max_ngram_size, on ? 2 : 0, 16);
  s.integer({"engram_vocab_size", nullptr, need}, t.engram_vocab_size, on ? 2 : 0, kMaxVocab);
  s.integer({"engram_n_heads", nullptr, need}, t.engram_n_heads, least, kMaxLayers);
  s.integer({"engram_head_dim", nullptr, need}, t.engram_head_dim, least, 1 << 16);
  s.integer({"engram_pad_token_id", "engram_pad_id", Need::kOptional}, t.engram_pad_token_id, 0,
            kMaxVocab);
  s.integer({"engram_compressed_vocab_size", nullptr, need}, t.engram_compressed_vocab_size, least,
            int64_t{1} << 29);
}

void read_draft(Section& s, TextConfig& t, bool skip) {
  s.integer({"num_nextn_predict_layers", "n_mtp_layers"}, t.num_nextn_predict_layers, 0,
            kMaxLayers);
  if (skip) t.num_nextn_predict_layers = 0;
  const bool on = t.num_nextn_predict_layers > 0;
  const Need need = on ? Need::kAlways : Need::kOptional;
  const int64_t least = on ? 1 : 0;
  s.integer({"dspark_block_size", nullptr, need}, t.dspark_block_size, least, kMaxLayers);
  s.integer({"dspark_noise_token_id", nullptr, need}, t.dspark_noise_token_id, 0, kMaxVocab);
  s.integers({"dspark_target_layer_ids", nullptr, need}, t.dspark_target_layer_ids, 0, kMaxLayers);
  s.integer({"dspark_markov_rank", nullptr, need}, t.dspark_markov_rank, least, kMaxDim);
  s.integer({"dspark_n_routed_experts", nullptr, Need::kOptional}, t.dspark_n_routed_experts, 0,
            kMaxDim);
  s.integer({"dspark_num_experts_per_tok", "dspark_n_activated_experts", Need::kOptional},
            t.dspark_num_experts_per_tok, 0, kMaxDim);
  if (t.dspark_n_routed_experts == 0) t.dspark_n_routed_experts = t.n_routed_experts;
  if (t.dspark_num_experts_per_tok == 0) t.dspark_num_experts_per_tok = t.num_experts_per_tok;
}

void read_text(Reader& reader, TextConfig& t, const ConfigOptions& options) {
  Section s(reader, "text_config");
  s.integer({"vocab_size", nullptr}, t.vocab_size, 1, kMaxVocab);
  s.integer({"hidden_size", "dim"}, t.hidden_size, 1, kMaxDim);
  s.integer({"num_hidden_layers", "n_layers"}, t.num_hidden_layers, 1, kMaxLayers);
  s.number({"rms_norm_eps", "norm_eps"}, t.rms_norm_eps, 1e-37, 1);
  s.integer({"max_position_embeddings", "max_seq_len"}, t.max_position_embeddings, 1, kMaxCount);
  s.must_be_false({"tie_word_embeddings", nullptr, Need::kOptional});
  s.integer({"hc_mult", nullptr}, t.hc_mult, 1, kMaxCopies);
  s.integer({"hc_sinkhorn_iters", nullptr}, t.hc_sinkhorn_iters, 1, 1000);
  s.number({"hc_eps", nullptr}, t.hc_eps, 0, 1);
  read_attention(s, t);
  read_rope(reader, t);
  read_experts(s, t);
  read_engram(s, t);
  read_draft(s, t, options.skip_draft);
  for (const std::string key :
       {"attention_dropout", "initializer_range", "use_cache", "torch_dtype"}) {
    reader.ignore("text_config." + key);
    reader.ignore(key);
  }
  reader.ignore("text_config.dtype");
}

void read_vision(Reader& reader, Config& config, const ConfigOptions& options) {
  const bool section = reader.has_section("vision_config");
  for (const auto& [path, value] : reader.values()) {
    if (section && path.starts_with("vision_") && path.find('.') == std::string::npos) {
      reader.problem("{} stands beside vision_config: a flat vision key is another model's", path);
      reader.ignore(path);
    }
    if (options.language_model_only && path.starts_with("vision_")) reader.ignore(path);
  }
  reader.ignore("vision_config");  // null
  if (options.language_model_only) return;

  Section s(reader, "vision_config", false);
  VisionConfig v;
  s.integer({"num_hidden_layers", "vision_n_layers", Need::kOptional}, v.num_hidden_layers, 0,
            kMaxLayers);
  const bool on = v.num_hidden_layers > 0;
  const Need need = on ? Need::kAlways : Need::kOptional;
  const int64_t least = on ? 1 : 0;
  s.integer({"hidden_size", "vision_dim", need}, v.hidden_size, least, kMaxDim);
  s.integer({"num_attention_heads", "vision_n_heads", need}, v.num_attention_heads, least, kMaxDim);
  s.integer({"intermediate_size", "vision_inter_dim", need}, v.intermediate_size, least, kMaxDim);
  s.integer({"patch_size", "vision_patch_size", need}, v.patch_size, least, 1024);
  s.number({"rope_theta", "vision_rope_theta", need}, v.rope_theta, least, 1e15);
  s.integer({"downsample_ratio", "vision_downsample_ratio", need}, v.downsample_ratio, least, 64);
  s.integer({"max_image_tokens", "vision_max_n_token", need}, v.max_image_tokens, least, kMaxDim);
  s.integer({"min_pixels", "vision_min_pixels", need}, v.min_pixels, 0, kMaxCount);
  std::string where;
  const auto ratio = s.find({"max_wh_ratio", "vision_max_wh_ratio", Need::kOptional}, &where);
  if (on && ratio) {
    reader.problem("{} is {}, must be null: stretching images is another model's rule", where,
                   describe(*ratio));
  }
  if (on) config.vision = v;
}

// Keys of relatives whose presence means another formula. Neutral: null, false, 0, and `neutral`.
void check_denied(Reader& reader) {
  struct Denied {
    std::string_view name;
    double neutral;
  };
  constexpr std::array kDenied = {
      Denied{"num_hash_layers", 0},  Denied{"n_hash_layers", 0}, Denied{"n_group", 1},
      Denied{"topk_group", 1},       Denied{"mscale", 0},        Denied{"mscale_all_dim", 0},
      Denied{"attention_factor", 1}, Denied{"qk_norm", 0},       Denied{"first_k_dense_replace", 0},
      Denied{"logit_softcap", 0},
  };
  for (const auto& [path, value] : reader.values()) {
    const std::string_view name = std::string_view(path).substr(path.rfind('.') + 1);
    for (const Denied& denied : kDenied) {
      if (name != denied.name) continue;
      reader.ignore(path);
      const bool neutral =
          value.type() == element_type::NULL_VALUE ||
          (value.type() == element_type::BOOL && !value.get_bool().value_unsafe()) ||
          (is_number(value) && (as_double(value) == 0 || as_double(value) == denied.neutral));
      if (!neutral) {
        reader.problem("{} is {}: it belongs to another model and is not supported", path,
                       describe(value));
      }
    }
  }
}

void read_tokens(Reader& reader, Config& config) {
  Section s(reader, "text_config");
  s.integer({"bos_token_id", nullptr, Need::kNested}, config.bos_token_id, 0, kMaxVocab);
  s.integer({"eos_token_id", nullptr, Need::kNested}, config.eos_token_id, 0, kMaxVocab);
  s.integer({"pad_token_id", nullptr, Need::kNested}, config.pad_token_id, 0, kMaxVocab);
  s.integer({"image_token_id", nullptr, Need::kOptional}, config.image_token_id, 0, kMaxVocab);
}

std::string joined(const std::vector<std::string>& lines, std::string_view separator) {
  const size_t shown = std::min(lines.size(), kMaxListed);
  std::string text = fmt::format(
      "{}",
      fmt::join(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown), separator));
  if (shown < lines.size()) text += fmt::format("{}and {} more", separator, lines.size() - shown);
  return text;
}

}  // namespace

Result<Config> parse_config(std::string_view json, const ConfigOptions& options) {
  if (json.size() > static_cast<size_t>(kMaxConfigBytes)) {
    return err(Code::kTooLarge, "config.json: {} bytes, at most {} are read", json.size(),
               kMaxConfigBytes);
  }
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(json.size(), 64), kMaxDepth) != simdjson::SUCCESS) {
    return err(Code::kExhausted, "config.json: no memory to parse {} bytes", json.size());
  }
  element root;
  const simdjson::padded_string padded(json);
  if (const auto error = parser.parse(padded).get(root)) {
    return err(Code::kCorrupt, "config.json: not JSON of at most {} levels: {}", kMaxDepth,
               simdjson::error_message(error));
  }

  std::vector<std::string> problems;
  Reader reader(problems);
  CEDRA_TRY(reader.flatten(root));
  Config config;
  read_identity(reader);
  read_quantization(reader, config);
  read_text(reader, config.text, options);
  read_vision(reader, config, options);
  read_tokens(reader, config);
  check_denied(reader);
  for (const char* key : {"transformers_version", "max_batch_size", "temperature"}) {
    reader.ignore(key);
  }
  check_config(config, reader.unread(), problems);
  if (!problems.empty()) {
    return err(Code::kInvalid, "config.json: {}", joined(problems, "; "));
  }
  if (const auto unknown = reader.unknown(); !unknown.empty()) {
    config.warnings.push_back("config.json: unknown keys, ignored: " + joined(unknown, ", "));
  }
  return config;
}

Result<Config> load_config(const std::filesystem::path& folder, const ConfigOptions& options) {
  CEDRA_ASSIGN(const std::string text, read_file(folder / "config.json", kMaxConfigBytes));
  auto config = parse_config(text, options);
  if (!config) return wrap(config.error(), folder.string());
  return config;
}

}  // namespace cedra

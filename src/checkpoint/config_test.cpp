#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "checkpoint/generation_config.h"

namespace cedra {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

json released(const std::string& name = "released.json") {
  const auto text =
      read_file(std::string(CEDRA_SOURCE_DIR) + "/tests/data/config/" + name, 1 << 20);
  EXPECT_TRUE(text.has_value()) << text.error().message;
  return json::parse(*text);
}

Error error_of(const json& config, const ConfigOptions& options = {}) {
  const auto parsed = parse_config(config.dump(), options);
  EXPECT_FALSE(parsed.has_value()) << "accepted: " << config.dump().substr(0, 200);
  return parsed ? Error{} : parsed.error();
}

TEST(Config, Released) {
  const auto config = parse_config(released().dump());
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const TextConfig& text = config->text;
  EXPECT_EQ(text.vocab_size, 129280);
  EXPECT_EQ(text.hidden_size, 5120);
  EXPECT_EQ(text.compress_ratios.size(), 43u);
  EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(text.rms_norm_eps)), 0x1E3CE508u);
  EXPECT_EQ(text.engram_columns(), 24);
  EXPECT_EQ(text.hc_mixes(), 24);
  EXPECT_EQ(text.rope_scaling.factor, 16);
  EXPECT_EQ(text.kv_source_of(1), -1);
  EXPECT_EQ(text.kv_source_of(19), 14);
  EXPECT_EQ(text.kv_source_of(39), 20);
  EXPECT_EQ(text.engram_index(14), 1);
  EXPECT_EQ(text.engram_index(2), -1);
  EXPECT_EQ(text.replay_seam(), 20);
  EXPECT_EQ(text.gate_temp, 1);
  EXPECT_THAT(text.dspark_target_layer_ids, ElementsAre(37, 38, 39));
  EXPECT_EQ(text.dspark_n_routed_experts, 128);
  EXPECT_EQ(config->expert_dtype, ExpertDtype::kFp4);
  EXPECT_EQ(config->image_token_id, 129264);
  ASSERT_TRUE(config->vision.has_value());
  EXPECT_EQ(config->vision->min_pixels, 295936);
  EXPECT_THAT(config->warnings, testing::IsEmpty());
}

// The reference's own spelling gives the same model.
TEST(Config, FlatSpellingIsTheSameModel) {
  const auto nested = parse_config(released().dump());
  const auto flat = parse_config(released("released_flat.json").dump());
  ASSERT_TRUE(nested.has_value() && flat.has_value()) << flat.error().message;
  EXPECT_THAT(flat->warnings, testing::IsEmpty());
  const TextConfig &a = nested->text, &b = flat->text;
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_hidden_layers, b.num_hidden_layers);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.qk_rope_head_dim, b.qk_rope_head_dim);
  EXPECT_EQ(a.moe_intermediate_size, b.moe_intermediate_size);
  EXPECT_EQ(a.num_experts_per_tok, b.num_experts_per_tok);
  EXPECT_EQ(a.routed_scaling_factor, b.routed_scaling_factor);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.rope_scaling.factor, b.rope_scaling.factor);
  EXPECT_EQ(a.rope_scaling.original_max_position_embeddings,
            b.rope_scaling.original_max_position_embeddings);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.kv_source_layer_ids, b.kv_source_layer_ids);
  EXPECT_EQ(a.index_source_layer_ids, b.index_source_layer_ids);
  EXPECT_EQ(a.candidate_source_layer_id, b.candidate_source_layer_id);
  EXPECT_EQ(a.num_nextn_predict_layers, b.num_nextn_predict_layers);
  EXPECT_EQ(a.dspark_num_experts_per_tok, b.dspark_num_experts_per_tok);
  EXPECT_EQ(nested->vision->max_image_tokens, flat->vision->max_image_tokens);
  EXPECT_EQ(nested->vision->hidden_size, flat->vision->hidden_size);
}

TEST(Config, GoldenFolders) {
  for (const char* folder : {"/models/tiny", "/tests/golden/tiny", "/tests/golden/deep"}) {
    const auto config = load_config(std::string(CEDRA_SOURCE_DIR) + folder);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_THAT(config->warnings, testing::IsEmpty());
  }
}

struct Broken {
  const char* at;       // JSON pointer
  const char* value;    // JSON, or "" to remove the key
  const char* message;  // must stand in the error
};

// One broken rule each, in the released config.
const Broken kBroken[] = {
    // identity
    {"/architectures", R"(["DeepseekV3ForCausalLM"])",
     R"(architectures is ["DeepseekV3ForCausalLM"], must contain "DeepseekV41ForCausalLM")"},
    {"/architectures", "", "architectures is missing"},
    {"/model_type", R"("deepseek_v4")", R"(model_type is "deepseek_v4", must be "deepseek_v41")"},
    {"/model_type", "", "model_type is missing"},
    {"/text_config/model_type", R"("x")", R"(must be "deepseek_v41_text")"},
    {"/vision_config/model_type", R"("x")", R"(must be "deepseek_v41_vision")"},
    {"/dtype", R"("float16")", R"(dtype is "float16", must be "bfloat16")"},
    {"/text_config", "7", "text_config is 7, must be an object"},
    // fixed values
    {"/text_config/num_key_value_heads", "8", "num_key_value_heads is 8, must be 1"},
    {"/text_config/n_shared_experts", "2", "n_shared_experts is 2, must be 1"},
    {"/text_config/hidden_act", R"("gelu")", R"(hidden_act is "gelu", must be "silu")"},
    {"/text_config/attention_bias", "true", "attention_bias is true, must be false"},
    {"/text_config/tie_word_embeddings", "true", "tie_word_embeddings is true, must be false"},
    {"/text_config/topk_method", R"("greedy")", R"(topk_method is "greedy", must be "noaux_tc")"},
    {"/text_config/scoring_func", R"("tanh")",
     R"(scoring_func is "tanh", must be "sqrtsoftplus" or "softmax" or "sigmoid")"},
    {"/text_config/rope_scaling/rope_type", R"("linear")",
     R"(rope_type is "linear", must be "yarn")"},
    {"/quantization_config/quant_method", R"("awq")", R"(quant_method is "awq", must be "fp8")"},
    {"/quantization_config/scale_fmt", R"("float")", R"(scale_fmt is "float", must be "ue8m0")"},
    {"/quantization_config/expert_dtype", R"("int4")",
     R"(expert_dtype is "int4", must be "fp4" or "fp8")"},
    {"/quantization_config/activation_scheme", R"("static")", R"(must be "dynamic")"},
    {"/quantization_config/weight_block_size", "[128,128]",
     "weight_block_size is [128,128], must be [32,32]"},
    {"/quantization_config", "", "quantization_config.quant_method"},
    // types and ranges
    {"/text_config/hidden_size", "5120.0", "hidden_size is 5120.0, must be an integer"},
    {"/text_config/hidden_size", R"("5120")", R"(hidden_size is "5120", must be an integer)"},
    {"/text_config/hidden_size", "true", "hidden_size is true, must be an integer"},
    {"/text_config/hidden_size", "-5120", "hidden_size is -5120, must be between 1 and"},
    {"/text_config/hidden_size", "0", "hidden_size is 0, must be between 1 and"},
    {"/text_config/hidden_size", "9007199254740993",
     "hidden_size is 9007199254740993, must be between"},
    {"/text_config/hidden_size", "18446744073709551615",
     "hidden_size is 18446744073709551615, must be an integer"},
    {"/text_config/hidden_size", "", "text_config.hidden_size (or dim) is missing"},
    {"/text_config/hidden_size", "null", "text_config.hidden_size (or dim) is missing"},
    {"/text_config/rms_norm_eps", R"("1e-20")", R"(rms_norm_eps is "1e-20", must be a number)"},
    {"/text_config/rms_norm_eps", "-1e-20", "rms_norm_eps is -1e-20, must be between"},
    {"/text_config/norm_topk_prob", "1", "norm_topk_prob is 1, must be true or false"},
    {"/text_config/compress_ratios", "2", "compress_ratios is 2, must be a list of integers"},
    {"/text_config/compress_ratios/5", "2.5", "compress_ratios[5] is 2.5, must be an integer"},
    {"/text_config/swiglu_limit", "", "swiglu_limit is missing"},
    {"/text_config/num_nextn_predict_layers", "",
     "num_nextn_predict_layers (or n_mtp_layers) is missing"},
    {"/text_config/rope_scaling", "",
     "text_config.rope_scaling.factor (or rope_factor) is missing"},
    {"/text_config/rope_scaling/factor", "0.5", "factor is 0.5, must be between 1 and"},
    {"/text_config/hc_mult", "9", "hc_mult is 9, must be between 1 and 8"},
    {"/text_config/num_experts_per_tok", "385",
     "num_experts_per_tok is 385, must be at most n_routed_experts 384"},
    // sizes
    {"/text_config/o_groups", "7", "num_attention_heads 64 must be a multiple of o_groups 7"},
    {"/text_config/qk_rope_head_dim", "63", "qk_rope_head_dim is 63, must be even"},
    {"/text_config/qk_rope_head_dim", "514",
     "qk_rope_head_dim is 514, must be at most head_dim 512"},
    {"/text_config/qk_rope_head_dim", "130",
     "qk_rope_head_dim is 130, must be at most index_head_dim 128"},
    {"/text_config/hidden_size", "5136", "hidden_size is 5136, must be a multiple of 32"},
    {"/text_config/q_lora_rank", "1281", "q_lora_rank is 1281, must be a multiple of 32"},
    {"/text_config/head_dim", "520", "head_dim is 520, must be a multiple of 32"},
    {"/text_config/o_lora_rank", "1", "o_groups * o_lora_rank is 8, must be a multiple of 32"},
    {"/text_config/moe_intermediate_size", "2305",
     "moe_intermediate_size is 2305, must be a multiple of 32"},
    {"/text_config/index_head_dim", "80", "index_head_dim is 80, must be a multiple of 32"},
    {"/text_config/engram_head_dim", "250", "engram_head_dim is 250, must be a multiple of 32"},
    {"/text_config/n_routed_experts", "16777216", "routed experts over all layers"},
    {"/text_config/num_attention_heads", "16777216",
     "num_attention_heads * head_dim is 8589934592, at most"},
    // schedule
    {"/text_config/compress_ratios", "[0,0]",
     "compress_ratios has 2 entries, num_hidden_layers is 40"},
    {"/text_config/num_nextn_predict_layers", "2", "compress_ratios has 43 entries, must have 42"},
    {"/text_config/compress_ratios/41", "1",
     "compress_ratios[41] of a draft stage is 1, must be 0"},
    {"/text_config/compress_ratios/3", "17", "compress_ratios[3] is 17, must be 0..16"},
    {"/text_config/compress_ratios/3", "1",
     "layer 3 has compress ratio 1, its KV source 2 has 2: must be equal"},
    {"/text_config/compress_ratios/8", "0",
     "kv_source_layer_ids has layer 8, whose compress ratio is 0"},
    {"/text_config/compress_ratios/24", "0",
     "index_source_layer_ids has layer 24, whose compress ratio is 0"},
    {"/text_config/compress_ratios/1", "2",
     "layer 1 has compress ratio 2 but no kv_source_layer_ids entry at or below it"},
    {"/text_config/kv_source_layer_ids", "[8,2,14,20]",
     "kv_source_layer_ids is [8, 2, 14, 20], must be strictly ascending"},
    {"/text_config/kv_source_layer_ids", "[2,2,8,14,20]", "must be strictly ascending"},
    {"/text_config/kv_source_layer_ids", "[2,8,14,20,40]",
     "kv_source_layer_ids has layer 40, layers are 0..39"},
    {"/text_config/index_source_layer_ids", "[2,8,20,24]",
     "kv_source_layer_ids has layer 14, which index_source_layer_ids lacks"},
    {"/text_config/candidate_source_layer_id", "21",
     "candidate_source_layer_id is 21, which index_source_layer_ids lacks"},
    {"/text_config/candidate_source_layer_id", "14",
     "index source 20 after candidate_source_layer_id 14 reads KV source 20, must read 14"},
    {"/text_config/candidate_topk_blocks", "64",
     "candidate_topk_blocks 64 of candidate_block_size 8 leave as few as 505 rows, index_topk is "
     "512"},
    {"/text_config/candidate_block_size", "", "candidate_block_size is missing"},
    {"/text_config/engram_layer_ids", "[14,1]",
     "engram_layer_ids is [14, 1], must be strictly ascending"},
    {"/text_config/engram_num_embeddings/0", "384006169",
     "engram_num_embeddings[0] is 384006169, the primes from engram_vocab_size 16000000 on sum to "
     "384006168"},
    {"/text_config/engram_num_embeddings/1", "384006168",
     "engram_num_embeddings[1] is 384006168, the primes from engram_vocab_size 16000000 on sum to "
     "384016682"},
    {"/text_config/engram_num_embeddings", "[384006168]",
     "engram_num_embeddings has 1 entries, engram_layer_ids has 2"},
    {"/text_config/engram_n_heads", "4000", "Engram columns over all tables, at most"},
    {"/text_config/engram_n_heads", "", "engram_n_heads is missing"},
    {"/text_config/engram_pad_token_id", "129280",
     "engram_pad_token_id is 129280, must be below vocab_size 129280"},
    {"/text_config/engram_compressed_vocab_size", "129281",
     "engram_compressed_vocab_size is 129281, must be at most vocab_size"},
    {"/text_config/engram_layer_ids", "[]",
     "engram_num_embeddings has 2 tables but engram_layer_ids is empty"},
    {"/text_config/dspark_target_layer_ids", "[]", "dspark_target_layer_ids is empty"},
    {"/text_config/dspark_target_layer_ids", "[37,37]", "must not repeat a layer"},
    {"/text_config/dspark_target_layer_ids", "[40]",
     "dspark_target_layer_ids has layer 40, layers are 0..39"},
    {"/text_config/dspark_block_size", "", "dspark_block_size is missing"},
    {"/text_config/dspark_noise_token_id", "200000",
     "dspark_noise_token_id is 200000, must be below vocab_size"},
    {"/text_config/dspark_num_experts_per_tok", "129",
     "dspark_num_experts_per_tok is 129, must be at most dspark_n_routed_experts 128"},
    {"/eos_token_id", "129280", "eos_token_id is 129280, must be below vocab_size 129280"},
    {"/eos_token_id", "[1,2]", "eos_token_id is [1,2], must be an integer"},
    {"/image_token_id", "129280", "image_token_id is 129280, must be below vocab_size 129280"},
    {"/vision_config/num_attention_heads", "15",
     "vision hidden_size 1024 must be a multiple of 4 * num_attention_heads 15"},
    {"/vision_config/max_wh_ratio", "8", "max_wh_ratio is 8, must be null"},
    {"/vision_config/patch_size", "", "vision_config.patch_size (or vision_patch_size) is missing"},
    // spellings that disagree, keys of relatives
    {"/text_config/dim", "4096",
     "text_config.hidden_size is 5120 but text_config.dim is 4096, must be equal"},
    {"/hidden_size", "4096",
     "text_config.hidden_size is 5120 but hidden_size is 4096, must be equal"},
    {"/text_config/num_hash_layers", "3",
     "text_config.num_hash_layers is 3: it belongs to another model"},
    {"/text_config/n_group", "8", "text_config.n_group is 8"},
    {"/topk_group", "4", "topk_group is 4"},
    {"/text_config/rope_scaling/mscale", "1.0", "text_config.rope_scaling.mscale is 1.0"},
    {"/text_config/rope_scaling/attention_factor", "1.2", "attention_factor is 1.2"},
    {"/text_config/qk_norm", "true", "qk_norm is true"},
    {"/text_config/first_k_dense_replace", "3", "first_k_dense_replace is 3"},
    {"/text_config/logit_softcap", "30.0", "logit_softcap is 30.0"},
    {"/vision_n_layers", "32", "vision_n_layers stands beside vision_config"},
};

TEST(Config, BrokenRules) {
  for (const Broken& broken : kBroken) {
    json config = released();
    const json::json_pointer at(broken.at);
    if (*broken.value == '\0') {
      config.at(at.parent_pointer()).erase(at.back());
    } else {
      config[at] = json::parse(broken.value);
    }
    const Error error = error_of(config);
    EXPECT_THAT(error.message, HasSubstr(broken.message)) << broken.at << " = " << broken.value;
    EXPECT_EQ(error.code, Code::kInvalid) << broken.at;
  }
}

TEST(Config, AllBrokenRulesInOneError) {
  json config = released();
  config["text_config"]["hidden_act"] = "gelu";
  config["text_config"]["q_lora_rank"] = "wide";
  config["text_config"]["compress_ratios"][3] = 1;
  config["text_config"].erase("vocab_size");
  config["vision_config"]["max_wh_ratio"] = 8;
  const std::string message = error_of(config).message;
  for (const char* part : {"hidden_act", "q_lora_rank is \"wide\"", "layer 3 has compress ratio 1",
                           "text_config.vocab_size is missing", "max_wh_ratio"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(Config, NeutralKeysOfRelativesAreFine) {
  json config = released();
  config["text_config"]["n_group"] = 1;
  config["text_config"]["topk_group"] = 1;
  config["text_config"]["num_hash_layers"] = 0;
  config["text_config"]["qk_norm"] = false;
  config["text_config"]["logit_softcap"] = nullptr;
  config["text_config"]["rope_scaling"]["attention_factor"] = 1.0;
  config["text_config"]["rope_scaling"]["mscale"] = 0;
  const auto parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_THAT(parsed->warnings, testing::IsEmpty());
}

TEST(Config, UnknownKeysAreOneWarning) {
  json config = released();
  config["text_config"]["new_thing"] = 1;
  config["other"] = {{"deep", 1}};
  config["text_config.hidden_size"] = 7;  // a name, not a path
  const auto parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->warnings.size(), 1u);
  EXPECT_THAT(parsed->warnings[0], HasSubstr("text_config.new_thing"));
  EXPECT_THAT(parsed->warnings[0], HasSubstr("other"));
  EXPECT_EQ(parsed->text.hidden_size, 5120);
}

TEST(Config, BothSpellingsMayAgree) {
  json config = released();
  config["text_config"]["dim"] = 5120;
  config["rope_theta"] = 10000.0;
  EXPECT_TRUE(parse_config(config.dump()).has_value());
}

TEST(Config, DefaultsOfMissingKeys) {
  json config = released();
  config["text_config"].erase("norm_topk_prob");
  config["text_config"].erase("candidate_source_layer_id");
  config["text_config"].erase("candidate_topk_blocks");
  config.erase("image_token_id");
  config.erase("vision_config");
  for (auto it = config["text_config"].begin(); it != config["text_config"].end();) {
    it = it.key().starts_with("engram_") ? config["text_config"].erase(it) : std::next(it);
  }
  const auto parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_TRUE(parsed->text.norm_topk_prob);
  EXPECT_EQ(parsed->text.candidate_source_layer_id, -1);
  EXPECT_EQ(parsed->image_token_id, 129264);
  EXPECT_FALSE(parsed->vision.has_value());
  EXPECT_TRUE(parsed->text.engram_layer_ids.empty());
}

TEST(Config, DraftExpertsDefaultToTheBackbones) {
  json config = released();
  config["text_config"]["dspark_n_routed_experts"] = 0;
  config["text_config"].erase("dspark_num_experts_per_tok");
  const auto parsed = parse_config(config.dump());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->text.dspark_n_routed_experts, 384);
  EXPECT_EQ(parsed->text.dspark_num_experts_per_tok, 6);
}

TEST(Config, SwitchedOffPartsAreNotChecked) {
  json config = released();
  config["vision_config"]["max_wh_ratio"] = 8;
  config["text_config"]["dspark_target_layer_ids"] = json::array();
  const auto parsed =
      parse_config(config.dump(), {.language_model_only = true, .skip_draft = true});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_FALSE(parsed->vision.has_value());
  EXPECT_EQ(parsed->text.num_nextn_predict_layers, 0);
  EXPECT_THAT(parsed->warnings, testing::IsEmpty());
}

TEST(Config, ReplaySeamOnlyWhereDefined) {
  Config config = *parse_config(released().dump());
  config.text.engram_layer_ids.back() = 21;
  EXPECT_EQ(config.text.replay_seam(), -1);
  config = *parse_config(released().dump());
  config.text.compress_ratios[30] = 2;
  EXPECT_EQ(config.text.replay_seam(), -1);
  config = *parse_config(released().dump());
  config.text.kv_source_layer_ids.pop_back();
  EXPECT_EQ(config.text.replay_seam(), -1);
}

TEST(Config, NotJson) {
  const auto message = [](const std::string& text) {
    const auto parsed = parse_config(text);
    EXPECT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("not JSON"));
  EXPECT_THAT(message("{"), HasSubstr("not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(message(std::string(100000, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(message(R"({"a":1,"a":1})"), HasSubstr("key \"a\" stands twice"));
  EXPECT_THAT(message(R"({"text_config":{"dim":1,"dim":2}})"),
              HasSubstr("key \"text_config.dim\" stands twice"));
}

TEST(Config, SizeLimit) {
  const auto parsed = parse_config(std::string(static_cast<size_t>(kMaxConfigBytes) + 1, ' '));
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, Code::kTooLarge);
}

TEST(GenerationConfig, ReadsAndDefaults) {
  const Config config = *parse_config(released().dump());
  const auto full = parse_generation_config(
      R"({"temperature":0.6,"top_p":0.7,"top_k":40,"eos_token_id":[1,7],"other":{}})", config);
  ASSERT_TRUE(full.has_value()) << full.error().message;
  EXPECT_EQ(full->temperature, 0.6);
  EXPECT_EQ(full->top_p, 0.7);
  EXPECT_EQ(full->top_k, 40);
  EXPECT_THAT(full->eos_token_ids, ElementsAre(1, 7));
  const auto empty = parse_generation_config("{}", config);
  EXPECT_EQ(empty->temperature, 1);
  EXPECT_THAT(empty->eos_token_ids, ElementsAre(1));
  EXPECT_EQ(parse_generation_config(R"({"do_sample":false})", config)->temperature, 0);
  const auto missing = load_generation_config("/nonexistent", config);
  ASSERT_TRUE(missing.has_value());
  EXPECT_THAT(missing->eos_token_ids, ElementsAre(1));
  EXPECT_EQ(missing->top_p, 0.95) << "the vendor's advice";
}

TEST(GenerationConfig, Errors) {
  const Config config = *parse_config(released().dump());
  const auto message = [&](const char* text) {
    const auto parsed = parse_generation_config(text, config);
    EXPECT_FALSE(parsed.has_value()) << text;
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_THAT(message(R"({"eos_token_id":129280})"), HasSubstr("below vocab_size 129280"));
  EXPECT_THAT(message(R"({"eos_token_id":[1.5]})"), HasSubstr("eos_token_id is 1.5"));
  EXPECT_THAT(message(R"({"temperature":-1})"), HasSubstr("temperature is -1"));
  EXPECT_THAT(message(R"({"top_p":0})"), HasSubstr("top_p is 0"));
  EXPECT_THAT(message(R"({"top_k":-3})"), HasSubstr("top_k is -3"));
  EXPECT_THAT(message("[1"), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace cedra

// `cedra inspect DIR`: what a checkpoint folder holds, checked. Exit status 1 on any error, which
// goes to stderr.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/generation_config.h"
#include "cli/commands.h"

namespace cedra::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string folder;
  OpenOptions open;
  bool json = false;
  bool verify = false;
  bool hash = false;
};

struct Group {
  Component component;
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::array<bool, kDtypes> dtypes = {};
};

std::vector<Group> group_by_component(const Checkpoint& checkpoint) {
  std::vector<Group> groups;
  for (int i = 0; i < kComponents; ++i) groups.push_back({static_cast<Component>(i), 0, 0, {}});
  for (const TensorSpec& spec : checkpoint.inventory()) {
    Group& group = groups[static_cast<size_t>(spec.component)];
    ++group.tensors;
    group.bytes += tensor_bytes(spec);
    group.dtypes[static_cast<size_t>(spec.dtype)] = true;
  }
  std::erase_if(groups, [](const Group& group) { return group.tensors == 0; });
  return groups;
}

std::vector<std::string> dtype_names(const Group& group) {
  std::vector<std::string> names;
  for (size_t i = 0; i < group.dtypes.size(); ++i) {
    if (group.dtypes[i]) names.emplace_back(dtype_name(static_cast<Dtype>(i)));
  }
  return names;
}

// 48318382080 -> "45.0 GiB"
std::string readable_bytes(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

Result<std::string> sha256_of(const std::filesystem::path& path) {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Free> file(std::fopen(path.c_str(), "rb"));
  if (!file) return err(Code::kIo, "{}: cannot open", path.string());
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    return err(Code::kInternal, "cannot start SHA-256");
  }
  std::vector<unsigned char> block(size_t{4} << 20);
  while (const size_t got = std::fread(block.data(), 1, block.size(), file.get())) {
    if (EVP_DigestUpdate(context.get(), block.data(), got) != 1) {
      return err(Code::kInternal, "SHA-256 failed");
    }
  }
  if (std::ferror(file.get())) return err(Code::kIo, "{}: cannot read", path.string());
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned length = 0;
  if (EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1) {
    return err(Code::kInternal, "SHA-256 failed");
  }
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + length, ""));
}

// One hash per shard, empty without --hash.
Result<std::vector<std::string>> shard_hashes(const Checkpoint& checkpoint,
                                              const Options& options) {
  std::vector<std::string> hashes(checkpoint.shards().size());
  if (!options.hash) return hashes;
  for (size_t i = 0; i < hashes.size(); ++i) {
    CEDRA_ASSIGN(const auto path, resolve_file(checkpoint.folder(), checkpoint.shards()[i].name,
                                               options.open.follow_symlinks));
    CEDRA_ASSIGN(hashes[i], sha256_of(path));
  }
  return hashes;
}

ordered_json config_json(const Checkpoint& checkpoint, const GenerationConfig& generation) {
  const Config& config = checkpoint.config();
  const TextConfig& text = config.text;
  ordered_json out;
  out["layers"] = text.num_hidden_layers;
  out["hidden_size"] = text.hidden_size;
  out["heads"] = text.num_attention_heads;
  out["head_dim"] = text.head_dim;
  out["vocab_size"] = text.vocab_size;
  out["context"] = text.max_position_embeddings;
  out["sliding_window"] = text.sliding_window;
  out["compress_ratios"] = text.compress_ratios;
  out["kv_sources"] = text.kv_source_layer_ids;
  out["index_sources"] = text.index_source_layer_ids;
  out["index_topk"] = text.index_topk;
  out["experts"] = text.n_routed_experts;
  out["experts_per_token"] = text.num_experts_per_tok;
  out["expert_dtype"] = config.expert_dtype == ExpertDtype::kFp4 ? "fp4" : "fp8";
  out["engram_layers"] = text.engram_layer_ids;
  out["engram_rows"] = text.engram_num_embeddings;
  out["draft_stages"] = text.num_nextn_predict_layers;
  out["draft_block"] = text.dspark_block_size;
  out["vision_layers"] = config.vision ? config.vision->num_hidden_layers : 0;
  out["temperature"] = generation.temperature;
  out["top_p"] = generation.top_p;
  out["eos_token_ids"] = generation.eos_token_ids;
  return out;
}

void print_json(const Checkpoint& checkpoint, const GenerationConfig& generation,
                const std::vector<std::string>& hashes, const Options& options) {
  ordered_json out;
  out["folder"] = checkpoint.folder().string();
  out["verified"] = options.verify;
  out["config"] = config_json(checkpoint, generation);
  int64_t tensors = 0;
  int64_t bytes = 0;
  out["components"] = ordered_json::array();
  for (const Group& group : group_by_component(checkpoint)) {
    out["components"].push_back({{"name", component_name(group.component)},
                                 {"tensors", group.tensors},
                                 {"bytes", group.bytes},
                                 {"dtypes", dtype_names(group)}});
    tensors += group.tensors;
    bytes += group.bytes;
  }
  out["tensors"] = tensors;
  out["bytes"] = bytes;
  out["shards"] = ordered_json::array();
  for (size_t i = 0; i < hashes.size(); ++i) {
    const Shard& shard = checkpoint.shards()[i];
    ordered_json entry = {{"name", shard.name},
                          {"opened", shard.file_bytes > 0},
                          {"bytes", shard.file_bytes},
                          {"tensors", shard.tensors}};
    if (options.hash) entry["sha256"] = hashes[i];
    out["shards"].push_back(std::move(entry));
  }
  out["skipped"] = ordered_json::array();
  for (const SkippedTensor& skipped : checkpoint.skipped()) {
    out["skipped"].push_back({{"name", skipped.name}, {"reason", skipped.reason}});
  }
  out["warnings"] = checkpoint.warnings();
  // Names come from files: bytes that are not UTF-8 must not throw.
  fmt::print("{}\n", out.dump(1, ' ', false, ordered_json::error_handler_t::replace));
}

void print_text(const Checkpoint& checkpoint, const GenerationConfig& generation,
                const std::vector<std::string>& hashes, const Options& options) {
  fmt::print("{}\n\nconfig\n", checkpoint.folder().string());
  const ordered_json config = config_json(checkpoint, generation);
  for (const auto& [key, value] : config.items()) fmt::print("  {:<18} {}\n", key, value.dump());

  fmt::print("\n{:<20} {:>8} {:>18} {:>11}  {}\n", "component", "tensors", "bytes", "", "types");
  int64_t tensors = 0;
  int64_t bytes = 0;
  for (const Group& group : group_by_component(checkpoint)) {
    fmt::print("{:<20} {:>8} {:>18} {:>11}  {}\n", component_name(group.component), group.tensors,
               group.bytes, readable_bytes(group.bytes), fmt::join(dtype_names(group), " "));
    tensors += group.tensors;
    bytes += group.bytes;
  }
  fmt::print("{:<20} {:>8} {:>18} {:>11}\n", "total", tensors, bytes, readable_bytes(bytes));

  fmt::print("\nshards\n");
  for (size_t i = 0; i < hashes.size(); ++i) {
    const Shard& shard = checkpoint.shards()[i];
    if (shard.file_bytes == 0) {
      fmt::print("  {}  not opened, all of it is skipped {}\n", shard.name, hashes[i]);
    } else {
      fmt::print("  {}  {} tensors, {} bytes {}\n", shard.name, shard.tensors, shard.file_bytes,
                 hashes[i]);
    }
  }
  if (!checkpoint.skipped().empty()) {
    fmt::print("\nskipped: {} tensors\n", checkpoint.skipped().size());
    for (const SkippedTensor& skipped : checkpoint.skipped()) {
      fmt::print("  {} ({})\n", skipped.name, skipped.reason);
    }
  }
  for (const std::string& warning : checkpoint.warnings()) fmt::print("\nwarning: {}\n", warning);
  fmt::print("\n{}\n", options.verify ? "every value was checked"
                                      : "headers were checked; --verify checks every value");
}

Result<> inspect(const Options& options) {
  CEDRA_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.folder, options.open));
  CEDRA_ASSIGN(const GenerationConfig generation,
               load_generation_config(checkpoint.folder(), checkpoint.config()));
  CEDRA_ASSIGN(const auto hashes, shard_hashes(checkpoint, options));
  if (options.json) {
    print_json(checkpoint, generation, hashes, options);
  } else {
    print_text(checkpoint, generation, hashes, options);
  }
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "check a checkpoint folder and list its parts");
  command->add_option("DIR", options->folder, "folder with config.json and the shards")->required();
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_flag("--verify", options->verify, "check every value (one pass over all bytes)");
  command->add_flag("--hash", options->hash, "SHA-256 of every shard");
  command->add_flag("--follow-symlinks", options->open.follow_symlinks,
                    "let links lead out of the folder");
  command->add_flag("--language-model-only", options->open.language_model_only,
                    "skip the vision tower");
  command->add_flag("--skip-draft", options->open.skip_draft, "skip the draft stages");
  command->add_flag("--convert-norms", options->open.convert_norms,
                    "accept F32 or F16 where BF16 norms and draft heads are expected");
  command->callback([options, &action] {
    action = [options] {
      options->open.verify = options->verify ? Verify::kAll : Verify::kHeaders;
      const auto result = inspect(*options);
      if (result) return 0;
      fmt::print(stderr, "cedra inspect: {}\n", result.error().message);
      return 1;
    };
  });
}

}  // namespace cedra::cli

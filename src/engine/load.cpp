#include "engine/load.h"

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "engine/local_engine.h"
#include "kernels/ops.h"
#include "parallel/topology.h"

namespace cedra::engine {
namespace {

// Ids that must never be produced (spec chat.md 1.1): image placeholders and spans, and rows of the
// head that no token stands for.
std::vector<int32_t> forbidden_ids(const text::Tokenizer& tokenizer,
                                   const text::SpecialTokens& special, int64_t vocab_size) {
  std::vector<int32_t> forbidden;
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    if (token.content.starts_with("<|place_holder_mm_span_") ||
        token.content.starts_with("<\uff5crl_image_") || token.id == special.image) {
      forbidden.push_back(token.id);
    }
  }
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (tokenizer.token_string(static_cast<int32_t>(id)).empty()) {
      forbidden.push_back(static_cast<int32_t>(id));
    }
  }
  return forbidden;
}

int64_t weight_bytes(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const Shard& shard : checkpoint.shards()) bytes += shard.file_bytes;
  return bytes;
}

// Everything that every token reads; Engram tables are read by row and stay where they are.
bool read_ahead(Component component, bool drafts) {
  if (component == Component::kDraft || component == Component::kDraftExperts) return drafts;
  return component != Component::kEngramTable && component != Component::kEmbed;
}

std::string level_names() {
  std::string names;
  for (const kernels::Ops* ops : kernels::available_ops()) {
    names += names.empty() ? "" : ", ";
    names += ops->name;
  }
  return names;
}

}  // namespace

Result<Loaded> load(const std::filesystem::path& folder, const Options& options,
                    const Progress& progress) {
  const auto report = [&](std::string_view stage, int64_t done, int64_t total) {
    if (progress) progress(stage, done, total);
  };
  const kernels::Ops* ops = kernels::find_ops(options.isa);
  if (ops == nullptr) {
    return err(Code::kInvalid, "isa '{}' is unknown or not in this processor; it has: {}",
               options.isa, level_names());
  }
  report("reading headers", 0, 1);
  OpenOptions open;
  open.follow_symlinks = options.follow_symlinks;
  open.language_model_only = options.language_model_only;
  CEDRA_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder, open));
  report("reading headers", 1, 1);

  Loaded loaded;
  report("tokenizer", 0, 1);
  CEDRA_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::load(folder));
  CEDRA_ASSIGN(loaded.special, text::SpecialTokens::find(tokenizer));
  CEDRA_ASSIGN(loaded.generation, load_generation_config(folder, checkpoint.config()));
  const TextConfig& text = checkpoint.config().text;
  if (tokenizer.size() > text.vocab_size) {
    return err(Code::kCorrupt,
               "tokenizer.json has ids up to {}, but config.json says vocab_size = {}",
               tokenizer.size() - 1, text.vocab_size);
  }
  // Any other id in the prompt would be taken for words.
  if (checkpoint.config().vision && loaded.special.image != checkpoint.config().image_token_id) {
    return err(
        Code::kCorrupt,
        "config.json says image_token_id = {}, but in tokenizer.json the image token has id {}; "
        "--language-model-only opens the checkpoint without images",
        checkpoint.config().image_token_id, loaded.special.image);
  }
  text::CompressedTokenMap map;
  if (!text.engram_layer_ids.empty()) {
    map = text::compressed_token_map(tokenizer, text.vocab_size);
  }
  report("tokenizer", 1, 1);

  CEDRA_ASSIGN(EnginePlan plan, make_plan(checkpoint.config(), options, weight_bytes(checkpoint),
                                          plan::resident_bytes()));
  loaded.plan = plan.memory;
  loaded.warnings = checkpoint.warnings();
  if (options.speculative.on() && !plan.speculative.on()) {
    loaded.warnings.emplace_back(
        "this checkpoint has no draft stages (num_nextn_predict_layers is 0): it runs without "
        "speculative decoding");
  }
  if (plan.memory.taken() + plan.memory.mapped() > plan.memory.available) {
    loaded.warnings.push_back(fmt::format(
        "weights ({}) and caches ({}) are more than the {} that this machine has free: "
        "weights will be read from disk again and again",
        plan::format_bytes(plan.memory.mapped()), plan::format_bytes(plan.memory.taken()),
        plan::format_bytes(plan.memory.available)));
  } else if (options.populate) {
    const auto wanted = [&](Component component) {
      return read_ahead(component, plan.speculative.on());
    };
    CEDRA_TRY(checkpoint.populate(wanted, plan.threads, [&](int64_t done, int64_t total) {
      report("reading weights", done, total);
    }));
  }
  checkpoint.advise(Component::kEngramTable, Access::kRandom);

  std::vector<int32_t> forbidden = forbidden_ids(tokenizer, loaded.special, text.vocab_size);
  loaded.folder_name = std::filesystem::weakly_canonical(folder).filename().string();
  loaded.tokenizer = std::make_shared<const text::Tokenizer>(std::move(tokenizer));
  CEDRA_ASSIGN(std::unique_ptr<model::Model> model,
               model::Model::create(std::move(checkpoint), std::move(map.map), map.size));
  loaded.bytes_per_token = model->bytes_per_token();
  std::vector<int32_t> end_ids;
  for (const int64_t id : loaded.generation.eos_token_ids) {
    end_ids.push_back(static_cast<int32_t>(id));
  }
  CEDRA_ASSIGN(loaded.engine, LocalEngine::create(std::move(model), *ops, options, std::move(plan),
                                                  std::move(end_ids), std::move(forbidden)));
  return loaded;
}

}  // namespace cedra::engine

// `cedra plan DIR`: how much memory the engine would take with these flags, from config.json and
// the sizes of the weight files alone. Exit status 1 if it does not fit or the folder cannot be
// read.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "checkpoint/config.h"
#include "checkpoint/folder.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"

namespace cedra::cli {
namespace {

struct PlanFlags {
  EngineFlags engine;
  bool json = false;
};

// Sizes of the shards; where a download has only the index so far, what the index says.
Result<int64_t> weight_bytes(const std::filesystem::path& folder, bool follow_symlinks) {
  CEDRA_ASSIGN(const ShardIndex index, load_shard_index(folder, follow_symlinks));
  int64_t bytes = 0;
  for (const std::string& shard : index.shards) {
    const auto path = resolve_file(folder, shard, follow_symlinks);
    if (!path && path.error().code == Code::kNotFound && index.total_size) return *index.total_size;
    if (!path) return std::unexpected(path.error());
    std::error_code failure;
    const auto size = std::filesystem::file_size(*path, failure);
    if (failure) return err(Code::kIo, "{}: {}", path->string(), failure.message());
    bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

Result<plan::MemoryPlan> make_plan(const EngineFlags& flags) {
  const std::filesystem::path folder = flags.folder;
  CEDRA_ASSIGN(const Config config, load_config(folder));
  CEDRA_ASSIGN(const int64_t weights, weight_bytes(folder, flags.options.follow_symlinks));
  CEDRA_ASSIGN(const engine::Options options, engine_options(flags));
  return engine::plan_memory(config, options, weights);
}

int show(const PlanFlags& flags) {
  const Result<plan::MemoryPlan> plan = make_plan(flags.engine);
  if (!plan) {
    fmt::print(stderr, "{}\n", plan.error().message);
    return 1;
  }
  fmt::print("{}", flags.json ? plan->to_json() + "\n" : plan->to_text());
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("plan", "how much memory serving a checkpoint would take");
  const auto flags = std::make_shared<PlanFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_flag("--json", flags->json, "print JSON");
  command->callback([&action, flags] { action = [flags] { return show(*flags); }; });
}

}  // namespace cedra::cli

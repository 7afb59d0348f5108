// `cedra synth OUT`: a checkpoint folder of random weights with the released model's dims, to
// measure a machine with before anything is downloaded.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "checkpoint/config.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/terminal_answer.h"
#include "synth/folder.h"
#include "synth/release_config.h"
#include "synth/tokenizer_file.h"
#include "text/tokenizer.h"

namespace cedra::cli {
namespace {

struct SynthFlags {
  std::string folder;
  std::string like = "v4.1-flash";
  synth::Sizes sizes;
  uint64_t seed = 0;
  int threads = 0;
  bool text_only = false;
  bool dry_run = false;
};

Result<synth::Content> make_content(const SynthFlags& flags) {
  synth::Sizes sizes = flags.sizes;
  sizes.vision = !flags.text_only;
  // Refuses sizes before the tokenizer is made from them; 1 stands for what is not known yet.
  CEDRA_TRY(synth::release_config(sizes, 1));
  synth::Content out;
  out.seed = flags.seed;
  out.tokenizer = synth::tokenizer_file(sizes.vocab, flags.seed);
  CEDRA_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::parse(out.tokenizer));
  const int64_t compressed = text::compressed_token_map(tokenizer, sizes.vocab).size;
  CEDRA_ASSIGN(out.config, synth::release_config(sizes, compressed));
  return out;
}

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

int run(const SynthFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const auto report = [](const Error& error) {
    fmt::print(stderr, "cedra synth: {}\n", error.message);
    return error.code == Code::kCancelled ? 130 : 1;
  };
  const Result<synth::Content> content = make_content(flags);
  if (!content) return report(content.error());
  if (flags.dry_run) {
    const Result<int64_t> bytes = synth::folder_bytes(*content);
    if (!bytes) return report(bytes.error());
    fmt::print("{:.2f} GB\n", gigabytes(*bytes));
    return 0;
  }
  Interrupt interrupt;
  ProgressLine line;
  const auto start = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const Result<synth::Written> written =
      synth::write_folder(flags.folder, *content, flags.threads, [&](int64_t done, int64_t total) {
        line.show(fmt::format("writing {:.1f} of {:.1f} GB, {} %, {:.0f} s", gigabytes(done),
                              gigabytes(total), done * 100 / total, passed()));
        return !interrupt.taken();
      });
  line.clear();
  if (!written) return report(written.error());
  fmt::print("{}: {:.2f} GB in {} shards ({} were there), {:.0f} s\n", flags.folder,
             gigabytes(written->bytes), written->shards, written->resumed, passed());
  return 0;
}

}  // namespace

void add_synth(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("synth", "write a checkpoint of random weights, to measure with");
  const auto flags = std::make_shared<SynthFlags>();
  synth::Sizes& sizes = flags->sizes;
  command->add_option("folder", flags->folder, "new folder, or one that was not finished")
      ->required();
  command->add_option("--like", flags->like, "model whose dims it gets")
      ->check(CLI::IsMember({"v4.1-flash"}))
      ->capture_default_str();
  command->add_option("--layers", sizes.layers, "depth, at least 6")->capture_default_str();
  command->add_option("--experts", sizes.experts, "routed experts of a layer, at least 6")
      ->capture_default_str();
  command->add_option("--vocab", sizes.vocab, "rows of embedding and head, at least 512")
      ->capture_default_str();
  command->add_option("--engram-rows", sizes.engram_rows,
                      "rows of one Engram table, about (default: the released 384 million)");
  command->add_option("--draft-stages", sizes.draft_stages, "0 to 3")->capture_default_str();
  command->add_flag("--text-only", flags->text_only, "no vision tower");
  command->add_option("--seed", flags->seed, "same seed and sizes, same bytes")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "default: one per usable core")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--dry-run", flags->dry_run, "only say how large it would be");
  command->callback([&action, flags] { action = [flags] { return run(*flags); }; });
}

}  // namespace cedra::cli

// Names and meanings of the flags are vLLM's where it has them (spec chat.md 4.9).
#include "cli/engine_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/terminal_answer.h"

namespace cedra::cli {

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  app.add_option("model,--model,--model-path", flags.folder, "checkpoint folder")->required();
  engine::Options& o = flags.options;
  app.add_option("--isa", o.isa,
                 "kernel level: oracle, avx2, avx512, amx (default: the best here)");
  app.add_option("--threads", o.threads, "worker threads (default: one per usable core)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--max-model-len,--context-length", o.max_model_len,
                 "context: prompt and answer together (default: the checkpoint's)");
  app.add_option("--max-num-seqs", o.max_num_seqs, "requests that run at once")
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", o.max_num_batched_tokens, "rows of one step")
      ->capture_default_str();
  app.add_option(
         "--prefill-mode", flags.prefill_mode,
         "bounded: as the vendor deploys, the later layers read only the last window of a "
         "prompt, and answers may depend slightly on cache hits; exact: all layers read all "
         "of it, and answers never depend on the cache")
      ->check(CLI::IsMember({"bounded", "exact"}))
      ->capture_default_str();
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", o.enable_prefix_caching,
               "reuse what earlier requests computed (default: on)");
  app.add_option("--block-size", o.block_size, "tokens of a cache block")->capture_default_str();
  app.add_option("--window-records", o.window_records,
                 "stored windows that exact prefix hits continue from")
      ->capture_default_str();
  app.add_option("--speculative-config", flags.speculative_config,
                 "draft with the checkpoint's own stages and verify: JSON like "
                 R"({"method":"dspark"}; answers stay the same (docs/dspark.md)))");
  app.add_option("--memory-budget", o.memory_budget,
                 "bytes beside the mapped weights, also 512M or 8G (default: from the machine)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
  app.add_flag("--follow-symlinks", o.follow_symlinks, "follow links that leave the folder");
  app.add_flag("--language-model-only", o.language_model_only,
               "skip the vision tower: vision.*, aligner.*, image_*");
}

Result<engine::Options> engine_options(const EngineFlags& flags) {
  engine::Options options = flags.options;
  options.prefill_mode =
      flags.prefill_mode == "exact" ? engine::PrefillMode::kExact : engine::PrefillMode::kBounded;
  if (!flags.speculative_config.empty()) {
    CEDRA_ASSIGN(options.speculative, engine::parse_speculative_config(flags.speculative_config));
  }
  return options;
}

Result<engine::Loaded> open_engine(
    const EngineFlags& flags, Interrupt* interrupt,
    const std::function<void(std::string_view stage, int64_t percent)>& progress) {
  CEDRA_ASSIGN(const engine::Options options, engine_options(flags));
  ProgressLine line;
  Result<engine::Loaded> loaded =
      engine::load(flags.folder, options, [&](std::string_view stage, int64_t done, int64_t total) {
        if (interrupt != nullptr && interrupt->taken()) {
          line.clear();
          std::_Exit(130);  // nothing has been written that would need an orderly end
        }
        const int64_t percent = total > 0 ? done * 100 / total : 0;
        if (progress) progress(stage, percent);
        line.show(fmt::format("loading: {} {} %", stage, percent));
      });
  line.clear();
  if (!loaded) return loaded;
  for (const std::string& warning : loaded->warnings) {
    fmt::print(stderr, "warning: {}\n", warning);
  }
  return loaded;
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  app.add_option("--temperature", flags.temperature, "0 = always the likeliest token");
  app.add_option("--top-p", flags.top_p, "share of the probability that is kept");
  app.add_option("--top-k", flags.top_k, "number of tokens that are kept, 0 = all");
  app.add_option("--min-p", flags.min_p, "least probability relative to the likeliest token");
  app.add_option("--repetition-penalty", flags.repetition_penalty, "1 = off");
  app.add_option("--frequency-penalty", flags.frequency_penalty, "-2 to 2");
  app.add_option("--presence-penalty", flags.presence_penalty, "-2 to 2");
  app.add_option("--seed", flags.seed, "same seed, same text (docs/sampling.md)")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "must not be negative, got " + text : std::string();
      });
  app.add_option("-n,--max-tokens", flags.max_tokens, "tokens to write (default: what fits)");
  app.add_option("--min-tokens", flags.min_tokens, "no end before so many tokens");
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on after the end of the answer");
}

engine::SamplingParams sampling_params(const SamplingFlags& flags, const engine::Loaded& loaded,
                                       int64_t prompt_tokens) {
  engine::SamplingParams out;
  out.temperature = flags.temperature.value_or(loaded.generation.temperature);
  out.top_p = flags.top_p.value_or(loaded.generation.top_p);
  out.top_k = flags.top_k.value_or(loaded.generation.top_k);
  out.min_p = flags.min_p.value_or(0);
  out.repetition_penalty = flags.repetition_penalty.value_or(1);
  out.frequency_penalty = flags.frequency_penalty.value_or(0);
  out.presence_penalty = flags.presence_penalty.value_or(0);
  out.seed = flags.seed;
  const int64_t room = loaded.engine->info().context_length - prompt_tokens;
  out.max_tokens = std::min(flags.max_tokens.value_or(room), std::max<int64_t>(room, 1));
  out.min_tokens = flags.min_tokens.value_or(0);
  out.ignore_eos = flags.ignore_eos;
  return out;
}

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& text) {
  if (!terminal_ || (shown_ && text == text_)) return;
  text_ = text;
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace cedra::cli

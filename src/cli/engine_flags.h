// Flags and terminal habits that serve, run and chat share: opening the engine with progress shown,
// sampling flags, and the figures printed at the end.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/load.h"

namespace cedra::cli {

struct EngineFlags {
  std::string folder;
  engine::Options options;
  std::string prefill_mode = "bounded";
  std::string speculative_config;  // JSON, empty: without drafts
};
void add_engine_flags(CLI::App& app, EngineFlags& flags);

// The options with the flags that are no plain numbers in place. kInvalid names the flag.
Result<engine::Options> engine_options(const EngineFlags& flags);

class Interrupt;

// Loads, with progress and warnings on stderr. Ctrl-C while loading ends the program, also where
// `interrupt` keeps it from doing so by itself. `progress` hears stages and percents, too.
Result<engine::Loaded> open_engine(
    const EngineFlags& flags, Interrupt* interrupt = nullptr,
    const std::function<void(std::string_view stage, int64_t percent)>& progress = {});

struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int64_t> top_k, max_tokens, min_tokens;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);
// The checkpoint's defaults with the flags over them; max_tokens fills the context if not given.
engine::SamplingParams sampling_params(const SamplingFlags& flags, const engine::Loaded& loaded,
                                       int64_t prompt_tokens);

// One line on stderr that is rewritten in place; silent if stderr is no terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  std::string text_;
};

}  // namespace cedra::cli

// The file of `cedra serve --script`: what a scripted engine answers to which prompt, so that real
// clients can be tried against the real server without a model. docs/server.md shows one.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/scripted_engine.h"
#include "text/tokenizer.h"

namespace cedra::engine {

struct ScriptRule {
  std::vector<std::string> when;     // all of these must stand in the prompt's text
  std::vector<std::string> unless;   // none of these
  std::optional<int64_t> request;    // only the request of this number, counted from 1
  std::string text;                  // control tokens are recognised; runs out as EOS
  std::optional<std::string> error;  // instead of EOS: the engine fails with this message
};

struct ScriptFile {
  std::vector<ScriptRule> answers;  // the first that fits is used; not empty
  std::chrono::microseconds token_delay{0};
  std::chrono::microseconds prefill_delay{0};
  int64_t prefill_chunk = 512;
  int64_t context_length = 131072;
  int64_t max_num_seqs = 8;
  int64_t max_queue = 256;
};

// kInvalid names the field and its place.
Result<ScriptFile> parse_script_file(std::string_view json);
Result<ScriptFile> read_script_file(const std::filesystem::path& path);

// Options of an engine that answers by the file. A prompt that no rule fits makes its request fail
// with a message that says so. `tokenizer` outlives the engine.
Result<ScriptedOptions> script_options(ScriptFile file, const text::Tokenizer& tokenizer);

}  // namespace cedra::engine

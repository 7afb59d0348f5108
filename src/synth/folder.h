// A whole checkpoint folder of random weights: config.json, tokenizer.json and shards as the
// registry lists them for the config.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"

namespace cedra::synth {

struct Content {
  std::string config;     // text of config.json
  std::string tokenizer;  // text of tokenizer.json
  uint64_t seed = 0;
};

// Bytes done (of those that were there already, too) and to do; false stops the work. Called from
// the calling thread.
using Progress = std::function<bool(int64_t done, int64_t total)>;

struct Written {
  int64_t bytes = 0;  // of all shards
  int64_t shards = 0;
  int64_t resumed = 0;  // shards that were there already
};

// Bytes of all shards. kInvalid for a config that parse_config refuses.
Result<int64_t> folder_bytes(const Content& content);

// Writes the folder with `threads` threads (0 = one per usable core).
//
// The folder must be new, empty, or hold an unfinished run with the same content: synth.json names
// the content, shards get their names when they are whole, config.json and the index come last, so
// a folder that is not finished does not open. Errors: kInvalid (another folder, a finished one, a
// bad config), kExhausted (the disk has no room; nothing was written), kIo, kCancelled (progress
// said stop; the same call goes on from the last whole shard).
Result<Written> write_folder(const std::filesystem::path& folder, const Content& content,
                             int threads, const Progress& progress = {});

}  // namespace cedra::synth

// config.json of a checkpoint like DeepSeek-V4.1-Flash (docs/spec/model.md 1): per-layer dims as
// released, the number of layers, experts, tokens and Engram rows as wanted.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace cedra::synth {

struct Sizes {
  int64_t layers = 40;
  int64_t experts = 384;    // routed experts of a layer; the draft stages get a third of it
  int64_t vocab = 129280;   // embedding and head rows
  int64_t engram_rows = 0;  // of one Engram table, about; 0 = as released (384 million)
  int64_t draft_stages = 3;
  bool vision = true;
};

// The least values that make a model: every kind of layer, as many experts as one token uses, all
// bytes and added tokens.
inline constexpr int64_t kLeastLayers = 6;
inline constexpr int64_t kLeastExperts = 6;
inline constexpr int64_t kLeastVocab = 512;

// Errors: kInvalid for sizes below these or beyond what a config may say. The text parses with
// parse_config. compressed_vocab: size of the compressed token map of the folder's tokenizer.
//
// Another depth than 40 keeps the shape of the schedule: two window layers, then ratio 2 up to the
// middle with a KV source every six layers, then ratio 1 to the end with the candidate source in
// the middle and an indexer every four layers. Engram tables: layer 1 and the last KV source before
// the middle. A table has 24 consecutive primes of rows (model.md 5.3), so its size is not exactly
// engram_rows: the first prime is searched from engram_rows / 24 on.
Result<std::string> release_config(const Sizes& sizes, int64_t compressed_vocab);

}  // namespace cedra::synth

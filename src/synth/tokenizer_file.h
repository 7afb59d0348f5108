// A tokenizer.json of the official kind (docs/tokenizer.md) for a vocabulary of any size: ids 0..2
// are control tokens, then the 256 bytes, merges, and the other added tokens at the end. The merges
// are random: it reads any text, but its pieces are no words.
#pragma once

#include <cstdint>
#include <string>

namespace cedra::synth {

// Every id below `vocab` (at least kLeastVocab) has a token.
std::string tokenizer_file(int64_t vocab, uint64_t seed);

// First id of the added tokens at the end, and the one that stands for image embeddings.
int64_t first_late_token(int64_t vocab);
int64_t image_token(int64_t vocab);

}  // namespace cedra::synth

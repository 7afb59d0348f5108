// The bucket counts of the Engram tables: consecutive primes (spec model.md 5.3). They decide how
// many rows a table has, so the config check and the hasher both need them.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"

namespace cedra {

// Deterministic for every 64-bit value.
bool is_prime(uint64_t value);

// [table][order - 2][head]: `engram_layer_ids` x orders 2..engram_max_ngram_size x engram_n_heads.
// Every order searches from engram_vocab_size upwards and skips primes used before, in any table.
std::vector<std::vector<std::vector<int64_t>>> engram_table_primes(const TextConfig& text);

}  // namespace cedra

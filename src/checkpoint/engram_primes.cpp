#include "checkpoint/engram_primes.h"

#include <array>

namespace cedra {
namespace {

__extension__ typedef unsigned __int128 Wide;

uint64_t multiply_mod(uint64_t a, uint64_t b, uint64_t modulus) {
  return static_cast<uint64_t>(Wide{a} * b % modulus);
}

uint64_t power_mod(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = multiply_mod(result, base, modulus);
    base = multiply_mod(base, base, modulus);
  }
  return result;
}

}  // namespace

bool is_prime(uint64_t value) {
  // Miller-Rabin with these twelve bases has no false prime below 2^64.
  constexpr std::array<uint64_t, 12> kBases = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (value < 2) return false;
  for (const uint64_t base : kBases) {
    if (value % base == 0) return value == base;
  }
  uint64_t odd = value - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const uint64_t base : kBases) {
    uint64_t x = power_mod(base, odd, value);
    if (x == 1 || x == value - 1) continue;
    bool composite = true;
    for (int i = 1; i < twos && composite; ++i) {
      x = multiply_mod(x, x, value);
      composite = x != value - 1;
    }
    if (composite) return false;
  }
  return true;
}

std::vector<std::vector<std::vector<int64_t>>> engram_table_primes(const TextConfig& text) {
  std::vector<std::vector<std::vector<int64_t>>> tables;
  // Every order starts at the same number again and skips what was used: that is the next prime.
  int64_t candidate = text.engram_vocab_size;
  for (size_t table = 0; table < text.engram_layer_ids.size(); ++table) {
    auto& orders = tables.emplace_back();
    for (int64_t order = 2; order <= text.engram_max_ngram_size; ++order) {
      auto& heads = orders.emplace_back();
      for (int64_t head = 0; head < text.engram_n_heads; ++head) {
        while (!is_prime(static_cast<uint64_t>(candidate))) ++candidate;
        heads.push_back(candidate++);
      }
    }
  }
  return tables;
}

}  // namespace cedra

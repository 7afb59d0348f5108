// The generator of the Engram multipliers (engram_rng.h).
#include "model/engram_rng.h"

#include <bit>
#include <cassert>
#include <cstddef>

namespace cedra::model {
namespace {

constexpr uint32_t kInitialA = 0x43B0D7E5, kMultiplyA = 0x931E8875;
constexpr uint32_t kInitialB = 0x8B51F9DD, kMultiplyB = 0x58F38DED;
constexpr uint32_t kMixLeft = 0xCA01F9DD, kMixRight = 0x4973F715;
constexpr Uint128 kMultiplier = Uint128{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645;

// One step of a hash whose constant runs on from call to call.
uint32_t hash_step(uint32_t value, uint32_t* constant, uint32_t multiplier) {
  value ^= *constant;
  *constant *= multiplier;
  value *= *constant;
  return value ^ value >> 16;
}

uint32_t mix(uint32_t left, uint32_t right) {
  const uint32_t mixed = kMixLeft * left - kMixRight * right;
  return mixed ^ mixed >> 16;
}

}  // namespace

std::array<uint32_t, 4> seed_pool(uint64_t seed) {
  // Entropy: the little-endian 32-bit words of the seed. Two at most, so they all fit the pool.
  const std::array<uint32_t, 4> words = {static_cast<uint32_t>(seed),
                                         static_cast<uint32_t>(seed >> 32), 0, 0};
  std::array<uint32_t, 4> pool;
  uint32_t constant = kInitialA;
  for (size_t i = 0; i < 4; ++i) pool[i] = hash_step(words[i], &constant, kMultiplyA);
  for (size_t source = 0; source < 4; ++source) {
    for (size_t target = 0; target < 4; ++target) {
      if (source == target) continue;
      pool[target] = mix(pool[target], hash_step(pool[source], &constant, kMultiplyA));
    }
  }
  return pool;
}

std::array<uint64_t, 4> seed_words(const std::array<uint32_t, 4>& pool) {
  std::array<uint64_t, 4> words;
  uint32_t constant = kInitialB;
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t low = hash_step(pool[2 * i % 4], &constant, kMultiplyB);
    const uint64_t high = hash_step(pool[(2 * i + 1) % 4], &constant, kMultiplyB);
    words[i] = low | high << 32;
  }
  return words;
}

Pcg64::Pcg64(uint64_t seed) {
  const auto words = seed_words(seed_pool(seed));
  increment_ = (Uint128{words[2]} << 64 | words[3]) << 1 | 1;
  step();
  state_ += Uint128{words[0]} << 64 | words[1];
  step();
}

void Pcg64::step() { state_ = state_ * kMultiplier + increment_; }

uint64_t Pcg64::next() {
  step();
  const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint64_t Pcg64::below(uint64_t bound) {
  assert(bound > uint64_t{1} << 32);
  const uint64_t threshold = (0 - bound) % bound;  // Lemire: reject the first 2^64 mod bound
  Uint128 product = Uint128{next()} * bound;
  while (static_cast<uint64_t>(product) < threshold) product = Uint128{next()} * bound;
  return static_cast<uint64_t>(product >> 64);
}

std::vector<int64_t> engram_multipliers(int64_t layer, int64_t compressed_vocab_size,
                                        int64_t count) {
  const auto bound = static_cast<uint64_t>(INT64_MAX / compressed_vocab_size / 2);
  Pcg64 generator(static_cast<uint64_t>(10007 * layer));
  std::vector<int64_t> multipliers;
  for (int64_t i = 0; i < count; ++i) {
    multipliers.push_back(static_cast<int64_t>(2 * generator.below(bound) + 1));
  }
  return multipliers;
}

}  // namespace cedra::model

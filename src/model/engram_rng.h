// NumPy's default generator as far as the Engram multipliers need it (spec model.md 5.2):
// SeedSequence, PCG64 (XSL-RR 128/64) and bounded integers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace cedra::model {

__extension__ typedef unsigned __int128 Uint128;

// The pool of numpy.random.SeedSequence(seed).
std::array<uint32_t, 4> seed_pool(uint64_t seed);
// Its first four 64-bit words of output.
std::array<uint64_t, 4> seed_words(const std::array<uint32_t, 4>& pool);

class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed);
  uint64_t next();
  // Uniform in [0, bound), bound > 2^32: NumPy draws smaller ones another way.
  uint64_t below(uint64_t bound);

  Uint128 state() const { return state_; }
  Uint128 increment() const { return increment_; }

 private:
  void step();
  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

// Odd multipliers of look-backs 0..count-1 for one layer. compressed_vocab_size in 1..2^29;
// products with a compressed id stay below 2^63.
std::vector<int64_t> engram_multipliers(int64_t layer, int64_t compressed_vocab_size,
                                        int64_t count);

}  // namespace cedra::model

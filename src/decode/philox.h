// Philox4x32-10, a counter-based random generator: the numbers of a request are a pure function of
// (seed, position, stream), so they do not depend on other requests, batches or call order.
// Constants and known answers are those of the published definition (Salmon et al., 2011).
#pragma once

#include <array>
#include <cstdint>

namespace cedra::decode {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMul0 = 0xD2511F53u;
  constexpr uint64_t kMul1 = 0xCD9E8D57u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMul0 * counter[0];
    const uint64_t p1 = kMul1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform double in [0, 1) with 53 random bits. `position` counts the request's generated tokens
// from 0; `stream` separates uses at one position (0 = choosing the token).
constexpr double uniform_at(uint64_t seed, uint64_t position, uint32_t stream = 0) {
  const PhiloxBlock block = philox4x32_10(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (static_cast<uint64_t>(block[0]) << 32) | block[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace cedra::decode

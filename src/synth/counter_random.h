// Random numbers as a function of their place: any thread can make any part of a tensor, in any
// order, and gets the same bytes. (The finaliser of SplitMix64 over key + place * golden ratio;
// good enough for weights that only have to look random.)
#pragma once

#include <cstdint>
#include <string_view>

namespace cedra::synth {

constexpr uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Word number `place` of the stream `key`.
constexpr uint64_t random_word(uint64_t key, uint64_t place) {
  return mix(key + (place + 1) * 0x9E3779B97F4A7C15u);
}

// A stream of its own for every name.
constexpr uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed ^ 0x6A09E667F3BCC908u);
  for (const char c : name) key = mix(key ^ static_cast<unsigned char>(c)) + 0x9E3779B97F4A7C15u;
  return key;
}

}  // namespace cedra::synth

// Integer arithmetic that says so when it does not fit: for sizes and offsets read from files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace cedra {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Product of non-negative dims (1 for none); nothing for a negative dim or an overflow of int64_t.
inline std::optional<int64_t> checked_product(std::span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return product;
}

inline int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace cedra

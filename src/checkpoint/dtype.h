// The element types that a safetensors file can name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cedra {

enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

inline constexpr int kDtypes = 16;

// The spelling in the file, for example "F8_E4M3"; nothing for a name that the format lacks. The
// sub-byte types of newer writers (F4, F6) are unknown here: the release packs FP4 into I8.
std::optional<Dtype> dtype_from_name(std::string_view name);
std::string_view dtype_name(Dtype dtype);
int64_t dtype_bytes(Dtype dtype);

}  // namespace cedra

// Finds values that no weight may have: NaN codes and infinities (spec model.md 2.4, 3).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "checkpoint/dtype.h"

namespace cedra {

// Index of the first bad element, or nothing. E8M0: code 255. E4M3: codes 0x7F and 0xFF. BF16, F16,
// F32: NaN and infinity. Other types have no bad values. Any alignment; whole elements.
std::optional<int64_t> first_bad_value(Dtype dtype, std::span<const uint8_t> bytes);

}  // namespace cedra

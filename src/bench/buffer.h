// Large anonymous memory for measurements, and what to put into it.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "parallel/team.h"

namespace cedra::bench {

enum class Pages { kSmall, kHuge };

// Move-only.
class Buffer {
 public:
  // kExhausted if the memory cannot be had.
  static Result<Buffer> create(int64_t bytes, Pages pages);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  Buffer() = default;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// Bytes that are ordinary finite numbers in every format of a weight: as E4M3 codes, pairs of E2M1
// codes, BF16 and FP32. Each member of the team writes its own part.
void fill_with_weights(Team& team, Buffer& buffer);

}  // namespace cedra::bench

// Anonymous memory that is really there: caches and workspaces are taken at start, so that a
// machine without room for them says so then and not under load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace cedra {

// One mapping of zeros, in huge pages where the system grants them. Move-only.
class Pages {
 public:
  Pages() = default;
  // Address space only; populate() takes the memory. kExhausted names the bytes.
  static Result<Pages> reserve(int64_t bytes);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  std::span<uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// Takes the memory of a part of a mapping, on the caller's NUMA node; several threads can do so for
// several parts. Contents stay. kExhausted if the system has none left.
Result<> populate(std::span<uint8_t> part);

}  // namespace cedra

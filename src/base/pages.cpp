#include "base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace cedra {

Result<Pages> Pages::reserve(int64_t bytes) {
  Pages pages;
  pages.size_ = std::max<int64_t>(bytes, 1);
  void* memory = ::mmap(nullptr, static_cast<size_t>(pages.size_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    return err(Code::kExhausted, "cannot reserve {} bytes: {}", bytes, std::strerror(error));
  }
  pages.data_ = static_cast<uint8_t*>(memory);
  // Advice only: fewer TLB misses where it is granted.
  ::madvise(memory, static_cast<size_t>(pages.size_), MADV_HUGEPAGE);
  return pages;
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

Result<> populate(std::span<uint8_t> part) {
  if (part.empty()) return {};
  // Whole pages, the first and the last included.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  if (::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0) return {};
  const int error = errno;
  if (error != EINVAL) {  // EINVAL: a kernel before 5.14
    return err(Code::kExhausted, "cannot take {} bytes of memory: {}", part.size(),
               std::strerror(error));
  }
  for (size_t at = 0; at < part.size(); at += page) {
    volatile uint8_t* byte = part.data() + at;
    *byte = *byte;
  }
  volatile uint8_t* last = &part.back();
  *last = *last;
  return {};
}

}  // namespace cedra

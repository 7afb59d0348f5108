#include "bench/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "synth/counter_random.h"

namespace cedra::bench {

Result<Buffer> Buffer::create(int64_t bytes, Pages pages) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return err(Code::kExhausted, "no room for {} bytes of memory", bytes);
  ::madvise(memory, static_cast<size_t>(bytes),
            pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  Buffer out;
  out.data_ = static_cast<uint8_t*>(memory);
  out.size_ = bytes;
  return out;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

void fill_with_weights(Team& team, Buffer& buffer) {
  // Bit 6 is off and bit 4 on: E4M3 from 2^-5 to under 2; the upper byte of a BF16 then gives 2^-95
  // to 2^1.
  team.for_range(buffer.size() / 8, 1 << 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t word =
          (synth::random_word(1, static_cast<uint64_t>(i)) & 0xBFBFBFBFBFBFBFBFu) |
          0x1010101010101010u;
      std::memcpy(buffer.data() + 8 * i, &word, sizeof word);
    }
  });
}

}  // namespace cedra::bench

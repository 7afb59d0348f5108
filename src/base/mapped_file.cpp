#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace cedra {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string reason(int error) { return std::generic_category().message(error); }

std::unexpected<Error> system_error(const std::filesystem::path& path, const char* action,
                                    int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo;
  return err(code, "{}: cannot {}: {}", path.string(), action, reason(error));
}

// Size of an opened regular file.
Result<size_t> regular_size(int fd, const std::filesystem::path& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return system_error(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) return err(Code::kIo, "{}: not a regular file", path.string());
  return static_cast<size_t>(info.st_size);
}

// The page-aligned part of a mapping that covers [offset, offset + length), clamped.
struct PageRange {
  uint8_t* begin;
  size_t length;
};
PageRange page_range(const uint8_t* data, size_t size, size_t offset, size_t length) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  offset = std::min(offset, size);
  length = std::min(length, size - offset);
  const size_t start = offset / page * page;
  return {const_cast<uint8_t*>(data) + start, length == 0 ? 0 : offset + length - start};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO in the place of a shard must not hang the start.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error(path, "open", errno);
  CEDRA_ASSIGN(const size_t size, regular_size(file.get(), path));

  MappedFile mapped;
  mapped.path_ = path;
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "map", errno);
  mapped.data_ = static_cast<const uint8_t*>(data);
  mapped.size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::advise(Access access, size_t offset, size_t length) const {
  const PageRange range = page_range(data_, size_, offset, length);
  if (range.length == 0) return;
  int advice = MADV_NORMAL;
  switch (access) {
    case Access::kNormal:
      advice = MADV_NORMAL;
      break;
    case Access::kSequential:
      advice = MADV_SEQUENTIAL;
      break;
    case Access::kRandom:
      advice = MADV_RANDOM;
      break;
    case Access::kWillNeed:
      advice = MADV_WILLNEED;
      break;
  }
  // Only a hint: a file system that refuses it costs speed, not results.
  (void)::madvise(range.begin, range.length, advice);
}

Result<> MappedFile::populate(size_t offset, size_t length) const {
  const PageRange range = page_range(data_, size_, offset, length);
  if (range.length == 0) return {};
#ifdef MADV_POPULATE_READ
  if (::madvise(range.begin, range.length, MADV_POPULATE_READ) == 0) return {};
  if (errno != EINVAL) return system_error(path_, "read", errno);
#endif
  // Kernels before 5.14: one read per page. An I/O error raises SIGBUS here.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < range.length; at += page) {
    (void)*static_cast<const volatile uint8_t*>(range.begin + at);
  }
  return {};
}

Result<std::string> read_file(const std::filesystem::path& path, int64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error(path, "open", errno);
  CEDRA_ASSIGN(const size_t size, regular_size(file.get(), path));
  if (size > static_cast<size_t>(std::max<int64_t>(max_bytes, 0))) {
    return err(Code::kTooLarge, "{}: {} bytes, at most {} are read", path.string(), size,
               max_bytes);
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "read", errno);
    if (got == 0) return err(Code::kIo, "{}: ends at {} of {} bytes", path.string(), done, size);
    done += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace cedra

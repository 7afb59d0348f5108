// A file mapped read-only, and reading small files whole. The only place that maps files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace cedra {

enum class Access {
  kNormal,
  kSequential,  // read ahead generously
  kRandom,      // no read-ahead: single rows of a large table
  kWillNeed,    // start reading now, without waiting
};

// Owns one mapping; move-only. The bytes live as long as the object and start page-aligned.
// Truncating the file while it is mapped makes reads fail with SIGBUS: checkpoints are not edited
// while they are served.
class MappedFile {
 public:
  // kNotFound, kIo; the message names the path. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // A hint for [offset, offset + length), clamped to the file; never an error.
  void advise(Access access, size_t offset, size_t length) const;
  void advise(Access access) const { advise(access, 0, size_); }
  // Faults the pages of the range in and waits for them. kIo where the system cannot.
  Result<> populate(size_t offset, size_t length) const;

 private:
  std::filesystem::path path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a small file. kNotFound, kIo, kTooLarge over max_bytes; the message names the path.
Result<std::string> read_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace cedra

// What will take how much memory, decided before anything is taken, and how much there is: physical
// memory bounded by the cgroup. The engine lists its parts; this file adds up, prints and refuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace cedra::plan {

struct Part {
  std::string name;
  int64_t bytes = 0;
  bool mapped = false;  // file pages: shared, and given back under pressure
  std::string detail;   // "64 blocks of 56960 bytes"
};

struct MemoryPlan {
  std::vector<Part> parts;
  int64_t budget = 0;          // for everything that is not mapped
  int64_t available = 0;       // what the machine has for this process
  int64_t context_tokens = 0;  // that the cache holds, all sequences together

  int64_t taken() const;  // without mapped files
  int64_t mapped() const;
  std::string to_text() const;
  std::string to_json() const;
};

// Memory that this process may use: MemAvailable, bounded by the limits of its cgroup and of those
// above it (v2 or v1). File pages that a group holds count as free: they can be dropped. The paths
// are for tests.
int64_t available_memory(const std::filesystem::path& proc = "/proc",
                         const std::filesystem::path& cgroups = "/sys/fs/cgroup");

// Anonymous memory of this process that is in RAM, mapped files excluded; 0 if unknown.
int64_t resident_bytes(const std::filesystem::path& proc = "/proc");

// "12.4 GiB"
std::string format_bytes(int64_t bytes);

}  // namespace cedra::plan

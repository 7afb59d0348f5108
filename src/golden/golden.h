// Compares a golden folder (a checkpoint with expected.safetensors, golden/README.md) with this
// build: every item that it supports, one line each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace cedra::golden {

struct Options {
  std::string isa;   // kernel level, "" = fastest
  std::string only;  // run items whose name contains this
  int threads = 0;   // 0 = all usable cores
};

enum class Verdict { kPass, kFail, kNotRun };

struct Item {
  std::string name;
  int64_t rows = 0;
  double worst = 0;  // relative L2 of a row (oracle: largest absolute difference)
  double median = 0;
  std::string agreement;  // rows with equal arg-max or equal selection, "88/100"
  std::string bound;      // what had to hold
  Verdict verdict = Verdict::kNotRun;
};

struct Report {
  std::string level;
  std::vector<Item> items;
  int64_t failed() const;
};

// Errors: the folder cannot be read. Differences are items, not errors.
Result<Report> run(const std::filesystem::path& folder, const Options& options);

// The table as text; the same as JSON.
std::string to_text(const Report& report);
std::string to_json(const Report& report);

}  // namespace cedra::golden

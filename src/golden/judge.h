// Compares computed values with the golden ones, item by item, and keeps the report (docs/golden.md
// says which bounds hold where). Internal to golden/.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "golden/expected.h"
#include "golden/golden.h"

namespace cedra::golden {

using Values = std::vector<float>;

class Judge {
 public:
  // only: items whose name contains it are reported.
  Judge(const Expected& expected, std::string_view level, const std::string& only)
      : expected_(expected), only_(only), oracle_(level == "oracle") {
    report_.level = std::string(level);
  }

  bool oracle() const { return oracle_; }
  bool selected(const std::string& name) const {
    return only_.empty() || name.find(only_) != std::string::npos;
  }
  // Whether any item of the folder whose name begins so is selected.
  bool group_selected(const std::string& prefix) const;
  bool done(const std::string& name) const { return done_.contains(name); }
  void add(Item item);

  // Integers that must be equal, row by row.
  template <class T>
  void equal(const std::string& name, const std::vector<T>& computed,
             const std::vector<int64_t>& wanted, int64_t rows) {
    Item item;
    item.name = name;
    item.rows = rows;
    item.bound = "equal";
    const int64_t width = rows > 0 ? static_cast<int64_t>(wanted.size()) / rows : 0;
    int64_t same = 0;
    if (computed.size() == wanted.size()) {
      for (int64_t row = 0; row < rows; ++row) {
        same += std::equal(wanted.begin() + row * width, wanted.begin() + (row + 1) * width,
                           computed.begin() + row * width);
      }
    }
    item.agreement = fmt::format("{}/{}", same, rows);
    item.verdict =
        computed.size() == wanted.size() && same == rows ? Verdict::kPass : Verdict::kFail;
    add(std::move(item));
  }

  // Numbers, rows of equal width. Oracle: absolute difference. Otherwise every row's relative L2.
  void close(const std::string& name, const Values& computed, int64_t rows);

  // Logits that compound over a whole sequence at a fast level: judged against what float32 sums do
  // to the reference. A sequence's own noise is one draw: either no rounding tipped (1e-7), or one
  // did early and everything after it differs (1e-2); docs/golden.md shows both for one sequence
  // under two orders of summation. So a sequence that is not within its own bound may still be
  // within the folder's, and the table says which one held.
  void noisy(const std::string& name, const std::string& sequence, const Values& computed,
             int64_t rows);

  Report take() { return std::move(report_); }

 private:
  Noise folder_noise() const;

  const Expected& expected_;
  const std::string& only_;
  bool oracle_;
  std::set<std::string> done_;
  Report report_;
};

}  // namespace cedra::golden

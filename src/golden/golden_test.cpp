// The reference's numbers, at every level that this machine has.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/ops.h"

namespace cedra::golden {
namespace {

class Golden : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Golden, FolderHoldsAtLevel) {
  const auto& [folder, level] = GetParam();
  Options options;
  options.isa = level;
  options.threads = 2;
  const Result<Report> report =
      run(std::string(CEDRA_SOURCE_DIR "/tests/golden/") + folder, options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->level, level);
  EXPECT_EQ(report->failed(), 0) << to_text(*report);
  // Nothing may fall out of the comparison unseen.
  EXPECT_GE(std::ranges::count(report->items, Verdict::kPass, &Item::verdict), 10);
}

std::vector<std::string> levels() {
  std::vector<std::string> names;
  for (const kernels::Ops* ops : kernels::available_ops()) names.emplace_back(ops->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All, Golden, testing::Combine(testing::Values("tiny", "deep"), testing::ValuesIn(levels())),
    [](const auto& param) { return std::get<0>(param.param) + "_" + std::get<1>(param.param); });

}  // namespace
}  // namespace cedra::golden

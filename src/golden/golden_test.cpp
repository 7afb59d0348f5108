// The reference's numbers, at every level that this machine has.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "checkpoint/config.h"
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
  EXPECT_GE(std::ranges::count(report->items, Verdict::kPass, &Item::verdict), 50);
  if (level == "oracle") {
    EXPECT_EQ(std::ranges::count(report->items, Verdict::kNotRun, &Item::verdict), 0)
        << to_text(*report);
  }
}

// Naming one item computes it, whatever group it belongs to.
TEST(GoldenOnly, AFullNameIsComputed) {
  for (const char* only : {"replay.logits", "spec.confidence", "image0.logits", "seq3.logits"}) {
    Options options;
    options.isa = "oracle";
    options.only = only;
    const Result<Report> report = run(CEDRA_SOURCE_DIR "/tests/golden/tiny", options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_EQ(report->items.size(), 1U) << only;
    EXPECT_EQ(report->items[0].verdict, Verdict::kPass) << only;
  }
}

std::vector<std::string> levels() {
  std::vector<std::string> names;
  for (const kernels::Ops* ops : kernels::available_ops()) names.emplace_back(ops->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All, Golden, testing::Combine(testing::Values("tiny", "deep"), testing::ValuesIn(levels())),
    [](const auto& param) { return std::get<0>(param.param) + "_" + std::get<1>(param.param); });

const std::filesystem::path kShapes = CEDRA_SOURCE_DIR "/tests/golden/shapes";

// Folders with other dims, schedules and windows (tests/golden/shapes/make_shapes.py).
std::vector<std::string> shapes() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kShapes)) {
    if (entry.is_directory() && std::filesystem::exists(entry.path() / "config.json")) {
      names.push_back(entry.path().filename());
    }
  }
  std::ranges::sort(names);
  return names;
}

class Shapes : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Shapes, FolderHoldsAtLevel) {
  const auto& [folder, level] = GetParam();
  Options options;
  options.isa = level;
  options.threads = 2;
  const Result<Report> report = run(kShapes / folder, options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->level, level);
  // The oracle has to reproduce everything. A fast level is judged layer by layer here: these
  // sequences are too short for bounds on what compounds.
  int64_t compared = 0;
  for (const Item& item : report->items) {
    if (level != "oracle" && item.name.find(".layer.") == std::string::npos) continue;
    EXPECT_NE(item.verdict, Verdict::kFail) << item.name << "\n" << to_text(*report);
    compared += item.verdict == Verdict::kPass;
    if (level != "oracle") continue;
    EXPECT_NE(item.verdict, Verdict::kNotRun) << item.name << " fell out";
  }
  const Result<Config> config = load_config(kShapes / folder);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  // attn, ffn, stream and pre of every layer.
  EXPECT_GE(compared, 4 * config->text.num_hidden_layers);
}

TEST(ShapesFolder, CoversWhatTinyAndDeepDoNot) { EXPECT_GE(shapes().size(), 10U); }

INSTANTIATE_TEST_SUITE_P(All, Shapes,
                         testing::Combine(testing::ValuesIn(shapes()), testing::ValuesIn(levels())),
                         [](const auto& param) {
                           return std::get<0>(param.param) + "_" + std::get<1>(param.param);
                         });

}  // namespace
}  // namespace cedra::golden

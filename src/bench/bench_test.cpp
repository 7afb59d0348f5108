#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/buffer.h"
#include "bench/kernels.h"
#include "bench/machine.h"
#include "bench/step_cost.h"
#include "bench/steps.h"
#include "bench/timing.h"
#include "numerics/formats.h"
#include "synth/release_config.h"

namespace cedra::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// A copy of a part of /sys, gone at the end.
class FakeSys {
 public:
  FakeSys() : path_(fs::temp_directory_path() / fmt::format("bench_test.{}", ::getpid())) {
    fs::remove_all(path_);
  }
  ~FakeSys() { fs::remove_all(path_); }
  void file(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(Machine, ReadsNumaNodesInOrder) {
  const FakeSys sys;
  for (const int node : {10, 0}) {
    const std::string folder = fmt::format("node{}/", node);
    sys.file(folder + "cpulist", fmt::format("{}-{}\n", node, node + 3));
    sys.file(folder + "distance", "10 21\n");
    sys.file(folder + "meminfo", fmt::format("Node {} MemTotal:       2048 kB\n", node));
  }
  sys.file("nodes", "not one");
  const auto nodes = read_numa_nodes(sys.path());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[1].id, 10);
  EXPECT_EQ(nodes[1].cpus, "10-13");
  EXPECT_EQ(nodes[1].distances, "10 21");
  EXPECT_EQ(nodes[1].memory_bytes, 2048 << 10);
  EXPECT_TRUE(read_numa_nodes(sys.path() / "nothing").empty());
}

TEST(Machine, CountsEveryLastCacheOnce) {
  const FakeSys sys;
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string cache = fmt::format("cpu{}/cache/", cpu);
    sys.file(cache + "index0/size", "32K\n");
    sys.file(cache + "index3/size", "1024K\n");
    sys.file(cache + "index3/shared_cpu_list", cpu < 2 ? "0-1\n" : "2-3\n");
  }
  sys.file("cpufreq/x", "not one");
  EXPECT_EQ(last_cache_bytes(sys.path()), 2 << 20);
  EXPECT_EQ(last_cache_bytes(sys.path() / "nothing"), 0);
}

TEST(Machine, ReportHasEveryCeilingForEveryNumberOfThreads) {
  const auto report = measure_machine({.threads = 2, .rounds = 1, .gigabytes = 0.01});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const json parsed = json::parse(report->to_json());
  std::map<int, std::vector<std::string>> by_threads;
  for (const json& value : parsed["values"]) {
    EXPECT_GT(value["value"].get<double>(), 0) << value;
    by_threads[value["threads"].get<int>()].push_back(value["what"].get<std::string>());
  }
  ASSERT_EQ(by_threads.size(), 2u);
  EXPECT_EQ(by_threads[1], by_threads[2]);
  EXPECT_THAT(by_threads[1], testing::IsSupersetOf({"read, huge pages", "read, 4 KiB pages",
                                                    "read, mapped file, warm", "barrier"}));
  EXPECT_THAT(report->to_text(), HasSubstr("GB/s"));
}

TEST(Machine, RefusesAFileThatIsNotThere) {
  const auto report =
      measure_machine({.threads = 1, .rounds = 1, .gigabytes = 0.01, .file = "/nonexistent"});
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, HasSubstr("/nonexistent"));
}

TEST(Buffer, WeightsAreFiniteInEveryFormat) {
  Team team({.threads = 2});
  auto buffer = Buffer::create(1 << 20, Pages::kHuge);
  ASSERT_TRUE(buffer.has_value());
  fill_with_weights(team, *buffer);
  std::array<bool, 256> seen{};
  for (int64_t i = 0; i < buffer->size(); i += 2) {
    const uint8_t low = buffer->data()[i];
    const uint8_t high = buffer->data()[i + 1];
    seen[low] = true;
    ASSERT_TRUE(std::isfinite(decode_e4m3(low)));
    const float wide = to_float(bf16{static_cast<uint16_t>(low | high << 8)});
    ASSERT_TRUE(std::isfinite(wide) && std::abs(wide) > 1e-30f && std::abs(wide) < 1e3f);
  }
  EXPECT_EQ(std::ranges::count(seen, true), 64);  // two bits are fixed
}

TEST(Kernels, ReportsEveryOperationAndNumberOfRows) {
  KernelOptions options;
  options.threads = 2;
  options.rounds = 1;
  options.gigabytes = 0.01;
  options.only = "attention";
  options.rows = {1, 3};
  std::vector<std::string> told;
  const auto report =
      measure_kernels(options, [&](const std::string& what) { told.push_back(what); });
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(told.size(), report->results.size());
  const json parsed = json::parse(report->to_json());
  EXPECT_GE(parsed["results"].size(), 16u);
  for (const KernelResult& result : report->results) {
    EXPECT_THAT(result.name + result.use, HasSubstr("attention"));
    EXPECT_GT(result.seconds, 0) << result.name;
    EXPECT_GE(result.of_ceiling, std::max(result.of_read, result.of_peak)) << result.name;
  }
  const std::string picture = report->to_svg();
  EXPECT_TRUE(picture.starts_with("<svg "));
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
  EXPECT_THAT(picture, HasSubstr("attention wo_b"));
}

TEST(Kernels, RefusesWhatItCannotMeasure) {
  const auto message = [](const KernelOptions& options) {
    const auto report = measure_kernels(options);
    return report ? std::string("measured") : report.error().message;
  };
  EXPECT_THAT(message({.isa = "sse9"}), HasSubstr("isa 'sse9'"));
  EXPECT_THAT(message({.rows = {0}}), HasSubstr("rows must be between 1 and 4096, got 0"));
  EXPECT_THAT(message({.rounds = 1, .gigabytes = 0.01, .only = "nothing of this name"}),
              HasSubstr("no operation has \"nothing of this name\""));
}

// ---- steps

Config release() {
  const auto config = parse_config(*synth::release_config({}, 99092));
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *config;
}

double of(const std::array<double, model::kPhases>& values, model::Phase phase) {
  return values[static_cast<size_t>(phase)];
}

TEST(StepCost, CountsWhatADecodedTokenOfTheReleaseReads) {
  using enum model::Phase;
  const StepCost cost = decode_cost(release(), 1, 32767);
  // docs/spec/model.md 2.1: an expert has 18800640 bytes; the shared one is FP8.
  constexpr double kShared = 3.0 * 5120 * 2304 * (1 + 1.0 / 1024);
  EXPECT_DOUBLE_EQ(of(cost.bytes, kExperts), 40 * (6 * 18800640.0 + kShared));
  EXPECT_DOUBLE_EQ(of(cost.flops, kExperts), 40 * 7 * 3 * 2.0 * 5120 * 2304);
  EXPECT_DOUBLE_EQ(of(cost.bytes, kHead), 2.0 * 5120 * (129280 + 1));
  // 128 records of 528 bytes in every layer, 512 of 288 in the 38 that have a source.
  EXPECT_DOUBLE_EQ(of(cost.bytes, kAttend), 40 * 128 * 528.0 + 38 * 512 * 288.0);
  // Layers 2, 8 and 14 score 16384 keys of 68 bytes, 20 all 32768, 24 to 36 the candidates.
  const double keys = 3 * 16384 + 32768 + 4 * 16384;
  const StepCost at_once = decode_cost(release(), 1, 100);
  EXPECT_EQ(of(at_once.bytes, kIndexer), 0) << "nothing to choose from";
  EXPECT_DOUBLE_EQ(of(cost.flops, kIndexer),
                   keys * 2 * 32 * 128 + 8 * 2.0 * (4096 * 1280 + 32 * 5120) + 4 * 2.0 * 128 * 512);
}

TEST(StepCost, RowsShareExperts) {
  const Config config = release();
  EXPECT_NEAR(expected_experts(config.text, 1), 240, 1e-9);
  EXPECT_LT(expected_experts(config.text, 8), 8 * 240.0);
  EXPECT_NEAR(expected_experts(config.text, 100000), 40 * 384, 1e-3);
}

TEST(Steps, SplitDecodingAndAPromptByComponent) {
  StepOptions options;
  options.folder = fs::path(CEDRA_SOURCE_DIR) / "models" / "tiny";
  options.threads = 2;
  options.rounds = 2;
  options.batches = {1, 3};
  options.contexts = {20, 900};
  options.prompt = 40;
  const auto report = measure_steps(options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(report->results.size(), 5u);
  for (const StepResult& result : report->results) {
    double sum = 0;
    for (size_t i = 1; i < model::kPhases; ++i) {
      EXPECT_GT(result.by_phase[i], 0) << model::kPhaseNames[i];
      sum += result.by_phase[i];
    }
    EXPECT_EQ(result.by_phase[0], 0);
    EXPECT_GT(result.full_seconds, sum) << "the release is larger in every component";
    // 6 layers, 2 of 8 experts per row.
    EXPECT_GE(result.experts, 12);
    EXPECT_LE(result.experts, std::min<int64_t>(48, 12 * result.rows));
  }
  EXPECT_TRUE(report->results.back().prompt);
  const json parsed = json::parse(report->to_json());
  EXPECT_EQ(parsed["results"][3]["context"], 900);
  EXPECT_EQ(parsed["results"][0]["components"].size(), model::kPhases - 1);
  EXPECT_THAT(report->to_text(), HasSubstr("decode, 3 sequence(s) at 900"));
}

TEST(Steps, RefusesAContextBeyondTheModels) {
  StepOptions options;
  options.folder = fs::path(CEDRA_SOURCE_DIR) / "models" / "tiny";
  options.threads = 1;
  options.rounds = 1;
  options.contexts = {2000};
  const auto report = measure_steps(options);
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, HasSubstr("the model's 1024"));
  options.folder = "/nonexistent";
  EXPECT_FALSE(measure_steps(options).has_value());
}

TEST(Median, OfNoneIsZero) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 9}), 5);
}

}  // namespace
}  // namespace cedra::bench

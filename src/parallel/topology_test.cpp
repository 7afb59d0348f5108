// Quota and CPU-list parsing against written-out control-group trees.
#include "parallel/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cedra {
namespace {

namespace fs = std::filesystem;

TEST(Topology, ParsesCpuLists) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), (std::vector<int>{5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("x").empty());
}

TEST(Topology, ParsesQuotas) {
  EXPECT_EQ(parse_cpu_max("max 100000\n"), 0);
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(parse_cpu_max(""), 0);
  EXPECT_EQ(parse_cfs_quota("-1\n", "100000\n"), 0);
  EXPECT_EQ(parse_cfs_quota("200000\n", "100000\n"), 2);
}

class CgroupTree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("cedra_topology_" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(CgroupTree, TakesTheTightestLimitUpTheV2Tree) {
  put("a/cpu.max", "400000 100000\n");
  put("a/b/cpu.max", "max 100000\n");
  put("a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_quota("0::/a/b/c\n", root_.string()), 4);
  EXPECT_EQ(cgroup_quota("0::/\n", root_.string()), 0);
  put("cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_quota("0::/not/mounted\n", root_.string()), 1);
}

TEST_F(CgroupTree, ReadsTheV1CpuController) {
  put("cpu/job/cpu.cfs_quota_us", "250000\n");
  put("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_quota("4:memory:/job\n3:cpu,cpuacct:/job\n", root_.string()), 2.5);
  EXPECT_EQ(cgroup_quota("3:cpuset:/job\n", root_.string()), 0);
}

TEST(Topology, QuotaBoundsTheThreads) {
  Topology topology;
  topology.cores = {0, 2, 4, 6};
  EXPECT_EQ(topology.usable_threads(), 4);
  topology.quota_cpus = 1.5;
  EXPECT_EQ(topology.usable_threads(), 2);
  topology.quota_cpus = 0.2;
  EXPECT_EQ(topology.usable_threads(), 1);
  topology.quota_cpus = 99;
  EXPECT_EQ(topology.usable_threads(), 4);
}

TEST(Topology, OfThisMachineIsSane) {
  const Topology topology = read_topology();
  EXPECT_FALSE(topology.cores.empty());
  EXPECT_GE(topology.allowed_cpus, static_cast<int>(topology.cores.size()));
  EXPECT_GE(topology.usable_threads(), 1);
}

}  // namespace
}  // namespace cedra

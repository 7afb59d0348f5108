// Sums, tables, and the memory that a machine or its cgroup leaves: from files as the kernel writes
// them.
#include "plan/memory_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace cedra::plan {
namespace {

namespace fs = std::filesystem;

class Machine : public testing::Test {
 protected:
  Machine() {
    root_ = fs::path(testing::TempDir()) /
            (std::string("cedra_plan_") + std::to_string(::getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    write("proc/meminfo",
          "MemTotal:       4000 kB\nMemFree:         100 kB\nMemAvailable:   3000 kB\n");
  }
  ~Machine() override { fs::remove_all(root_); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  int64_t available() const { return available_memory(root_ / "proc", root_ / "cgroup"); }

  fs::path root_;
};

TEST_F(Machine, WithoutACgroupIsWhatTheKernelSays) { EXPECT_EQ(available(), 3000 * 1024); }

TEST_F(Machine, Version2LimitsCountWithoutFilePages) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "1000000\n");
  write("cgroup/a/b/memory.current", "900000\n");
  EXPECT_EQ(available(), 100000);
  write("cgroup/a/b/memory.stat",
        "anon 500000\nfile 400000\ninactive_file 250000\nactive_file 50000\n");
  EXPECT_EQ(available(), 400000);
}

TEST_F(Machine, GroupsAboveBoundAsWell) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "10\n");
  EXPECT_EQ(available(), 3000 * 1024);
  write("cgroup/a/memory.max", "500000\n");
  write("cgroup/a/memory.current", "100000\n");
  EXPECT_EQ(available(), 400000);
  // In a container only the root of its own view exists.
  write("cgroup/memory.max", "300000\n");
  write("cgroup/memory.current", "400000\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(Machine, Version1Limits) {
  write("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:hugetlb,memory:/a\n0::/\n");
  write("cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  write("cgroup/memory/a/memory.usage_in_bytes", "300000\n");
  write("cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
  EXPECT_EQ(available(), 800000);
  // "No limit" there is a number close to 2^63.
  write("cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 3000 * 1024);
}

TEST_F(Machine, ResidentBytesAreAnonymous) {
  write("proc/self/status", "Name:\tcedra\nVmRSS:\t  900 kB\nRssAnon:\t     700 kB\n");
  EXPECT_EQ(resident_bytes(root_ / "proc"), 700 * 1024);
  EXPECT_EQ(resident_bytes(root_ / "nothing"), 0);
  EXPECT_GT(resident_bytes(), 100 * 1024) << "of this very process";
}

TEST(MemoryPlan, AddsUpAndPrints) {
  MemoryPlan plan;
  plan.parts = {
      {"weights", 1000, true, ""}, {"cache", 300, false, "3 blocks"}, {"rest", 20, false, ""}};
  plan.budget = 1 << 20;
  plan.available = 5 << 20;
  plan.context_tokens = 192;
  EXPECT_EQ(plan.taken(), 320);
  EXPECT_EQ(plan.mapped(), 1000);
  const std::string text = plan.to_text();
  for (const char* part :
       {"weights", "(mapped file)", "3 blocks", "budget of 1.0 MiB", "192 tokens"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  const auto json = nlohmann::json::parse(plan.to_json());
  EXPECT_EQ(json["taken_bytes"], 320);
  EXPECT_EQ(json["parts"].size(), 3u);
  EXPECT_EQ(json["parts"][0]["mapped"], true);
  EXPECT_EQ(json["context_tokens"], 192);
}

TEST(MemoryPlan, BytesAreReadable) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(format_bytes(int64_t{5000} << 40), "5000.0 TiB");
}

}  // namespace
}  // namespace cedra::plan

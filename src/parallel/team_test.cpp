// The team: every member runs every task once, in order, for any number of threads, with and
// without spinning; static_part is a partition. Run under TSan too.
#include "parallel/team.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "base/pages.h"
#include "parallel/populate.h"

namespace cedra {
namespace {

TEST(StaticPart, IsAPartitionCutAtGrains) {
  for (const int64_t count : {0, 1, 5, 31, 32, 33, 64, 100, 1000, 5120}) {
    for (const int64_t grain : {1, 4, 16, 32}) {
      for (const int parts : {1, 2, 3, 7, 64}) {
        int64_t at = 0;
        int64_t least = count, greatest = 0;
        for (int i = 0; i < parts; ++i) {
          const Range part = static_part(count, grain, i, parts);
          ASSERT_EQ(part.begin, at);
          ASSERT_LE(part.begin, part.end);
          ASSERT_EQ(part.begin % grain, 0);
          if (i + 1 < parts) {
            ASSERT_EQ(part.end % grain, 0);
          }
          at = part.end;
          least = std::min(least, part.end - part.begin);
          greatest = std::max(greatest, part.end - part.begin);
        }
        ASSERT_EQ(at, count);
        ASSERT_LT(greatest - least, 2 * grain);
      }
    }
  }
}

class TeamOf : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  static TeamOptions options() {
    return {.threads = GetParam().first, .pin = true, .spin_us = GetParam().second};
  }
};
INSTANTIATE_TEST_SUITE_P(ThreadsAndSpin, TeamOf,
                         ::testing::Values(std::pair{1, 50}, std::pair{2, 50}, std::pair{3, 50},
                                           std::pair{8, 50}, std::pair{2, 0}, std::pair{3, 0}));

// Plain (not atomic) counters: a lost hand-over or an overlap of two tasks is a data race for TSan
// and a wrong count otherwise.
TEST_P(TeamOf, ManyDispatchesRunOnceOnEveryMember) {
  Team team(options());
  ASSERT_EQ(team.size(), GetParam().first);
  const bool crowded = GetParam().first > 2 || GetParam().second == 0;
  const int64_t rounds = crowded ? 20000 : 100000;
  struct alignas(64) Counter {
    int64_t value = 0;
  };
  std::vector<Counter> counters(static_cast<size_t>(team.size()));
  int64_t wrong = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    team.run([&](int member) {
      Counter& counter = counters[static_cast<size_t>(member)];
      if (counter.value == round) ++counter.value;
    });
    for (const Counter& counter : counters) wrong += counter.value != round + 1;
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(TeamOf, SleepingWorkersWakeUp) {
  Team team(options());
  std::atomic<int> ran{0};
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than any spin
    team.run([&](int) { ran.fetch_add(1); });
  }
  EXPECT_EQ(ran.load(), 20 * team.size());
}

// The caller sleeps while a worker is slow.
TEST_P(TeamOf, CallerWaitsForSlowMembers) {
  Team team(options());
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> done{0};
    team.run([&](int member) {
      if (member != 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      done.fetch_add(1);
    });
    ASSERT_EQ(done.load(), team.size());
  }
}

TEST_P(TeamOf, ForRangeCoversEveryIndexOnce) {
  Team team(options());
  for (const int64_t count : {0, 1, 15, 16, 17, 1000}) {
    std::vector<int> hits(static_cast<size_t>(count), 0);
    team.for_range(count, 16, [&](int64_t begin, int64_t end, int member) {
      ASSERT_LT(member, team.size());
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    EXPECT_TRUE(std::all_of(hits.begin(), hits.end(), [](int h) { return h == 1; })) << count;
  }
}

TEST_P(TeamOf, CanBeDestroyedAtAnyMoment) {
  for (int round = 0; round < 50; ++round) {
    Team team(options());
    if (round % 3 == 1) team.run([](int) {});
    if (round % 3 == 2) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// In a child process: address space for the stacks of some of the threads only.
TEST(TeamDeathTest, ARefusedThreadIsAnErrorAndTheOthersEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto child = [] {
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (64 << 20);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const Team team({.threads = 1000});
    } catch (const std::system_error&) {
      ::_exit(7);
    }
    ::_exit(1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(7), "");
}

TEST(Team, PopulatesEveryPage) {
  Team team({.threads = 3});
  Result<Pages> pages = Pages::reserve((7 << 20) + 5);
  ASSERT_TRUE(pages.has_value());
  std::ranges::fill(pages->bytes().first(3), uint8_t{9});
  ASSERT_TRUE(populate(team, pages->bytes()).has_value());
  EXPECT_EQ(pages->bytes()[0], 9);
  EXPECT_TRUE(std::ranges::all_of(pages->bytes().subspan(3), [](uint8_t b) { return b == 0; }));
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((pages->bytes().size() + page - 1) / page);
  ASSERT_EQ(::mincore(pages->data(), pages->bytes().size(), resident.data()), 0);
  EXPECT_TRUE(std::ranges::all_of(resident, [](unsigned char r) { return (r & 1) != 0; }));
}

TEST(Team, DefaultsToTheUsableCores) {
  Team team(TeamOptions{});
  EXPECT_GE(team.size(), 1);
  EXPECT_LE(team.size(), static_cast<int>(std::thread::hardware_concurrency()));
}

// Twice the machine's threads and a busy neighbour: a dispatch may cost a scheduler slice, but not
// one after another (an unbounded spin would take minutes here).
TEST(Team, NoCliffWhenOversubscribed) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> neighbours;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < cores; ++i) {
    neighbours.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  Team team({.threads = static_cast<int>(2 * cores), .pin = true, .spin_us = 50});
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 200; ++round) team.run([](int) {});
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  stop = true;
  for (std::thread& neighbour : neighbours) neighbour.join();
  EXPECT_LT(time.count(), 10.0);
}

}  // namespace
}  // namespace cedra

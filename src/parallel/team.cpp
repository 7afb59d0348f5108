// The worker team: one epoch counter that workers wait on, one countdown that the caller waits on;
// both are spun on for a bounded time and then slept on with a futex.
//
// Who writes what: the caller writes task_ and context_ before it advances epoch_; workers read
// them after they saw the new epoch, and the caller does not touch them until remaining_ is zero. A
// side that goes to sleep first counts itself in sleepers_ (or sets caller_sleeps_) and then looks
// again; the other side changes the word first and then looks at that count: with sequentially
// consistent operations at least one of the two sees the other, so no wake-up is lost.
#include "parallel/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>
#include <vector>

#include "parallel/topology.h"

namespace cedra {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRoundsBeforeYield = 4;  // of 32 pauses each: a few microseconds

void pause_cpu() { __builtin_ia32_pause(); }

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr,
          0);
}

// Spins until done() or the time is over; returns done(). After the first microseconds it also
// yields: if the thread it waits for was put on the same core, that one runs at once instead of
// after the spin, and on a core of its own a yield costs less than the clock.
template <class Done>
bool spin_until(Done done, std::chrono::microseconds limit) {
  if (done()) return true;
  if (limit.count() <= 0) return false;
  const auto give_up = Clock::now() + limit;
  for (int round = 0;; ++round) {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause_cpu();
    }
    if (round < kRoundsBeforeYield) continue;
    if (Clock::now() >= give_up) return done();
    sched_yield();
  }
}

void pin_to(int cpu) {
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  if (set == nullptr) return;
  const size_t size = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(size, set);
  CPU_SET_S(cpu, size, set);
  // A refusal only costs locality: the thread stays where the scheduler puts it.
  pthread_setaffinity_np(pthread_self(), size, set);
  CPU_FREE(set);
}

}  // namespace

Range static_part(int64_t count, int64_t grain, int index, int parts) {
  // Whole grains are dealt evenly, the first (grains % parts) members get one more; what is left
  // over of the last grain goes to the last member.
  const int64_t grains = count / grain;
  const int64_t base = grains / parts;
  const int64_t extra = grains % parts;
  auto cut = [&](int64_t i) { return (i * base + std::min<int64_t>(i, extra)) * grain; };
  return {cut(index), index + 1 == parts ? count : cut(index + 1)};
}

struct Team::Impl {
  alignas(64) std::atomic<uint32_t> epoch{0};
  std::atomic<uint32_t> sleepers{0};
  Task task = nullptr;
  void* context = nullptr;
  bool stop = false;
  alignas(64) std::atomic<uint32_t> remaining{0};
  std::atomic<uint32_t> caller_sleeps{0};
  alignas(64) std::chrono::microseconds spin{0};
  std::vector<std::thread> workers;

  // Also where the system refuses one of the threads.
  ~Impl() {
    stop = true;
    advance();
    for (std::thread& worker : workers) worker.join();
  }

  void work(int member, int cpu) {
    if (cpu >= 0) pin_to(cpu);
    uint32_t seen = 0;
    for (;;) {
      wait_for_epoch(seen);
      ++seen;
      if (stop) return;
      task(context, member);
      if (remaining.fetch_sub(1) == 1 && caller_sleeps.load() != 0) futex_wake(&remaining, 1);
    }
  }

  void wait_for_epoch(uint32_t seen) {
    auto changed = [&] { return epoch.load(std::memory_order_acquire) != seen; };
    if (spin_until(changed, spin)) return;
    sleepers.fetch_add(1);
    while (epoch.load() == seen) futex_wait(&epoch, seen);
    sleepers.fetch_sub(1);
  }

  void advance() {
    epoch.fetch_add(1);
    if (sleepers.load() != 0) futex_wake(&epoch, INT_MAX);
  }

  void wait_for_workers() {
    auto done = [&] { return remaining.load(std::memory_order_acquire) == 0; };
    if (spin_until(done, spin)) return;
    caller_sleeps.store(1);
    for (uint32_t left = remaining.load(); left != 0; left = remaining.load()) {
      futex_wait(&remaining, left);
    }
    caller_sleeps.store(0);
  }
};

Team::Team(const TeamOptions& options) : impl_(std::make_unique<Impl>()) {
  const Topology topology = read_topology();
  const int usable = topology.usable_threads();
  const int threads = options.threads > 0 ? options.threads : usable;
  // More threads than cores: a spinning one would only keep a working one from its core.
  const bool fits = threads <= usable;
  impl_->spin = std::chrono::microseconds(fits ? options.spin_us : 0);
  const bool pin = options.pin && fits;
  for (int member = 1; member < threads; ++member) {
    const int cpu = pin ? topology.cores[static_cast<size_t>(member)] : -1;
    impl_->workers.emplace_back([this, member, cpu] { impl_->work(member, cpu); });
  }
}

Team::~Team() = default;

int Team::size() const { return static_cast<int>(impl_->workers.size()) + 1; }

void Team::dispatch(Task task, void* context) {
  if (impl_->workers.empty()) {
    task(context, 0);
    return;
  }
  impl_->task = task;
  impl_->context = context;
  impl_->remaining.store(static_cast<uint32_t>(impl_->workers.size()), std::memory_order_relaxed);
  impl_->advance();
  task(context, 0);
  impl_->wait_for_workers();
}

}  // namespace cedra

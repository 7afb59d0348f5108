// A fixed team of worker threads, pinned, with a bounded spin before sleeping.
//
// One caller (the engine thread) gives the whole team one function at a time and takes part as
// member 0; run() returns when every member is done. Nothing is allocated per call and no lock is
// taken while members spin. Work is cut statically: the same rows go to the same member every step,
// so caches and memory pages stay where they are, and results cannot depend on timing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace cedra {

struct TeamOptions {
  int threads = 0;   // 0: one per usable physical core, bounded by the cgroup's CPU quota
  bool pin = true;   // bind member i to the i-th usable core
  int spin_us = 50;  // spin this long for work before sleeping; 0: sleep at once
};

struct Range {
  int64_t begin, end;
};

// Part `index` of `parts` of [0, count), cut at multiples of `grain` (the last part takes the
// rest).
Range static_part(int64_t count, int64_t grain, int index, int parts);

class Team {
 public:
  // Throws std::system_error where the system refuses a thread (ulimit -u, pids.max).
  explicit Team(const TeamOptions& options);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const;

  // fn(member) on every member, member = 0 .. size()-1. The caller runs member 0.
  template <class Fn>
  void run(Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    dispatch([](void* context, int member) { (*static_cast<Plain*>(context))(member); },
             const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // fn(begin, end, member) over static parts of [0, count), cut at multiples of grain.
  // Work of fewer than two grains runs on the caller alone, without waking anyone.
  template <class Fn>
  void for_range(int64_t count, int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    if (size() == 1 || count <= grain) {
      fn(int64_t{0}, count, 0);
      return;
    }
    run([&](int member) {
      const Range part = static_part(count, grain, member, size());
      if (part.begin < part.end) fn(part.begin, part.end, member);
    });
  }

 private:
  using Task = void (*)(void* context, int member);
  void dispatch(Task task, void* context);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cedra

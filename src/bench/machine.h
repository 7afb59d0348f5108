// What the machine can do: the ceilings that kernels and steps are compared with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "parallel/team.h"
#include "parallel/topology.h"

namespace cedra::bench {

// The clock of a rate (timing.h).
enum class Clock { kCpu, kWall };

// Bytes per second of plain reading: every member its own part of [data, data + bytes).
double read_rate(Team& team, const uint8_t* data, int64_t bytes, Clock clock = Clock::kCpu);

// A multiply instruction at its rate: twelve independent chains of it on every member.
struct Peak {
  std::string_view instruction;
  double flops = 0;  // per second
};
// Of the instruction that this level multiplies BF16 weights with. The oracle has none: 0.
Peak peak_rate(Team& team, const kernels::Ops& ops);

// Of all caches of the last level together; 0 if unknown.
int64_t last_cache_bytes(const std::filesystem::path& sys = "/sys/devices/system/cpu");

struct NumaNode {
  int id = 0;
  std::string cpus;       // "0-31,64-95"
  std::string distances;  // "10 21"
  int64_t memory_bytes = 0;
};
std::vector<NumaNode> read_numa_nodes(
    const std::filesystem::path& sys = "/sys/devices/system/node");

struct MachineOptions {
  int threads = 0;  // most threads; 0 = one per usable core
  int rounds = 5;
  double gigabytes = 0;  // that a pass reads; 0 = 1, or four times the caches
  // File that is mapped and read warm; empty = one is made in the temporary folder, and removed.
  std::filesystem::path file = {};
};

struct MachineReport {
  struct Value {
    std::string what;  // "read, huge pages"
    int threads = 0;
    double value = 0;  // median over rounds
    std::string unit;  // "GB/s", "GFLOP/s", "us"
  };
  std::string processor;
  Topology topology;
  std::vector<NumaNode> nodes;
  int64_t cache_bytes = 0;
  double gigabytes = 0;
  int rounds = 0;
  std::vector<Value> values;

  std::string to_text() const;
  std::string to_json() const;
};

// `progress` gets what is measured next.
Result<MachineReport> measure_machine(const MachineOptions& options,
                                      const std::function<void(const std::string&)>& progress = {});

// "model name" of /proc/cpuinfo.
std::string processor_name();

// The default working set: beyond the caches.
double default_gigabytes();

}  // namespace cedra::bench

#include "bench/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/mapped_file.h"
#include "bench/buffer.h"
#include "bench/timing.h"

namespace cedra::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kCachesToPass = 4;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Entries NAME0, NAME1, ... of a folder, by number.
std::vector<std::pair<int, fs::path>> numbered(const fs::path& folder, std::string_view name) {
  std::vector<std::pair<int, fs::path>> out;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(name)) continue;
    int number = 0;
    const char* const end = file.data() + file.size();
    const auto [stop, bad] = std::from_chars(file.data() + name.size(), end, number);
    if (bad == std::errc() && stop == end) out.emplace_back(number, entry.path());
  }
  std::ranges::sort(out);
  return out;
}

// A file to map; removed at the end if it was made here.
class TestFile {
 public:
  static Result<std::unique_ptr<TestFile>> create(const fs::path& given, const Buffer& content) {
    std::unique_ptr<TestFile> out(new TestFile);
    out->path_ = given;
    if (given.empty()) {
      std::string name = (fs::temp_directory_path() / "cedra-bench-XXXXXX").string();
      const int descriptor = ::mkstemp(name.data());
      if (descriptor < 0) return err(Code::kIo, "{}: cannot be made", name);
      ::close(descriptor);
      out->path_ = name;
      out->made_ = true;
      std::ofstream file(out->path_, std::ios::binary);
      file.write(reinterpret_cast<const char*>(content.data()), content.size());
      file.close();
      if (!file) return err(Code::kIo, "{}: cannot be written; name a file with --file", name);
    }
    return out;
  }
  ~TestFile() {
    std::error_code failure;
    if (made_) fs::remove(path_, failure);
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  TestFile() = default;
  fs::path path_;
  bool made_ = false;
};

// Microseconds of a call of the team that does nothing.
double barrier_microseconds(Team& team) {
  constexpr int kCalls = 2000;
  const double begin = wall_seconds();
  for (int i = 0; i < kCalls; ++i) team.run([](int) {});
  return (wall_seconds() - begin) / kCalls * 1e6;
}

// The same after the members have gone to sleep.
double wake_microseconds(Team& team) {
  constexpr int kCalls = 20;
  double seconds = 0;
  for (int i = 0; i < kCalls; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const double begin = wall_seconds();
    team.run([](int) {});
    seconds += wall_seconds() - begin;
  }
  return seconds / kCalls * 1e6;
}

std::vector<int> thread_counts(int most) {
  std::vector<int> out;
  for (int threads = 1; threads < most; threads *= 2) out.push_back(threads);
  out.push_back(most);
  return out;
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    return colon == line.npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

int64_t last_cache_bytes(const fs::path& sys) {
  int64_t bytes = 0;
  std::set<std::string> seen;
  for (const auto& [number, cpu] : numbered(sys, "cpu")) {
    const auto levels = numbered(cpu / "cache", "index");
    if (levels.empty()) continue;
    const fs::path& last = levels.back().second;
    if (!seen.insert(line_of(last / "shared_cpu_list")).second) continue;
    const std::string size = line_of(last / "size");  // "32768K"
    int64_t kilobytes = 0;
    std::from_chars(size.data(), size.data() + size.size(), kilobytes);
    bytes += kilobytes << 10;
  }
  return bytes;
}

std::vector<NumaNode> read_numa_nodes(const fs::path& sys) {
  std::vector<NumaNode> nodes;
  for (const auto& [number, folder] : numbered(sys, "node")) {
    NumaNode node{.id = number,
                  .cpus = line_of(folder / "cpulist"),
                  .distances = line_of(folder / "distance")};
    std::istringstream words(line_of(folder / "meminfo"));  // "Node 0 MemTotal: 24689620 kB"
    std::string word;
    int64_t kilobytes = 0;
    words >> word >> word >> word >> kilobytes;
    node.memory_bytes = kilobytes << 10;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

double default_gigabytes() {
  return std::max(1.0, kCachesToPass * static_cast<double>(last_cache_bytes()) * 1e-9);
}

Result<MachineReport> measure_machine(const MachineOptions& options,
                                      const std::function<void(const std::string&)>& progress) {
  const auto show = [&](const std::string& what) {
    if (progress) progress(what);
  };
  MachineReport report;
  report.processor = processor_name();
  report.topology = read_topology();
  report.nodes = read_numa_nodes();
  report.cache_bytes = last_cache_bytes();
  report.gigabytes = options.gigabytes > 0 ? options.gigabytes : default_gigabytes();
  report.rounds = options.rounds;
  const int most = options.threads > 0 ? options.threads : report.topology.usable_threads();
  const auto bytes = static_cast<int64_t>(report.gigabytes * 1e9) / 4096 * 4096;

  show("memory");
  CEDRA_ASSIGN(Buffer huge, Buffer::create(bytes, Pages::kHuge));
  CEDRA_ASSIGN(Buffer small, Buffer::create(bytes, Pages::kSmall));
  {
    Team team({.threads = most});
    fill_with_weights(team, huge);
    fill_with_weights(team, small);
  }
  show("file");
  CEDRA_ASSIGN(const auto file, TestFile::create(options.file, huge));
  CEDRA_ASSIGN(const MappedFile mapped, MappedFile::open(file->path()));
  const auto mapped_bytes = std::min(bytes, static_cast<int64_t>(mapped.bytes().size()));
  CEDRA_TRY(mapped.populate(0, static_cast<size_t>(mapped_bytes)));

  for (const int threads : thread_counts(most)) {
    Team team({.threads = threads});
    struct Measurement {
      std::string what, unit;
      std::function<double()> run;
      std::vector<double> samples = {};
    };
    std::vector<Measurement> all = {
        {"read, huge pages", "GB/s", [&] { return read_rate(team, huge.data(), bytes) * 1e-9; }},
        {"read, 4 KiB pages", "GB/s", [&] { return read_rate(team, small.data(), bytes) * 1e-9; }},
        {"read, mapped file, warm", "GB/s",
         [&] { return read_rate(team, mapped.bytes().data(), mapped_bytes) * 1e-9; }},
    };
    for (const kernels::Ops* ops : kernels::available_ops()) {
      const Peak peak = peak_rate(team, *ops);
      if (peak.flops == 0) continue;
      all.push_back({fmt::format("multiply, {}", peak.instruction), "GFLOP/s",
                     [&team, ops] { return peak_rate(team, *ops).flops * 1e-9; }});
    }
    all.push_back({"barrier", "us", [&] { return barrier_microseconds(team); }});
    all.push_back({"barrier after 1 ms of rest", "us", [&] { return wake_microseconds(team); }});
    for (int round = 0; round < options.rounds; ++round) {
      for (Measurement& one : all) {
        show(fmt::format("{} threads, round {}: {}", threads, round + 1, one.what));
        one.samples.push_back(one.run());
      }
    }
    for (const Measurement& one : all) {
      report.values.push_back({one.what, threads, median(one.samples), one.unit});
    }
  }
  return report;
}

std::string MachineReport::to_text() const {
  std::string out = fmt::format(
      "{}\n{} usable cores, {} CPUs allowed, quota {}, {} MiB last cache\n", processor,
      topology.cores.size(), topology.allowed_cpus,
      topology.quota_cpus > 0 ? fmt::format("{:.1f}", topology.quota_cpus) : std::string("none"),
      cache_bytes >> 20);
  for (const NumaNode& node : nodes) {
    out += fmt::format("NUMA node {}: CPUs {}, {:.1f} GiB, distances {}\n", node.id, node.cpus,
                       static_cast<double>(node.memory_bytes) / (1 << 30), node.distances);
  }
  out += fmt::format("medians of {} rounds over {:.1f} GB\n", rounds, gigabytes);
  for (const Value& value : values) {
    out += fmt::format("{:30} {:4} thread(s) {:10.2f} {}\n", value.what, value.threads, value.value,
                       value.unit);
  }
  return out;
}

std::string MachineReport::to_json() const {
  nlohmann::ordered_json root = {{"processor", processor},
                                 {"cores", topology.cores.size()},
                                 {"allowed_cpus", topology.allowed_cpus},
                                 {"quota_cpus", topology.quota_cpus},
                                 {"last_cache_bytes", cache_bytes},
                                 {"gigabytes", gigabytes},
                                 {"rounds", rounds},
                                 {"numa_nodes", nlohmann::ordered_json::array()},
                                 {"values", nlohmann::ordered_json::array()}};
  for (const NumaNode& node : nodes) {
    root["numa_nodes"].push_back({{"id", node.id},
                                  {"cpus", node.cpus},
                                  {"memory_bytes", node.memory_bytes},
                                  {"distances", node.distances}});
  }
  for (const Value& value : values) {
    root["values"].push_back({{"what", value.what},
                              {"threads", value.threads},
                              {"value", value.value},
                              {"unit", value.unit}});
  }
  return root.dump(1) + "\n";
}

}  // namespace cedra::bench

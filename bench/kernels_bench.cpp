// Rates of the matrix kernels against what the machine can do, in one process: every round measures
// the plain read rate and the peaks of the multiply instructions again, right before the kernels,
// and the table shows medians over rounds of the ratio inside a round. Every call takes a fresh
// matrix out of a working set far larger than the caches.
//
// Time is CPU time, the longest of the members': neighbours on the machine then cost bandwidth, but
// not whole time slices.
//
//   kernels_bench [--level NAME] [--threads N] [--rounds N] [--gigabytes X] [--only TEXT]
#include <fmt/format.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "parallel/team.h"

namespace {

using cedra::bf16;
using cedra::kernels::Matrix;
using cedra::kernels::MatrixFormat;

struct Options {
  std::string level;
  int threads = 1;
  int rounds = 5;
  double gigabytes = 1.0;
  std::string only;
};

struct Shape {
  const char* name;
  MatrixFormat format;
  int64_t rows, cols;
};

// Matrices of the release: experts, wq_b, wo_b, a slice of the head.
constexpr Shape kShapes[] = {
    {"fp4 2304x5120", MatrixFormat::kFp4Row32, 2304, 5120},
    {"fp4 5120x2304", MatrixFormat::kFp4Row32, 5120, 2304},
    {"fp8 32768x1280", MatrixFormat::kFp8Tile32, 32768, 1280},
    {"fp8 5120x8192", MatrixFormat::kFp8Tile32, 5120, 8192},
    {"bf16 4096x5120", MatrixFormat::kBf16, 4096, 5120},
};
constexpr int64_t kBatches[] = {1, 2, 4, 8, 16, 64, 256, 512};
constexpr int64_t kMostRows = 512;
constexpr int64_t kMostCols = 8192;

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs fn(member) on the team; returns the longest CPU time of a member.
template <class Fn>
double timed(cedra::Team& team, Fn fn) {
  std::vector<double> seconds(static_cast<size_t>(team.size()));
  team.run([&](int member) {
    const double begin = cpu_seconds();
    fn(member);
    seconds[static_cast<size_t>(member)] = cpu_seconds() - begin;
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

// ---- ceilings ----------------------------------------------------------------------------------

__attribute__((target("avx2"))) uint64_t read_all(const uint8_t* p, int64_t n) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i + 128 <= n; i += 128) {
    const auto* q = reinterpret_cast<const __m256i*>(p + i);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2112), _MM_HINT_T0);
    a = _mm256_xor_si256(a, _mm256_loadu_si256(q));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(q + 1));
    c = _mm256_xor_si256(c, _mm256_loadu_si256(q + 2));
    d = _mm256_xor_si256(d, _mm256_loadu_si256(q + 3));
  }
  const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0));
}

// Sixteen independent chains of one instruction; operations per call: 16 * count.
#define CEDRA_CHAIN_LOOP(ins, reg)                                                         \
  "1:\n" ins " %%" reg "30,%%" reg "31,%%" reg "0\n" ins " %%" reg "30,%%" reg "31,%%" reg \
  "1\n" ins " %%" reg "30,%%" reg "31,%%" reg "2\n" ins " %%" reg "30,%%" reg "31,%%" reg  \
  "3\n" ins " %%" reg "30,%%" reg "31,%%" reg "4\n" ins " %%" reg "30,%%" reg "31,%%" reg  \
  "5\n" ins " %%" reg "30,%%" reg "31,%%" reg "6\n" ins " %%" reg "30,%%" reg "31,%%" reg  \
  "7\n" ins " %%" reg "30,%%" reg "31,%%" reg "8\n" ins " %%" reg "30,%%" reg "31,%%" reg  \
  "9\n" ins " %%" reg "30,%%" reg "31,%%" reg "10\n" ins " %%" reg "30,%%" reg "31,%%" reg \
  "11\n"                                                                                   \
  "dec %0\njnz 1b\n"
#define CEDRA_CLOBBERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"

__attribute__((target("avx512f,avx512bf16"))) void chain_bf16(int64_t count) {
  asm volatile(CEDRA_CHAIN_LOOP("vdpbf16ps", "zmm") : "+r"(count) : : CEDRA_CLOBBERS);
}
// Four tiles of sums, 16 x 16 x 32 products each. The table of levels asked for the permission.
struct TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
};
void chain_tiles(int64_t count) {
  const TileConfig config;
  asm volatile("ldtilecfg %0" : : "m"(config));
  asm volatile("tilezero %%tmm4\ntilezero %%tmm5\n" ::);
  for (int64_t i = 0; i < count; i += 4) {
    asm volatile(
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm0\ntdpbf16ps %%tmm5, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\ntdpbf16ps %%tmm5, %%tmm4, %%tmm3\n" ::);
  }
  asm volatile("tilerelease");
}
__attribute__((target("avx2,fma"))) void chain_fma256(int64_t count) {
#define CEDRA_FMA256(r) "vfmadd231ps %%ymm14,%%ymm15,%%ymm" #r "\n"
  asm volatile("1:\n" CEDRA_FMA256(0) CEDRA_FMA256(1) CEDRA_FMA256(2) CEDRA_FMA256(3)
                   CEDRA_FMA256(4) CEDRA_FMA256(5) CEDRA_FMA256(6) CEDRA_FMA256(7) CEDRA_FMA256(8)
                       CEDRA_FMA256(9) CEDRA_FMA256(10) CEDRA_FMA256(11) "dec %0\njnz 1b\n"
               : "+r"(count)
               :
               : CEDRA_CLOBBERS);
}

double chain_flops(cedra::Team& team, void (*chain)(int64_t), double flops_per_instruction) {
  constexpr int64_t kCount = 4'000'000;
  const double seconds = timed(team, [&](int) { chain(kCount); });
  return 12.0 * kCount * flops_per_instruction * team.size() / seconds;
}

// ---- kernels -----------------------------------------------------------------------------------

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        ops_(*cedra::kernels::find_ops(options.level)),
        team_({.threads = options.threads}) {
    bytes_ = static_cast<int64_t>(options.gigabytes * 1e9) / 4096 * 4096;
    void* memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    madvise(memory, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
    pool_ = static_cast<uint8_t*>(memory);
    // Bytes that are finite in every format: E4M3 0x10..0x5F with both signs; as BF16 and as
    // nibbles they are ordinary numbers too.
    std::mt19937_64 random(1);
    for (int64_t i = 0; i < bytes_; i += 8) {
      uint64_t word = random();
      word = (word & 0xBFBFBFBFBFBFBFBFu) | 0x1010101010101010u;
      std::memcpy(pool_ + i, &word, 8);
    }
    scales_.assign(static_cast<size_t>(5120) * 256, 120);
    std::normal_distribution<float> normal;
    x_.resize(static_cast<size_t>(kMostRows * kMostCols) + 32);
    for (bf16& value : x_) value = cedra::to_bf16(normal(random));
    aligned_x_ = x_.data() + (64 - reinterpret_cast<uintptr_t>(x_.data()) % 64) % 64 / sizeof(bf16);
    y_.resize(static_cast<size_t>(kMostRows * 32768));
  }
  ~Bench() { munmap(pool_, static_cast<size_t>(bytes_)); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run() {
    fmt::print("level {}, {} thread(s), {} rounds, {:.1f} GB\n", ops_.name, team_.size(),
               options_.rounds, static_cast<double>(bytes_) / 1e9);
    for (int round = 0; round < options_.rounds; ++round) {
      for (const Shape& shape : kShapes) {
        if (std::string(shape.name).find(options_.only) == std::string::npos) continue;
        const double read = read_rate();
        const double peak = peak_flops();
        samples_["read GB/s"].push_back(read / 1e9);
        samples_["peak GFLOP/s"].push_back(peak / 1e9);
        for (const int64_t batch : kBatches) measure(shape, batch, read, peak);
      }
    }
    for (auto& [name, values] : samples_) {
      std::sort(values.begin(), values.end());
      fmt::print("{:34} median {:8.3f}   least {:8.3f}   most {:8.3f}\n", name,
                 values[values.size() / 2], values.front(), values.back());
    }
  }

 private:
  double read_rate() {
    const int64_t part = bytes_ / team_.size();
    uint64_t sink = 0;
    const double seconds = timed(team_, [&](int member) {
      const uint64_t sum = read_all(pool_ + member * part, part);
      if (member == 0) sink = sum;
    });
    if (sink == 42) fmt::print(" ");
    return static_cast<double>(part * team_.size()) / seconds;
  }

  // The multiply instruction that the level uses on BF16 weights.
  double peak_flops() {
    if (ops_.name == "amx") {
      constexpr int64_t kCount = 2'000'000;
      const double seconds = timed(team_, [&](int) { chain_tiles(kCount); });
      return 16384.0 * kCount * team_.size() / seconds;
    }
    if (ops_.name == "avx512") return chain_flops(team_, chain_bf16, 64);
    return chain_flops(team_, chain_fma256, 16);
  }

  static int64_t bytes_of(const Shape& shape) {
    const int64_t elements = shape.rows * shape.cols;
    switch (shape.format) {
      case MatrixFormat::kFp4Row32:
        return elements / 2;
      case MatrixFormat::kFp8Tile32:
        return elements;
      case MatrixFormat::kBf16:
        return 2 * elements;
      default:
        return 4 * elements;
    }
  }
  static int64_t scale_bytes_of(const Shape& shape) {
    const int64_t blocks = shape.rows * shape.cols / 32;
    return shape.format == MatrixFormat::kFp4Row32    ? blocks
           : shape.format == MatrixFormat::kFp8Tile32 ? blocks / 32
                                                      : 0;
  }

  void measure(const Shape& shape, int64_t batch, double read, double peak) {
    const int64_t size = bytes_of(shape);
    const double flops = 2.0 * static_cast<double>(shape.rows * shape.cols * batch);
    // About 80 ms at the ceilings.
    const double ideal = std::max(static_cast<double>(size) / read, flops / peak);
    const auto calls = static_cast<int64_t>(std::max(1.0, 0.08 / ideal));
    const double seconds = timed(team_, [&](int member) {
      int64_t offset = next_;
      for (int64_t call = 0; call < calls; ++call) {
        if (offset + size > bytes_) offset = 0;
        cedra::kernels::MatmulJob job;
        job.w = {shape.format, pool_ + offset, scales_.data(), shape.rows, shape.cols};
        job.x = aligned_x_;
        job.x_stride = shape.cols;
        job.rows = batch;
        const cedra::Range part = cedra::static_part(shape.rows, 32, member, team_.size());
        job.n_begin = part.begin;
        job.n_end = part.end;
        job.y_bf16 = y_.data();
        job.y_stride = shape.rows;
        ops_.matmul(job);
        offset += size;
      }
    });
    next_ += calls * size;
    if (next_ + size > bytes_) next_ = 0;
    const double bytes =
        static_cast<double>(size + scale_bytes_of(shape)) * static_cast<double>(calls);
    const std::string name = fmt::format("{} M={:3}", shape.name, batch);
    samples_[name + " of read"].push_back(bytes / seconds / read);
    samples_[name + " of peak"].push_back(flops * static_cast<double>(calls) / seconds / peak);
    samples_[name + " GFLOP/s"].push_back(flops * static_cast<double>(calls) / seconds / 1e9);
  }

  Options options_;
  const cedra::kernels::Ops& ops_;
  cedra::Team team_;
  uint8_t* pool_ = nullptr;
  int64_t bytes_ = 0;
  int64_t next_ = 0;
  std::vector<uint8_t> scales_;
  std::vector<bf16> x_, y_;
  const bf16* aligned_x_ = nullptr;
  std::map<std::string, std::vector<double>> samples_;
};

}  // namespace

int main(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    const char* value = arguments[i + 1];
    if (name == "--level") options.level = value;
    if (name == "--threads") options.threads = std::atoi(value);
    if (name == "--rounds") options.rounds = std::atoi(value);
    if (name == "--gigabytes") options.gigabytes = std::atof(value);
    if (name == "--only") options.only = value;
  }
  if (cedra::kernels::find_ops(options.level) == nullptr) {
    fmt::print(stderr, "this machine has no level called \"{}\"\n", options.level);
    return 1;
  }
  Bench(options).run();
  return 0;
}

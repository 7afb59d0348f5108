// The plain read and the multiply chains (machine.h). Not kernels: nothing here is used to compute.
#include <emmintrin.h>

#include "bench/machine.h"
#include "bench/timing.h"

namespace cedra::bench {
namespace {

uint64_t read_all(const uint8_t* p, int64_t n) {
  __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
  for (int64_t i = 0; i + 64 <= n; i += 64) {
    const auto* q = reinterpret_cast<const __m128i*>(p + i);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2048), _MM_HINT_T0);
    a = _mm_xor_si128(a, _mm_loadu_si128(q));
    b = _mm_xor_si128(b, _mm_loadu_si128(q + 1));
    c = _mm_xor_si128(c, _mm_loadu_si128(q + 2));
    d = _mm_xor_si128(d, _mm_loadu_si128(q + 3));
  }
  const __m128i sum = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(sum));
}

// Twelve independent chains of one instruction. Registers are zeroed first: no denormals, no NaN.
#define CEDRA_STEP(ins, reg, n) ins " %%" reg "14,%%" reg "15,%%" reg #n "\n"
#define CEDRA_CHAINS(ins, reg)                                                             \
  "vzeroall\n1:\n" CEDRA_STEP(ins, reg, 0) CEDRA_STEP(ins, reg, 1) CEDRA_STEP(ins, reg, 2) \
      CEDRA_STEP(ins, reg, 3) CEDRA_STEP(ins, reg, 4) CEDRA_STEP(ins, reg, 5)              \
          CEDRA_STEP(ins, reg, 6) CEDRA_STEP(ins, reg, 7) CEDRA_STEP(ins, reg, 8)          \
              CEDRA_STEP(ins, reg, 9) CEDRA_STEP(ins, reg, 10)                             \
                  CEDRA_STEP(ins, reg, 11) "dec %0\njnz 1b\nvzeroupper\n"
// The lower parts stand for the whole registers.
#define CEDRA_CLOBBERS                                                                     \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc"
constexpr double kChains = 12;

void chain_fma(int64_t count) {
  asm volatile(CEDRA_CHAINS("vfmadd231ps", "ymm") : "+r"(count) : : CEDRA_CLOBBERS);
}

void chain_bf16(int64_t count) {
  asm volatile(CEDRA_CHAINS("vdpbf16ps", "zmm") : "+r"(count) : : CEDRA_CLOBBERS);
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
  for (int64_t i = 0; i < count; ++i) {
    asm volatile(
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm0\ntdpbf16ps %%tmm5, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\ntdpbf16ps %%tmm5, %%tmm4, %%tmm3\n" ::);
  }
  asm volatile("tilerelease");
}

double chain_rate(Team& team, void (*chain)(int64_t), double flops_per_count) {
  constexpr int64_t kCount = 2'000'000;
  const double seconds = team_seconds(team, [&](int) { chain(kCount); });
  return flops_per_count * kCount * team.size() / seconds;
}

}  // namespace

double read_rate(Team& team, const uint8_t* data, int64_t bytes, Clock clock) {
  const int64_t part = bytes / team.size();
  std::vector<uint64_t> sums(static_cast<size_t>(team.size()));
  const double begin = wall_seconds();
  const double cpu = team_seconds(team, [&](int member) {
    sums[static_cast<size_t>(member)] = read_all(data + member * part, part);
  });
  const double seconds = clock == Clock::kCpu ? cpu : wall_seconds() - begin;
  // The sums are a result, so that the reads are not left out.
  volatile uint64_t keep = 0;
  for (const uint64_t sum : sums) keep = keep ^ sum;
  return static_cast<double>(part * team.size()) / seconds;
}

Peak peak_rate(Team& team, const kernels::Ops& ops) {
  if (ops.name == "amx") return {"tdpbf16ps", chain_rate(team, chain_tiles, 4 * 16384.0)};
  if (ops.name == "avx512") return {"vdpbf16ps zmm", chain_rate(team, chain_bf16, 64 * kChains)};
  if (ops.name == "avx2") return {"vfmadd231ps ymm", chain_rate(team, chain_fma, 16 * kChains)};
  return {"none", 0};
}

}  // namespace cedra::bench

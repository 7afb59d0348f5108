// Which levels this machine can run: CPUID says what the processor has, XCR0 what the operating
// system saves. Compiled for the baseline, like everything outside avx2/ and avx512/.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "kernels/amx/matmul.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avx512/matmul.h"
#include "kernels/ops.h"
#include "kernels/scalar/scalar.h"

namespace cedra::kernels {
namespace {

struct Features {
  bool avx2 = false;    // AVX2, FMA, F16C, BMI2
  bool avx512 = false;  // the above and AVX-512 F, BW, VL, DQ, VBMI, BF16
  bool amx = false;     // the above and AMX tiles with BF16
};

constexpr bool has(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

uint64_t read_xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux saves tile state only for processes that asked for it (once, for all threads).
bool tiles_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Features detect() {
  Features found;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return found;
  const bool fma = has(c, 12), osxsave = has(c, 27), avx = has(c, 28), f16c = has(c, 29);
  if (!osxsave || !avx) return found;
  const uint64_t saved = read_xcr0();
  const bool ymm_saved = (saved & 0x6) == 0x6;
  const bool zmm_saved = (saved & 0xE6) == 0xE6;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return found;
  const bool avx2 = has(b, 5), bmi2 = has(b, 8);
  const bool avx512 = has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31);  // F, DQ, BW, VL
  const bool vbmi = has(c, 1);
  const bool tiles = has(d, 22) && has(d, 24);  // AMX-BF16, AMX-TILE
  bool bf16_dot = false;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) bf16_dot = has(a, 5);
  found.avx2 = ymm_saved && avx2 && fma && f16c && bmi2;
  found.avx512 = found.avx2 && zmm_saved && avx512 && vbmi && bf16_dot;
  const bool tiles_saved = (saved & 0x60000) == 0x60000;
  found.amx = found.avx512 && tiles && tiles_saved && tiles_permitted();
  return found;
}

struct Levels {
  std::array<const Ops*, 4> table{};
  size_t count = 0;

  Levels() {
    table[count++] = &scalar::ops();
    const Features features = detect();
    if (features.avx2) table[count++] = &avx2::ops();
    if (features.avx512) table[count++] = &avx512::ops();
    if (features.amx) table[count++] = &amx::ops();
  }
};

}  // namespace

std::span<const Ops* const> available_ops() {
  static const Levels kLevels;
  return {kLevels.table.data(), kLevels.count};
}

const Ops* find_ops(std::string_view name) {
  const std::span<const Ops* const> levels = available_ops();
  if (name.empty()) return levels.back();
  for (const Ops* level : levels) {
    if (level->name == name) return level;
  }
  return nullptr;
}

}  // namespace cedra::kernels

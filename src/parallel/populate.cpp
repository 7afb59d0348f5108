#include "parallel/populate.h"

#include <vector>

#include "base/pages.h"

namespace cedra {
namespace {

constexpr int64_t kHugePage = 2 << 20;

}  // namespace

Result<> populate(Team& team, std::span<uint8_t> memory) {
  std::vector<Result<>> taken(static_cast<size_t>(team.size()));
  team.for_range(
      static_cast<int64_t>(memory.size()), kHugePage, [&](int64_t begin, int64_t end, int member) {
        taken[static_cast<size_t>(member)] =
            populate(memory.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
      });
  for (Result<>& part : taken) CEDRA_TRY(std::move(part));
  return {};
}

}  // namespace cedra

#include "engine/scheduler.h"

#include <algorithm>

namespace cedra::engine {
namespace {

// Of a step's rows, kept for prompts while answers are being written.
constexpr int64_t kPromptShare = 8;  // one in eight

}  // namespace

// Prompts always move: with a share of the rows, or, if there is only one row, every other step.
int64_t decode_share(int64_t budget, bool decoding, bool prompts, uint64_t turn) {
  if (!prompts || !decoding) return budget;
  return budget > 1 ? budget - std::max<int64_t>(1, budget / kPromptShare)
                    : static_cast<int64_t>(turn % 2);
}

void schedule(std::span<Runnable> jobs, int64_t budget, uint64_t turn) {
  int64_t prompts = 0;
  for (Runnable& job : jobs) {
    job.take = 0;
    prompts += !job.decoding;
  }
  const int64_t decoding = static_cast<int64_t>(jobs.size()) - prompts;
  const int64_t share = decode_share(budget, decoding > 0, prompts > 0, turn);

  int64_t left = budget;
  const int64_t for_decode = std::min(share, decoding);
  // Counts the steps in which answers get rows, so that the rotation below visits all of them.
  const uint64_t decode_turn = budget > 1 || prompts == 0 ? turn : turn / 2;
  for (int64_t i = 0, taken = 0, seen = 0; taken < for_decode; ++i) {
    Runnable& job = jobs[static_cast<size_t>(i) % jobs.size()];
    if (!job.decoding || job.take > 0) continue;
    // Start at another job each turn when not all of them fit.
    if (for_decode < decoding &&
        seen < static_cast<int64_t>(decode_turn % static_cast<uint64_t>(decoding))) {
      ++seen;
      continue;
    }
    job.take = 1;
    ++taken;
    --left;
  }
  // Drafts, in the jobs' order: who plans them keeps to the share.
  int64_t for_drafts = share - for_decode;
  for (Runnable& job : jobs) {
    if (!job.decoding || job.take == 0) continue;
    const int64_t rows = std::clamp<int64_t>(job.remaining - 1, 0, for_drafts);
    job.take += rows;
    for_drafts -= rows;
    left -= rows;
  }

  // More prompts than rows: one row each, starting at another prompt each turn.
  if (left < prompts) {
    const uint64_t prompt_turn = budget > 1 || decoding == 0 ? turn : turn / 2;
    const int64_t first = static_cast<int64_t>(prompt_turn % static_cast<uint64_t>(prompts));
    for (const bool wrapped : {false, true}) {
      int64_t at = 0;
      for (Runnable& job : jobs) {
        if (job.decoding) continue;
        if (left > 0 && (at >= first) != wrapped) {
          job.take = 1;
          --left;
        }
        ++at;
      }
    }
    return;
  }
  // Even shares; what short prompts leave goes to the ones in front.
  while (left > 0) {
    int64_t hungry = 0;
    for (const Runnable& job : jobs) hungry += !job.decoding && job.take < job.remaining;
    if (hungry == 0) break;
    const int64_t each = std::max<int64_t>(1, left / hungry);
    for (Runnable& job : jobs) {
      if (job.decoding || left == 0) continue;
      const int64_t rows = std::min({each, job.remaining - job.take, left});
      job.take += rows;
      left -= rows;
    }
  }
}

}  // namespace cedra::engine

// Who runs how many rows in the next step. Pure: no clocks, no memory, no model.
//
// Decode rows go first, one per running answer, then drafts, so that a long prompt never stalls
// streams by more than the step's token budget; prompts share what is left evenly, in order of
// priority and arrival, so that a 500K-token prompt cannot hold up short ones behind it.
#pragma once

#include <cstdint>
#include <span>

namespace cedra::engine {

struct Runnable {
  bool decoding = false;  // one row or more; otherwise a prompt
  int64_t remaining = 0;  // rows to go; while decoding, one and the drafts to verify
  int64_t take = 0;       // out: rows in this step
};

// Rows that answers may take of a step, of which each needs one. `decoding`, `prompts`: whether
// there are such jobs.
int64_t decode_share(int64_t budget, bool decoding, bool prompts, uint64_t turn);

// Fills `take`. `jobs` are in order of priority and arrival; the sum of takes is at most `budget`,
// and at least 1 if there is a job. `turn` counts steps: it rotates who waits when the budget is
// smaller than the number of decoding jobs.
void schedule(std::span<Runnable> jobs, int64_t budget, uint64_t turn);

}  // namespace cedra::engine

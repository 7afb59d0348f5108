// What the engine takes is what its plan says, and a step takes nothing. A program of its own: it
// looks at the memory of the whole process and counts every operator new in it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <thread>

#include "engine/engine_rig.h"
#include "plan/memory_plan.h"

// counting_new.cpp: calls of operator new in this process so far.
int64_t allocations();

namespace cedra::engine::testing {
namespace {

// Counts what happens between two of its calls.
class Quiet final : public Sink {
 public:
  void on_prefill(int64_t done, int64_t total) override {
    // From the second chunk to the last: admission is over, the slot is in use.
    if (prefill_begin < 0) prefill_begin = allocations();
    if (done == total) prefill_end = allocations();
  }
  bool on_token(const Token&) override {
    ++tokens;
    if (tokens == 5) decode_begin = allocations();
    if (tokens == 105) decode_end = allocations();
    return true;
  }
  void on_finish(const Finish&) override { finished = true; }

  int64_t prefill_begin = -1, prefill_end = -1, decode_begin = -1, decode_end = -1;
  int64_t tokens = 0;
  std::atomic<bool> finished{false};
};

// Two requests, one after the other: cold, then with a hit.
void expect_quiet(const Options& options) {
  const Loaded loaded = load_engine(kTiny, options);
  for (int round = 0; round < 2; ++round) {
    const auto sink = std::make_shared<Quiet>();
    Request request = greedy_request(random_prompt(1, 250), 120);
    request.sampling.temperature = 1;
    request.sampling.frequency_penalty = 0.5;
    request.sampling.seed = 1;
    request.sampling.top_logprobs = -1;
    ASSERT_TRUE(loaded.engine->submit(std::move(request), sink).has_value());
    while (!sink->finished) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(sink->prefill_end - sink->prefill_begin, 0) << "in prefill";
    EXPECT_EQ(sink->decode_end - sink->decode_begin, 0) << "in 100 decode steps";
    EXPECT_EQ(sink->tokens, 120);
  }
}

TEST(EngineMemory, AStepAllocatesNothing) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kBounded}) {
    Options options = small_options(mode);
    options.threads = 2;
    expect_quiet(options);
  }
}

// Drafts of a request with rules need copies of its state.
TEST(EngineMemory, AStepWithDraftsAllocatesNothing) {
  for (const DraftSampling drafts : {DraftSampling::kGreedy, DraftSampling::kProbabilistic}) {
    for (const RejectionMethod rejection : {RejectionMethod::kStandard, RejectionMethod::kBlock}) {
      Options options = small_options(PrefillMode::kBounded);
      options.threads = 2;
      options.speculative.num_speculative_tokens = 3;
      options.speculative.enable_adaptive_verification = false;
      options.speculative.draft_sample_method = drafts;
      options.speculative.rejection_sample_method = rejection;
      expect_quiet(options);
    }
  }
}

// Steps of all rows, all slots in use, penalties. What is planned and not used here: the prompts of
// requests that wait, and pixels of images and grammars, which are left out.
// Compared is the anonymous resident memory of the process (weights are file pages) with the plan.
class PlannedMemory : public ::testing::TestWithParam<PrefillMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PlannedMemory,
                         ::testing::Values(PrefillMode::kExact, PrefillMode::kBounded));

TEST_P(PlannedMemory, IsWhatTheLoadTakes) {
  Options options;
  options.threads = 2;
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 4096;
  options.max_model_len = 1024;
  options.block_size = 16;
  options.prefill_mode = GetParam();
  options.memory_budget = int64_t{1} << 30;
  options.max_queue = 1024;
  ::malloc_trim(0);  // what the tests before left on the heap is not the program's
  const Loaded loaded = load_engine(CEDRA_SOURCE_DIR "/models/tiny", options);
  int64_t planned = loaded.plan.taken();
  for (const plan::Part& part : loaded.plan.parts) {
    if (part.name == "pixels of images" || part.name == "grammars") planned -= part.bytes;
  }
  int64_t peak = 0;
  const auto wave = [&](uint32_t seed) {
    std::vector<Ticket> tickets;
    for (uint32_t i = 0; i < 64; ++i) {
      Request request = greedy_request(random_prompt(seed + i, 490), 8);
      request.sampling.temperature = 1;
      request.sampling.presence_penalty = 0.1;
      request.sampling.top_logprobs = -1;
      tickets.push_back(submit(*loaded.engine, std::move(request)));
    }
    for (const Ticket& ticket : tickets) {
      ticket.sink->wait();
      peak = std::max(peak, plan::resident_bytes());
    }
  };
  wave(0);
  const int64_t settled = plan::resident_bytes();
  wave(9000);
  const int64_t after = plan::resident_bytes();
  const double ratio = static_cast<double>(peak) / static_cast<double>(planned);
  RecordProperty("planned_bytes", std::to_string(planned));
  RecordProperty("peak_bytes", std::to_string(peak));
  std::printf("planned %.1f MiB, peak %.1f MiB: %.3f\n", static_cast<double>(planned) / 1048576,
              static_cast<double>(peak) / 1048576, ratio);
  EXPECT_LE(ratio, 1.03) << loaded.plan.to_text();
  EXPECT_GE(ratio, 0.97) << loaded.plan.to_text();
  EXPECT_LE(after - settled, 256 << 10) << "nothing grows once everything was used";
}

}  // namespace
}  // namespace cedra::engine::testing

// Greedy decoding with drafts against decoding without, at length: 200 prompts of all lengths,
// alone and eight at a time, with joins, leaves and cancellations. Tokens and log probabilities are
// equal.
#include <gtest/gtest.h>

#include "engine/engine_rig.h"

namespace cedra::engine::testing {
namespace {

class ManyPrompts : public ::testing::TestWithParam<std::tuple<std::string, PrefillMode>> {};

TEST_P(ManyPrompts, AloneAndInBatchesAsWithoutDrafts) {
  const auto& [folder, mode] = GetParam();
  Options options = without_cache(small_options(mode));
  options.max_num_seqs = 8;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 200; ++i) {
    requests.push_back(greedy_request(random_prompt(5000 + i, 1 + (31 * i) % 150), 1 + i % 41));
  }
  std::vector<Answer> want;
  {
    const Loaded off = load_engine(folder, options);
    for (const Request& request : requests) want.push_back(ask(*off.engine, request));
  }
  for (const bool adaptive : {false, true}) {
    SCOPED_TRACE(adaptive);
    options.speculative.num_speculative_tokens = kTrainedBlock;
    options.speculative.enable_adaptive_verification = adaptive;
    const Loaded on = load_engine(folder, options);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "alone, request " << i);
      expect_same(ask(*on.engine, requests[i]), want[i]);
    }
    std::vector<Ticket> tickets;
    std::vector<Ticket> leaving;
    for (size_t i = 0; i < requests.size(); ++i) {
      tickets.push_back(submit(*on.engine, requests[i]));
      if (i % 10 == 5) {
        leaving.push_back(
            submit(*on.engine, greedy_request(random_prompt(static_cast<uint32_t>(i), 40), 300)));
      }
      if (i % 20 == 9) {
        leaving.back().sink->wait_tokens(i % 7);
        on.engine->cancel(leaving.back().id);
      }
      if (i % 25 == 24) tickets[i].sink->wait();
    }
    for (const Ticket& ticket : leaving) on.engine->cancel(ticket.id);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "together, request " << i);
      expect_same(tickets[i].sink->wait(), want[i]);
    }
    on.engine->drain(std::chrono::seconds(10));
    EXPECT_EQ(on.engine->stats().cache_blocks_used, 0);
    EXPECT_GT(on.engine->stats().drafts.verified, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ManyPrompts,
                         ::testing::Combine(::testing::Values(kTiny, kDeep),
                                            ::testing::Values(PrefillMode::kExact,
                                                              PrefillMode::kBounded)));

}  // namespace
}  // namespace cedra::engine::testing

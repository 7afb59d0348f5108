// Many requests at once: the same answers in any company, and everything that ends a request early.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "engine/engine_rig.h"

namespace cedra::engine::testing {
namespace {

using namespace std::chrono_literals;

struct Case {
  std::string folder;
  std::string level;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& level : levels()) all.push_back({"tiny", level});
  all.push_back({"deep", levels().back()});
  return all;
}
class Company : public ::testing::TestWithParam<Case> {
 protected:
  std::string folder() const { return CEDRA_SOURCE_DIR "/tests/golden/" + GetParam().folder; }
  bool slow() const { return GetParam().level == "oracle" || GetParam().level == "scalar"; }
};
INSTANTIATE_TEST_SUITE_P(All, Company, ::testing::ValuesIn(cases()), [](const auto& param) {
  return param.param.folder + "_" + param.param.level;
});

// Fault 10: a marked request among 0, 1, 2, 7 and 16 others of mixed lengths.
TEST_P(Company, DoesNotChangeAnAnswer) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kBounded}) {
    Options options = without_cache(small_options(mode));
    options.isa = GetParam().level;
    options.max_num_seqs = 17;
    const Loaded loaded = load_engine(folder(), options);
    const Request marked = greedy_request(random_prompt(3, 90), 8);
    const Answer alone = ask(*loaded.engine, marked);
    for (const uint32_t others : {1, 2, 7, 16}) {
      if (slow() && others > 2) continue;
      SCOPED_TRACE(others);
      std::vector<Ticket> tickets;
      for (uint32_t i = 0; i < others; ++i) {
        tickets.push_back(submit(
            *loaded.engine, greedy_request(random_prompt(50 + i, 1 + 29 * i % 140), 1 + i % 11)));
      }
      expect_same(ask(*loaded.engine, marked), alone);
      for (const Ticket& ticket : tickets) ticket.sink->wait();
    }
  }
}

// Arrivals and cancellations from a seed, prefixes shared, a cache that holds one context: blocks
// are found, evicted and reused all the time.
TEST_P(Company, ArrivalsCancellationsAndEvictionsDoNotChangeAnAnswer) {
  Options options = small_options(PrefillMode::kExact);
  options.isa = GetParam().level;
  options.max_model_len = 192;
  options.window_records = 4;
  options.max_num_batched_tokens = 24;
  const Loaded loaded = load_smallest(folder(), options);
  Options solo_options = without_cache(options);
  solo_options.memory_budget = int64_t{1} << 30;
  const Loaded solo = load_engine(folder(), solo_options);
  std::vector<Request> requests;
  std::vector<Answer> answers;
  const size_t kinds = slow() ? 3 : 10;
  for (uint32_t i = 0; i < kinds; ++i) {
    const auto prompt = join(front(random_prompt(i % 3, 100), 100 - 17 * (i % 5)),
                             random_prompt(60 + i, 1 + 5 * i % 23));
    requests.push_back(greedy_request(prompt, 3 + 7 * i % 40));
    answers.push_back(ask(*solo.engine, requests.back()));
  }
  std::mt19937 random(11);
  struct Open {
    Ticket ticket;
    size_t kind;
    bool cancelled;
  };
  std::vector<Open> open;
  int64_t whole = 0;
  int64_t cut = 0;
  const auto settle = [&](Open& one) {
    const Answer got = one.ticket.sink->wait();
    const Answer& want = answers[one.kind];
    ASSERT_EQ(got.finishes, 1);
    if (got.finish.reason == FinishReason::kCancelled) {
      ASSERT_TRUE(one.cancelled);
      ASSERT_LE(got.tokens.size(), want.tokens.size());
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin()));
      ++cut;
    } else {
      expect_same(got, want);
      ++whole;
    }
  };
  for (int round = 0; round < (slow() ? 12 : 120); ++round) {
    Open one{{}, random() % requests.size(), false};
    one.ticket = submit(*loaded.engine, requests[one.kind]);
    open.push_back(std::move(one));
    if (random() % 3 == 0) {
      Open& victim = open[random() % open.size()];
      if (random() % 2 == 0) victim.ticket.sink->wait_tokens(random() % 5);
      victim.cancelled = true;
      loaded.engine->cancel(victim.ticket.id);
    }
    if (open.size() > 6) {
      settle(open.front());
      open.erase(open.begin());
    }
  }
  for (Open& one : open) settle(one);
  EXPECT_GT(whole, 0);
  EXPECT_GT(cut, 0);
  EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
}

// Found by review: two requests with one prefix compute it at the same time; the first one's blocks
// stay in the cache above the second's. With a cache of one context, the next request needs them.
TEST(Serving, TwinsLeaveNoBlockBehind) {
  Options options = small_options(PrefillMode::kExact);
  options.max_model_len = 128;
  options.max_num_seqs = 2;
  const Loaded loaded = load_smallest(kTiny, options);
  for (int round = 0; round < 6; ++round) {
    const std::vector<int32_t> prefix = random_prompt(static_cast<uint32_t>(round), 32);
    const Ticket a = submit(*loaded.engine, greedy_request(join(prefix, {5}), 1));
    const Ticket b = submit(*loaded.engine, greedy_request(join(prefix, {6}), 31));
    b.sink->wait_tokens(20);
    a.sink->wait();
    const Answer c = ask(*loaded.engine, greedy_request(random_prompt(90, 60), 60));
    EXPECT_EQ(c.tokens.size(), 60u);
    EXPECT_EQ(b.sink->wait().tokens.size(), 31u);
  }
}

// Fault 3: the largest planned request runs to its end; one token more is refused, and the engine
// lives on.
TEST(Serving, TheLargestPlannedContextFillsUpAndOneMoreIsRefused) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kBounded}) {
    const Loaded loaded = load_engine(kTiny, small_options(mode));
    const Answer full = ask(*loaded.engine, greedy_request(random_prompt(1, 400), 112));
    EXPECT_EQ(full.finish.reason, FinishReason::kLength);
    EXPECT_EQ(full.tokens.size(), 112u);
    for (const auto& [prompt, more] : {std::pair{400, 113}, {512, 1}, {513, 1}}) {
      auto sink = std::make_shared<Collector>();
      const auto id = loaded.engine->submit(greedy_request(random_prompt(1, prompt), more), sink);
      ASSERT_FALSE(id.has_value());
      EXPECT_EQ(id.error().code, Code::kTooLarge);
      EXPECT_FALSE(sink->done());
    }
    EXPECT_EQ(ask(*loaded.engine, greedy_request({5}, 1)).tokens.size(), 1u);
  }
}

// Fault 12: contexts shorter than a compression group and than the window, beside others that end.
TEST(Serving, ShortContextsAndEmptyLanes) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kBounded}) {
    const Loaded loaded = load_engine(kTiny, without_cache(small_options(mode)));
    std::vector<Answer> alone;
    for (uint32_t length = 1; length <= 18; ++length) {
      alone.push_back(
          ask(*loaded.engine, greedy_request(random_prompt(length, length), 1 + length % 3)));
    }
    std::vector<Ticket> tickets;
    for (uint32_t length = 1; length <= 18; ++length) {
      tickets.push_back(
          submit(*loaded.engine, greedy_request(random_prompt(length, length), 1 + length % 3)));
    }
    for (size_t i = 0; i < tickets.size(); ++i) expect_same(tickets[i].sink->wait(), alone[i]);
    EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
  }
}

// Fault 28: cancelled in the queue, in prefill, in decode; gone within one chunk.
TEST(Serving, CancellationAtEveryPointTakesOneChunk) {
  Options options = small_options(PrefillMode::kExact);
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = 4;
  const Loaded loaded = load_engine(kTiny, options);
  const Answer want = ask(*loaded.engine, greedy_request(random_prompt(7, 20), 5));
  const Ticket running = submit(*loaded.engine, greedy_request(random_prompt(1, 400), 100));
  const Ticket queued = submit(*loaded.engine, greedy_request(random_prompt(2, 10), 5));
  running.sink->wait_prefill(8);
  loaded.engine->cancel(queued.id);
  EXPECT_EQ(queued.sink->wait().finish.reason, FinishReason::kCancelled);
  EXPECT_EQ(queued.sink->wait().prefilled, 0);
  const int64_t steps = loaded.engine->stats().steps;
  loaded.engine->cancel(running.id);
  const Answer cut = running.sink->wait();
  EXPECT_EQ(cut.finish.reason, FinishReason::kCancelled);
  EXPECT_LT(cut.prefilled, 400);
  EXPECT_LE(loaded.engine->stats().steps, steps + 2) << "the step under way and the one after";
  const Ticket decoding = submit(*loaded.engine, greedy_request(random_prompt(3, 10), 400));
  decoding.sink->wait_tokens(3);
  loaded.engine->cancel(decoding.id);
  EXPECT_EQ(decoding.sink->wait().finish.reason, FinishReason::kCancelled);
  loaded.engine->cancel(decoding.id);  // twice, and unknown ids: nothing
  loaded.engine->cancel(123456);
  expect_same(ask(*loaded.engine, greedy_request(random_prompt(7, 20), 5)), want);
  EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
  EXPECT_EQ(loaded.engine->stats().running, 0);
  EXPECT_EQ(loaded.engine->stats().waiting, 0);
}

// Fault 29: the four rows of n = 4 all go.
TEST(Serving, AllChoicesAreFreed) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  std::vector<Ticket> choices;
  for (uint64_t i = 0; i < 4; ++i) {
    Request request = greedy_request(random_prompt(1, 50), 400);
    request.sampling.temperature = 1;
    request.sampling.seed = i;
    choices.push_back(submit(*loaded.engine, request));
  }
  for (const Ticket& choice : choices) choice.sink->wait_tokens(2);
  EXPECT_EQ(loaded.engine->stats().running, 4);
  for (const Ticket& choice : choices) loaded.engine->cancel(choice.id);
  for (const Ticket& choice : choices)
    EXPECT_EQ(choice.sink->wait().finish.reason, FinishReason::kCancelled);
  EXPECT_EQ(loaded.engine->stats().running, 0);
  EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
}

TEST(Serving, DeadlinesEndRequestsWhereverTheyAre) {
  Options options = small_options(PrefillMode::kExact);
  options.max_num_seqs = 1;
  const Loaded loaded = load_engine(kTiny, options);
  Request running = greedy_request(random_prompt(1, 100), 400);
  running.deadline = std::chrono::steady_clock::now() + 20ms;
  Request queued = greedy_request(random_prompt(2, 100), 400);
  queued.deadline = std::chrono::steady_clock::now() - 1ms;
  const Ticket a = submit(*loaded.engine, running);
  const Ticket b = submit(*loaded.engine, queued);
  EXPECT_EQ(b.sink->wait().finish.reason, FinishReason::kCancelled);
  EXPECT_EQ(b.sink->wait().prefilled, 0);
  const Answer cut = a.sink->wait();
  EXPECT_EQ(cut.finish.reason, FinishReason::kCancelled);
  EXPECT_LT(cut.tokens.size(), 400u);
}

TEST(Serving, LowerPriorityValuesRunFirst) {
  Options options = small_options(PrefillMode::kExact);
  options.max_num_seqs = 1;
  const Loaded loaded = load_engine(kTiny, options);
  const Ticket front = submit(*loaded.engine, greedy_request(random_prompt(1, 200), 100));
  front.sink->wait_prefill(1);
  std::mutex mutex;
  std::vector<int> order;
  struct Order final : Sink {
    Order(std::mutex& m, std::vector<int>& o, int v) : mutex(m), out(o), value(v) {}
    bool on_token(const Token&) override { return true; }
    void on_finish(const Finish&) override {
      const std::lock_guard lock(mutex);
      out.push_back(value);
      done.set_value();
    }
    std::mutex& mutex;
    std::vector<int>& out;
    int value;
    std::promise<void> done;
  };
  std::vector<std::shared_ptr<Order>> sinks;
  for (const int priority : {0, 5, -1, 5, -1, 0}) {
    Request request = greedy_request({5, 6, 7}, 2);
    request.priority = priority;
    sinks.push_back(
        std::make_shared<Order>(mutex, order, priority * 10 + static_cast<int>(sinks.size())));
    ASSERT_TRUE(loaded.engine->submit(request, sinks.back()).has_value());
  }
  loaded.engine->cancel(front.id);
  for (const auto& sink : sinks) sink->done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{-8, -6, 0, 5, 51, 53}));  // within one: as they came
}

TEST(Serving, TheQueueIsBoundedByRequestsAndByTokens) {
  Options options = small_options(PrefillMode::kExact);
  options.max_num_seqs = 1;
  options.max_queue = 2;
  const Loaded loaded = load_engine(kTiny, options);
  const Ticket running = submit(*loaded.engine, greedy_request(random_prompt(1, 100), 400));
  running.sink->wait_prefill(1);
  std::vector<Ticket> waiting;
  for (uint32_t i = 0; i < 2; ++i)
    waiting.push_back(submit(*loaded.engine, greedy_request(random_prompt(i, 9), 1)));
  const auto refused = loaded.engine->submit(greedy_request({5}, 1), std::make_shared<Collector>());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_EQ(loaded.engine->stats().waiting, 2);
  loaded.engine->cancel(waiting[0].id);
  waiting[0].sink->wait();
  waiting.push_back(submit(*loaded.engine, greedy_request({5}, 1)));  // its place is free again
  loaded.engine->cancel(running.id);
  EXPECT_EQ(waiting[1].sink->wait().tokens.size(), 1u);
  EXPECT_EQ(waiting[2].sink->wait().tokens.size(), 1u);

  options.max_queue = 4096;
  const Loaded patient = load_engine(kTiny, options);
  const Ticket front = submit(*patient.engine, greedy_request(random_prompt(1, 400), 100));
  front.sink->wait_prefill(1);
  int64_t queued = 0;
  for (;; ++queued) {  // 2^18 tokens of prompts may wait
    const auto id = patient.engine->submit(greedy_request(random_prompt(1, 500), 12),
                                           std::make_shared<Collector>());
    if (id.has_value()) continue;
    EXPECT_EQ(id.error().code, Code::kExhausted);
    EXPECT_NE(id.error().message.find("prompt tokens wait"), std::string::npos);
    break;
  }
  EXPECT_NEAR(static_cast<double>(queued), (1 << 18) / 500.0, 20);
  patient.engine->drain(0ms);
  EXPECT_EQ(patient.engine->stats().waiting, 0);
}

TEST(Serving, DrainFinishesWhatRunsThenRefuses) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  const Ticket running = submit(*loaded.engine, greedy_request(random_prompt(1, 50), 20));
  loaded.engine->drain(60s);
  EXPECT_TRUE(running.sink->done());
  EXPECT_EQ(running.sink->wait().finish.reason, FinishReason::kLength);
  const auto late = loaded.engine->submit(greedy_request({5}, 1), std::make_shared<Collector>());
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kUnavailable);
}

TEST(Serving, DestructionCancelsWhatIsLeft) {
  Ticket running, queued;
  {
    Options options = small_options(PrefillMode::kExact);
    options.max_num_seqs = 1;
    const Loaded loaded = load_engine(kTiny, options);
    running = submit(*loaded.engine, greedy_request(random_prompt(1, 100), 400));
    queued = submit(*loaded.engine, greedy_request(random_prompt(1, 100), 400));
  }
  EXPECT_EQ(running.sink->wait().finishes, 1);
  EXPECT_EQ(queued.sink->wait().finish.reason, FinishReason::kCancelled);
}

// Any EOS id of generation_config.json ends an answer, unless EOS is ignored.
TEST(Serving, EveryEndIdEnds) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  const Answer free = ask(*loaded.engine, greedy_request(random_prompt(1, 30), 10));
  Request request = greedy_request(random_prompt(1, 30), 10);
  request.sampling.stop_token_ids = {free.tokens[4]};
  const Answer stopped = ask(*loaded.engine, request);
  const auto at = std::ranges::find(free.tokens, free.tokens[4]) - free.tokens.begin();
  EXPECT_EQ(std::ssize(stopped.tokens), at);
  EXPECT_EQ(stopped.finish.stop_token, free.tokens[4]);
  EXPECT_EQ(stopped.finish.usage.completion_tokens, at + 1);
}

// For the thread sanitizer: requests, cancellations and statistics from many threads at once.
TEST(Serving, ManyThreadsSubmitAndCancel) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  const Answer want = ask(*loaded.engine, greedy_request(random_prompt(1, 20), 3));
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 6; ++i) {
        const Ticket ticket = submit(*loaded.engine, greedy_request(random_prompt(1, 20), 3));
        if ((t + i) % 3 == 0) loaded.engine->cancel(ticket.id);
        EXPECT_GE(loaded.engine->stats().cache_blocks_total, 0);
        const Answer got = ticket.sink->wait();
        if (got.finish.reason != FinishReason::kCancelled) expect_same(got, want);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loaded.engine->stats().running, 0);
  EXPECT_EQ(loaded.engine->stats().cache_blocks_used, 0);
}

}  // namespace
}  // namespace cedra::engine::testing

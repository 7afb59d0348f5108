// Speculative decoding changes speed and nothing else: tokens and log probabilities are those of an
// engine without drafts, whatever the drafts are and whoever else runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <map>

#include "engine/engine_rig.h"

namespace cedra::engine {
namespace {

using testing::Answer;
using testing::ask;
using testing::expect_same;
using testing::greedy_request;
using testing::kDeep;
using testing::kTiny;
using testing::load_engine;
using testing::random_prompt;
using testing::small_options;
using testing::submit;
using testing::Ticket;

SpeculativeConfig always(int64_t width) {
  SpeculativeConfig config;
  config.num_speculative_tokens = width;
  config.enable_adaptive_verification = false;
  return config;
}

Options with(Options options, const SpeculativeConfig& config) {
  options.speculative = config;
  return options;
}

// Requests of all kinds of lengths and rules, the same ones for the same count.
std::vector<Request> mixed_requests(int count, bool sampled) {
  std::vector<Request> out;
  for (int i = 0; i < count; ++i) {
    Request request =
        greedy_request(random_prompt(static_cast<uint32_t>(i), 1 + 29 * i % 143), 1 + (7 * i) % 37);
    SamplingParams& s = request.sampling;
    s.top_logprobs = i % 3 == 0 ? 2 : 0;
    if (sampled) {
      s.temperature = i % 4 == 0 ? 0 : 0.2 + 0.1 * (i % 7);
      s.seed = static_cast<uint64_t>(1000 + i);
      s.top_p = i % 2 == 0 ? 0.9 : 1;
      if (i % 5 == 1) s.repetition_penalty = 1.2;
      if (i % 5 == 2) s.frequency_penalty = 0.4;
      if (i % 6 == 3) {
        s.stop_token_ids = {17, 40, 99, 120, 300, 301, 302};
        s.min_tokens = std::min<int64_t>(5, s.max_tokens);
      }
      if (i % 7 == 4) s.logit_bias = {{5, 3.0F}, {9, -2.0F}};
    }
    out.push_back(std::move(request));
  }
  return out;
}

// Right answers, known from an engine without drafts, and what to make of them.
class Prophet final : public DraftForcing {
 public:
  enum class Kind { kAllRight, kFirstWrong, kLastWrong, kRandom };
  explicit Prophet(Kind kind) : kind_(kind) {}
  void add(const Request& request, const Answer& answer) {
    std::vector<int32_t> all = request.prompt;
    all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
    known_.push_back(std::move(all));
  }
  void force(std::span<const int32_t> tokens, std::span<int32_t> drafts) override {
    ++blocks_;
    const auto found = std::ranges::find_if(known_, [&](const auto& all) {
      return all.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), all.begin());
    });
    if (found == known_.end()) {
      lost_ = true;
      return;
    }
    size_t right = drafts.size();
    if (kind_ == Kind::kFirstWrong) right = 0;
    if (kind_ == Kind::kLastWrong) right = drafts.size() - 1;
    if (kind_ == Kind::kRandom) right = random_() % (drafts.size() + 1);
    for (size_t k = 0; k < drafts.size(); ++k) {
      const size_t at = tokens.size() + k;
      const int32_t truth = at < found->size() ? (*found)[at] : 3;
      if (at >= found->size()) ++beyond_;
      drafts[k] = k < right ? truth : (truth + 1 + static_cast<int32_t>(k)) % 440;
    }
  }
  bool lost() const { return lost_; }
  int64_t blocks() const { return blocks_; }
  // Drafts behind the end of an answer, where nothing is right.
  int64_t beyond() const { return beyond_; }

 private:
  Kind kind_;
  std::vector<std::vector<int32_t>> known_;
  std::mt19937 random_{3};
  bool lost_ = false;
  int64_t blocks_ = 0;
  int64_t beyond_ = 0;
};

void expect_no_leaks(Engine& engine) {
  engine.drain(std::chrono::seconds(10));
  EXPECT_EQ(engine.stats().cache_blocks_used, 0);
  EXPECT_EQ(engine.stats().running, 0);
}

using Param = std::tuple<std::string, PrefillMode>;
class Speculative : public ::testing::TestWithParam<Param> {
 protected:
  Options options() const { return small_options(std::get<1>(GetParam())); }
  std::string folder() const { return std::get<0>(GetParam()); }
  std::vector<Answer> plain(const std::vector<Request>& requests) const {
    const Loaded off = load_engine(folder(), testing::without_cache(options()));
    std::vector<Answer> out;
    for (const Request& request : requests) out.push_back(ask(*off.engine, request));
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Speculative,
                         ::testing::Combine(::testing::Values(kTiny, kDeep),
                                            ::testing::Values(PrefillMode::kExact,
                                                              PrefillMode::kBounded)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param) == kTiny ? "tiny" : "deep") +
                                  (std::get<1>(param.param) == PrefillMode::kExact ? "_exact"
                                                                                   : "_bounded");
                         });

// Drafts of the model itself, and forced ones from always right to always wrong, alone and
// together, greedy and with seeds: nothing changes.
TEST_P(Speculative, AnswersAreThoseWithoutDrafts) {
  const std::vector<Request> requests = mixed_requests(14, true);
  const std::vector<Answer> want = plain(requests);
  for (const int64_t width : {1, 5, 7}) {
    SCOPED_TRACE(::testing::Message() << "width " << width);
    const Loaded on = load_engine(folder(), testing::without_cache(with(options(), always(width))));
    std::vector<Ticket> tickets;
    for (const Request& request : requests) tickets.push_back(submit(*on.engine, request));
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      expect_same(tickets[i].sink->wait(), want[i]);
      EXPECT_EQ(tickets[i].sink->wait().finish.reason, want[i].finish.reason);
    }
    const Stats stats = on.engine->stats();
    EXPECT_GT(stats.drafts.verified, 50);
    EXPECT_LE(stats.drafts.accepted, stats.drafts.verified);
    expect_no_leaks(*on.engine);
  }
}

TEST_P(Speculative, ForcedDraftsChangeNothing) {
  const std::vector<Request> requests = mixed_requests(9, true);
  const std::vector<Answer> want = plain(requests);
  int64_t tokens = 0;
  for (const Answer& answer : want) tokens += answer.finish.usage.completion_tokens;
  for (const auto kind : {Prophet::Kind::kAllRight, Prophet::Kind::kFirstWrong,
                          Prophet::Kind::kLastWrong, Prophet::Kind::kRandom}) {
    for (const int64_t width : {2, 6}) {
      SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " width " << width);
      Prophet prophet(kind);
      for (size_t i = 0; i < requests.size(); ++i) prophet.add(requests[i], want[i]);
      SpeculativeConfig config = always(width);
      config.forcing = &prophet;
      const Loaded on = load_engine(folder(), testing::without_cache(with(options(), config)));
      std::vector<Ticket> tickets;
      for (const Request& request : requests) tickets.push_back(submit(*on.engine, request));
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << "request " << i);
        expect_same(tickets[i].sink->wait(), want[i]);
      }
      const DraftUsage drafts = on.engine->stats().drafts;
      if (kind == Prophet::Kind::kAllRight) {
        EXPECT_GE(drafts.accepted, drafts.verified - prophet.beyond());
        EXPECT_LT(prophet.beyond(), drafts.verified / 4);
      }
      if (kind == Prophet::Kind::kFirstWrong) {
        EXPECT_EQ(drafts.accepted, 0);
      }
      EXPECT_LT(drafts.blocks, tokens);
      EXPECT_FALSE(prophet.lost());
      EXPECT_GT(prophet.blocks(), 0);
    }
  }
}

// Clients come, leave in the middle, and wait for each other's slots.
TEST_P(Speculative, JoinsLeavesAndCancellations) {
  const std::vector<Request> requests = mixed_requests(12, true);
  const std::vector<Answer> want = plain(requests);
  for (const int64_t budget : {5, 64}) {
    SCOPED_TRACE(budget);
    Options o = with(options(), always(5));
    o.max_num_batched_tokens = budget;
    const Loaded on = load_engine(folder(), testing::without_cache(o));
    std::vector<Ticket> tickets;
    std::vector<Ticket> leaving;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i % 3 == 1) {
        Request other = greedy_request(random_prompt(static_cast<uint32_t>(900 + i), 33), 200);
        leaving.push_back(submit(*on.engine, other));
      }
      tickets.push_back(submit(*on.engine, requests[i]));
      if (i % 3 == 2) {
        leaving.back().sink->wait_tokens(i % 4);
        on.engine->cancel(leaving.back().id);
      }
    }
    for (const Ticket& ticket : leaving) on.engine->cancel(ticket.id);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      expect_same(tickets[i].sink->wait(), want[i]);
    }
    expect_no_leaks(*on.engine);
  }
}

// Conversations that continue from the cache: in exact mode hits restore stored windows, the draft
// stages' too.
TEST_P(Speculative, PrefixHits) {
  const Loaded off = load_engine(folder(), options());
  const Loaded on = load_engine(folder(), with(options(), always(5)));
  std::vector<int32_t> talk = random_prompt(5, 90);
  for (int turn = 0; turn < 5; ++turn) {
    SCOPED_TRACE(turn);
    const Answer want = ask(*off.engine, greedy_request(talk, 30));
    const Answer got = ask(*on.engine, greedy_request(talk, 30));
    if (std::get<1>(GetParam()) == PrefillMode::kExact) {
      expect_same(got, want);
    } else {
      EXPECT_EQ(got.tokens.size(), want.tokens.size());
    }
    if (turn > 0) {
      EXPECT_GT(got.finish.usage.cached_tokens, 0);
    }
    EXPECT_GT(got.finish.usage.drafts.verified, 0);
    talk = testing::join(talk, want.tokens);
    talk = testing::join(talk, random_prompt(static_cast<uint32_t>(60 + turn), 9));
  }
}

// Keeps what the stages drafted, by the number of tokens before it.
class Observer final : public DraftForcing {
 public:
  void force(std::span<const int32_t> tokens, std::span<int32_t> drafts) override {
    seen[tokens.size()] = {drafts.begin(), drafts.end()};
  }
  std::map<size_t, std::vector<int32_t>> seen;
};

// After an exact hit the stages draft what they would have drafted without it.
TEST(SpeculativeWindows, HitsBringBackTheDraftWindows) {
  const std::vector<int32_t> prompt = random_prompt(8, 130);
  Observer seen_cold;
  Observer seen_warm;
  SpeculativeConfig config = always(5);
  config.forcing = &seen_cold;
  const Options options = small_options(PrefillMode::kExact);
  {
    const Loaded cold = load_engine(kTiny, testing::without_cache(with(options, config)));
    ask(*cold.engine, greedy_request(prompt, 40));
  }
  config.forcing = &seen_warm;
  const Loaded warm = load_engine(kTiny, with(options, config));
  ask(*warm.engine, greedy_request(prompt, 30));
  seen_warm.seen.clear();
  const Answer hit = ask(*warm.engine, greedy_request(prompt, 40));
  EXPECT_GE(hit.finish.usage.cached_tokens, 128);
  EXPECT_GT(seen_warm.seen.size(), 20u);
  for (const auto& [length, drafts] : seen_warm.seen) {
    EXPECT_EQ(drafts, seen_cold.seen[length]) << length;
  }
}

// A sink that ends a request at the first or second token of a block.
TEST_P(Speculative, AStopInsideABlock) {
  class Stopper final : public Sink {
   public:
    explicit Stopper(size_t after) : after_(after) {}
    bool on_token(const Token& token) override {
      tokens.push_back(token.id);
      return tokens.size() < after_;
    }
    void on_finish(const Finish& finish) override { done.set_value(finish); }
    std::vector<int32_t> tokens;
    std::promise<Finish> done;

   private:
    size_t after_;
  };
  const Request request = greedy_request(random_prompt(3, 40), 30);
  const Answer want = plain({request}).front();
  Prophet prophet(Prophet::Kind::kAllRight);
  prophet.add(request, want);
  SpeculativeConfig config = always(7);
  config.forcing = &prophet;
  // With bounded prefill a hit may change the answer, with drafts or without.
  const bool exact = std::get<1>(GetParam()) == PrefillMode::kExact;
  const Options base = exact ? options() : testing::without_cache(options());
  const Loaded on = load_engine(folder(), with(base, config));
  for (size_t after = 1; after <= 17; ++after) {
    const auto sink = std::make_shared<Stopper>(after);
    ASSERT_TRUE(on.engine->submit(request, sink).has_value());
    const Finish finish = sink->done.get_future().get();
    EXPECT_EQ(finish.reason, FinishReason::kStop);
    EXPECT_EQ(sink->tokens, testing::front(want.tokens, static_cast<int64_t>(after)));
    EXPECT_EQ(finish.usage.completion_tokens, static_cast<int64_t>(after));
  }
  // What was thrown away is nowhere.
  expect_same(ask(*on.engine, request), want);
  expect_no_leaks(*on.engine);
}

// Four answers of different lengths, and in the middle of them a long prompt: everybody moves on in
// every few steps, and nothing changes.
TEST_P(Speculative, ALongPromptStallsNobody) {
  Options o = with(options(), always(5));
  o.max_num_seqs = 5;
  o.max_num_batched_tokens = 32;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(greedy_request(random_prompt(i, 3 + 21 * i), 300));
  }
  const Request large = greedy_request(random_prompt(77, 250), 3);
  const std::vector<Answer> want =
      plain({requests[0], requests[1], requests[2], requests[3], large});
  const Loaded on = load_engine(folder(), testing::without_cache(o));
  std::vector<Ticket> tickets;
  for (const Request& request : requests) tickets.push_back(submit(*on.engine, request));
  for (const Ticket& ticket : tickets) ticket.sink->wait_tokens(3);
  // Tokens are counted before steps here and after them below, so that a late reader does no harm.
  std::vector<size_t> before;
  for (const Ticket& ticket : tickets) before.push_back(ticket.sink->count());
  const int64_t steps_before = on.engine->stats().steps;
  const Ticket late = submit(*on.engine, large);
  late.sink->wait_tokens(1);
  const int64_t steps = on.engine->stats().steps - steps_before;
  EXPECT_GT(steps, 5);
  for (size_t i = 0; i < tickets.size(); ++i) {
    if (tickets[i].sink->done()) continue;
    // One step may be under way at either end.
    EXPECT_GE(static_cast<int64_t>(tickets[i].sink->count() - before[i]), steps - 2) << i;
  }
  for (size_t i = 0; i < tickets.size(); ++i) expect_same(tickets[i].sink->wait(), want[i]);
  expect_same(late.sink->wait(), want[4]);
}

// ---- sampling by the other rules: the same distribution, though not the same tokens

constexpr int32_t kFew[] = {11, 42, 137};

// How often which three tokens follow the first one, of `count` requests that may only use a few.
std::map<std::vector<int32_t>, int64_t> tally(Engine& engine, int count, uint64_t first_seed,
                                              double temperature) {
  std::vector<Ticket> tickets;
  for (int i = 0; i < count; ++i) {
    Request request = greedy_request({5, 77}, 5);
    SamplingParams& s = request.sampling;
    s.temperature = temperature;
    s.seed = first_seed + static_cast<uint64_t>(i);
    s.top_p = 1;
    s.top_logprobs = -1;
    for (const int32_t id : kFew) s.logit_bias.emplace_back(id, 60.0F);
    tickets.push_back(submit(engine, request));
  }
  std::map<std::vector<int32_t>, int64_t> out;
  for (const Ticket& ticket : tickets) {
    const std::vector<int32_t> tokens = ticket.sink->wait().tokens;
    ++out[{tokens.begin() + 1, tokens.begin() + 4}];
  }
  return out;
}

// How many standard deviations the two-sample chi-square statistic lies above what chance gives.
double surprise(const std::map<std::vector<int32_t>, int64_t>& a,
                const std::map<std::vector<int32_t>, int64_t>& b) {
  std::map<std::vector<int32_t>, std::pair<double, double>> cells;
  double all_a = 0;
  double all_b = 0;
  for (const auto& [key, count] : a) {
    cells[key].first = static_cast<double>(count);
    all_a += static_cast<double>(count);
  }
  for (const auto& [key, count] : b) {
    cells[key].second = static_cast<double>(count);
    all_b += static_cast<double>(count);
  }
  double statistic = 0;
  double degrees = -1;
  std::pair<double, double> rare;
  const auto add = [&](double x, double y) {
    const double expected_x = (x + y) * all_a / (all_a + all_b);
    const double expected_y = (x + y) * all_b / (all_a + all_b);
    statistic += (x - expected_x) * (x - expected_x) / expected_x +
                 (y - expected_y) * (y - expected_y) / expected_y;
    degrees += 1;
  };
  for (const auto& [key, cell] : cells) {
    if (cell.first + cell.second < 20) {
      rare.first += cell.first;
      rare.second += cell.second;
    } else {
      add(cell.first, cell.second);
    }
  }
  if (rare.first + rare.second > 0) add(rare.first, rare.second);
  return (statistic - degrees) / std::sqrt(2 * degrees);
}

TEST(SpeculativeSampling, TheWholeEngineHasTheSameDistribution) {
  Options options = testing::without_cache(small_options(PrefillMode::kExact));
  options.max_num_seqs = 16;
  options.max_model_len = 16;
  options.max_queue = 5000;
  constexpr int kCount = 800;
  constexpr double kTemperature = 1;
  const Loaded off = load_engine(kTiny, options);
  const auto want = tally(*off.engine, kCount, 1, kTemperature);
  EXPECT_GT(want.size(), 12u);
  // Chance alone, and a change that must be seen.
  EXPECT_LT(surprise(want, tally(*off.engine, kCount, 100000, kTemperature)), 4);
  EXPECT_GT(surprise(want, tally(*off.engine, kCount, 100000, 2 * kTemperature)), 4);
  struct Case {
    DraftSampling drafts;
    RejectionMethod rejection;
    bool adaptive;
  };
  for (const Case& one : {Case{DraftSampling::kGreedy, RejectionMethod::kBlock, false},
                          Case{DraftSampling::kProbabilistic, RejectionMethod::kStandard, false},
                          Case{DraftSampling::kProbabilistic, RejectionMethod::kBlock, false},
                          Case{DraftSampling::kProbabilistic, RejectionMethod::kBlock, true}}) {
    SCOPED_TRACE(::testing::Message()
                 << "drafts " << static_cast<int>(one.drafts) << " rejection "
                 << static_cast<int>(one.rejection) << " adaptive " << one.adaptive);
    SpeculativeConfig config = always(3);
    config.draft_sample_method = one.drafts;
    config.rejection_sample_method = one.rejection;
    config.enable_adaptive_verification = one.adaptive;
    const Loaded on = load_engine(kTiny, with(options, config));
    EXPECT_LT(surprise(want, tally(*on.engine, kCount, 200000, kTemperature)), 4);
    if (!one.adaptive) {
      EXPECT_GT(on.engine->stats().drafts.accepted, kCount / 10);
    }
  }
}

// Temperature 0 stays bit for bit under every rule.
TEST(SpeculativeSampling, GreedyRequestsStayExactUnderEveryRule) {
  const std::vector<Request> requests = mixed_requests(12, false);
  const Options options = testing::without_cache(small_options(PrefillMode::kBounded));
  std::vector<Answer> want;
  {
    const Loaded off = load_engine(kTiny, options);
    for (const Request& request : requests) want.push_back(ask(*off.engine, request));
  }
  SpeculativeConfig config = always(5);
  config.draft_sample_method = DraftSampling::kProbabilistic;
  config.rejection_sample_method = RejectionMethod::kBlock;
  const Loaded on = load_engine(kTiny, with(options, config));
  std::vector<Ticket> tickets;
  for (const Request& request : requests) tickets.push_back(submit(*on.engine, request));
  for (size_t i = 0; i < requests.size(); ++i) expect_same(tickets[i].sink->wait(), want[i]);
}

// Rules that look at the history, ends and least lengths, under drafts that were drawn.
TEST(SpeculativeSampling, DrawnDraftsKeepTheRequestsRules) {
  SpeculativeConfig config = always(5);
  config.draft_sample_method = DraftSampling::kProbabilistic;
  for (const RejectionMethod rejection : {RejectionMethod::kStandard, RejectionMethod::kBlock}) {
    config.rejection_sample_method = rejection;
    const Loaded on = load_engine(
        kTiny, with(testing::without_cache(small_options(PrefillMode::kExact)), config));
    std::vector<Ticket> tickets;
    for (uint32_t i = 0; i < 24; ++i) {
      Request request = greedy_request(random_prompt(i, 6), 24);
      SamplingParams& s = request.sampling;
      s.temperature = 1;
      s.seed = i;
      s.min_tokens = 9;
      s.stop_token_ids = {11};
      for (const int32_t id : kFew) s.logit_bias.emplace_back(id, 60.0F);
      if (i % 2 == 0) s.presence_penalty = 1;
      tickets.push_back(submit(*on.engine, request));
    }
    for (const Ticket& ticket : tickets) {
      const Answer answer = ticket.sink->wait();
      EXPECT_LE(answer.tokens.size(), 24u);
      EXPECT_GE(answer.tokens.size(), 9u);
      for (const int32_t id : answer.tokens) {
        EXPECT_NE(id, 11);
        EXPECT_EQ(std::ranges::count(kFew, id), 1);
      }
      const bool stopped = answer.finish.reason == FinishReason::kStop;
      EXPECT_EQ(answer.finish.usage.completion_tokens,
                static_cast<int64_t>(answer.tokens.size()) + (stopped ? 1 : 0));
    }
    EXPECT_GT(on.engine->stats().drafts.accepted, 0);
  }
}

TEST(SpeculativeLoad, ACheckpointWithoutStagesRunsWithoutAndSaysSo) {
  const std::string plain = CEDRA_SOURCE_DIR "/tests/golden/shapes/plain";
  Options options = small_options(PrefillMode::kExact);
  options.max_model_len = 96;
  const Loaded off = load_engine(plain, options);
  EXPECT_TRUE(std::ranges::none_of(
      off.warnings, [](const auto& w) { return w.find("draft") != std::string::npos; }));
  const Loaded on = load_engine(plain, with(options, always(kTrainedBlock)));
  EXPECT_TRUE(std::ranges::any_of(
      on.warnings, [](const auto& w) { return w.find("no draft stages") != std::string::npos; }));
  const Request request = greedy_request({5, 6, 7}, 5);
  expect_same(ask(*on.engine, request), ask(*off.engine, request));
  EXPECT_EQ(on.engine->stats().drafts.drafted, 0);
}

}  // namespace
}  // namespace cedra::engine

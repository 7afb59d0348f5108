// Images through the engine: the same bits by every way, content in the keys of both caches,
// bounded memory, and errors that name what is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>
#include <thread>

#include "engine/image_rig.h"
#include "engine/image_spans.h"

namespace cedra::engine {
namespace {

using namespace testing;

class Images : public ::testing::TestWithParam<PrefillMode> {
 protected:
  Options options() const { return small_options(GetParam()); }

  // Text, a picture, text, two pictures next to each other, text.
  static PromptMaker mixed(const Engine& engine) {
    PromptMaker prompt(engine);
    prompt.text(1, 21).picture(golden_picture(engine, 0)).text(2, 9);
    prompt.picture(golden_picture(engine, 1)).picture(golden_picture(engine, 2)).text(3, 30);
    return prompt;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, Images,
                         ::testing::Values(PrefillMode::kExact, PrefillMode::kBounded),
                         [](const auto& param) {
                           return param.param == PrefillMode::kExact ? "exact" : "bounded";
                         });

TEST_P(Images, ChunksAndBatchesChangeNothing) {
  Options whole = without_cache(options());
  whole.max_num_batched_tokens = 512;
  Answer alone, first_only;
  {
    const Loaded loaded = load_engine(kTiny, whole);
    alone = ask(*loaded.engine, mixed(*loaded.engine).greedy(6));
    first_only = ask(*loaded.engine, PromptMaker(*loaded.engine)
                                         .picture(golden_picture(*loaded.engine, 2))
                                         .text(9, 3)
                                         .greedy(6));
    // The pictures matter.
    const Answer other = ask(*loaded.engine, PromptMaker(*loaded.engine)
                                                 .picture(golden_picture(*loaded.engine, 1))
                                                 .text(9, 3)
                                                 .greedy(6));
    EXPECT_NE(other.logprobs, first_only.logprobs);
  }
  for (const int64_t rows : {1, 5, 16, 64}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(threads) + " threads");
      Options cut = without_cache(options());
      cut.max_num_batched_tokens = rows;
      cut.threads = threads;
      const Loaded loaded = load_engine(kTiny, cut);
      Engine& engine = *loaded.engine;
      const Ticket text = submit(engine, greedy_request(random_prompt(7, 50), 20));
      const Ticket one = submit(engine, mixed(engine).greedy(6));
      const Ticket two = submit(
          engine, PromptMaker(engine).picture(golden_picture(engine, 2)).text(9, 3).greedy(6));
      expect_same(one.sink->wait(), alone);
      expect_same(two.sink->wait(), first_only);
      text.sink->wait();
    }
  }
}

TEST_P(Images, TheSameImageIsEncodedOnce) {
  const Loaded loaded = load_engine(kTiny, without_cache(options()));
  Engine& engine = *loaded.engine;
  const Picture picture = golden_picture(engine, 0);
  ask(engine,
      PromptMaker(engine).text(1, 5).picture(picture).text(2, 4).picture(picture).greedy(2));
  EXPECT_EQ(engine.stats().images_encoded, 1);
  EXPECT_EQ(engine.stats().images_reused, 1);
  // Another conversation; another object with the same content.
  ask(engine, PromptMaker(engine).text(8, 30).picture(golden_picture(engine, 0)).greedy(2));
  EXPECT_EQ(engine.stats().images_encoded, 1);
  ask(engine, PromptMaker(engine).text(8, 30).picture(golden_picture(engine, 1)).greedy(2));
  EXPECT_EQ(engine.stats().images_encoded, 2);
}

TEST_P(Images, PrefixesHitForTheSameImageOnly) {
  const Loaded fresh = load_engine(kTiny, without_cache(options()));
  const Loaded loaded = load_engine(kTiny, options());
  Engine& engine = *loaded.engine;
  const Picture red = drawn_picture(engine, 120, 84, 10);
  const Picture blue = drawn_picture(engine, 120, 84, 200);
  ASSERT_EQ(red->plan, blue->plan);
  const auto prompt = [&](const Picture& picture, uint32_t tail) {
    return PromptMaker(engine).text(1, 40).picture(picture).text(tail, 40).greedy(5);
  };
  const Answer first = ask(engine, prompt(red, 5));
  expect_same(first, ask(*fresh.engine, prompt(red, 5)));
  EXPECT_EQ(first.finish.usage.cached_tokens, 0);

  const Answer other = ask(engine, prompt(blue, 5));
  EXPECT_EQ(other.finish.usage.cached_tokens, 32);  // the blocks of 16 before the image
  if (GetParam() == PrefillMode::kExact) expect_same(other, ask(*fresh.engine, prompt(blue, 5)));
  EXPECT_NE(other.logprobs, first.logprobs);

  // Behind the image: all of it is a hit, and nothing is encoded again.
  const int64_t encoded = engine.stats().images_encoded;
  EXPECT_EQ(encoded, 2);
  const Answer again = ask(engine, prompt(red, 6));
  const int64_t behind = 40 + red->plan.span_tokens();
  EXPECT_EQ(again.finish.usage.cached_tokens, behind / 16 * 16);
  if (GetParam() == PrefillMode::kExact) expect_same(again, ask(*fresh.engine, prompt(red, 6)));
  EXPECT_EQ(engine.stats().images_encoded, encoded);
}

// Every length of text before the image moves its span over the borders of blocks and windows.
TEST_P(Images, HitsThatEndInsideASpan) {
  const Loaded fresh = load_engine(kTiny, without_cache(options()));
  Options stored = options();
  stored.window_records = 200;
  const Loaded loaded = load_engine(kTiny, stored);
  Engine& engine = *loaded.engine;
  for (int64_t before = 33; before < 49; before += 3) {
    SCOPED_TRACE(before);
    const auto prompt = [&](uint8_t second) {
      return PromptMaker(engine)
          .text(static_cast<uint32_t>(before), before)
          .picture(golden_picture(engine, 1))
          .picture(drawn_picture(engine, 90, 90, second))
          .text(4, 3)
          .greedy(4);
    };
    ask(engine, prompt(1));
    const Answer hit = ask(engine, prompt(2));
    EXPECT_GT(hit.finish.usage.cached_tokens, 0);
    if (GetParam() == PrefillMode::kExact) expect_same(hit, ask(*fresh.engine, prompt(2)));
    // The same question twice more: the cache now holds all of it.
    const Answer once = ask(engine, prompt(2));
    EXPECT_GT(once.finish.usage.cached_tokens, before);
    expect_same(ask(engine, prompt(2)), once);
  }
}

TEST_P(Images, LittleRoomForEncodedImages) {
  Options small = without_cache(options());
  small.image_cache_bytes = 1;  // one image, the largest
  const Loaded roomy = load_engine(kTiny, without_cache(options()));
  const Loaded loaded = load_engine(kTiny, small);
  Engine& engine = *loaded.engine;
  const auto prompt = [&](int seed) {
    PromptMaker out(engine);
    for (int i = 0; i < 4; ++i) {
      out.text(static_cast<uint32_t>(seed), 2);
      out.picture(drawn_picture(engine, 300, 100, static_cast<uint8_t>(40 * i + seed)));
    }
    return out.text(5, 4).greedy(3);
  };
  std::vector<Ticket> tickets;
  for (int seed = 0; seed < 4; ++seed) tickets.push_back(submit(engine, prompt(seed)));
  for (int seed = 0; seed < 4; ++seed) {
    expect_same(tickets[static_cast<size_t>(seed)].sink->wait(), ask(*roomy.engine, prompt(seed)));
  }
  EXPECT_GE(engine.stats().images_encoded, 16);
}

TEST_P(Images, LogProbabilitiesOfThePrompt) {
  class Sizes final : public Sink {
   public:
    void on_prompt_logprobs(std::span<const Token> tokens) override {
      for (const Token& token : tokens) ids.push_back(token.id);
    }
    bool on_token(const Token&) override { return true; }
    void on_finish(const Finish&) override { done.set_value(); }
    std::vector<int32_t> ids;
    std::promise<void> done;
  };
  const Loaded loaded = load_engine(kTiny, options());
  Request request = mixed(*loaded.engine).greedy(1);
  request.sampling.prompt_logprobs = 0;
  const std::vector<int32_t> prompt = request.prompt;
  const auto sink = std::make_shared<Sizes>();
  ASSERT_TRUE(loaded.engine->submit(std::move(request), sink).has_value());
  sink->done.get_future().wait();
  EXPECT_EQ(sink->ids, prompt);
}

TEST_P(Images, CancelledWhileEncoding) {
  const Loaded loaded = load_engine(kTiny, options());
  Engine& engine = *loaded.engine;
  for (int i = 0; i < 20; ++i) {
    const Ticket ticket = submit(engine, mixed(engine).greedy(4));
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i));
    engine.cancel(ticket.id);
    ticket.sink->wait();
  }
  const Answer after = ask(engine, mixed(engine).greedy(4));
  EXPECT_EQ(after.tokens.size(), 4U);
}

TEST(ImageRequests, WrongOnesAreRefused) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  Engine& engine = *loaded.engine;
  const Picture picture = golden_picture(engine, 0);
  const Request good = PromptMaker(engine).text(1, 5).picture(picture).text(2, 5).greedy(1);
  const auto refuse = [&](Request request, const char* why) {
    const auto id = engine.submit(std::move(request), std::make_shared<Collector>());
    ASSERT_FALSE(id.has_value()) << why;
    EXPECT_EQ(id.error().code, Code::kInvalid);
    EXPECT_NE(id.error().message.find(why), std::string::npos) << id.error().message;
  };
  Request request = good;
  --request.images[0].position;
  refuse(request, "the prompt has id");
  request.images[0].position = -1;
  refuse(request, "overlaps another or leaves");
  request = good;
  request.images[0].position = 11;
  refuse(request, "overlaps another or leaves");
  request = good;
  request.images.push_back(good.images[0]);
  refuse(request, "overlaps another");
  request = good;
  request.images[0].image = nullptr;
  refuse(request, "missing");
  auto wrong = std::make_shared<image::Prepared>(*picture);
  wrong->pixels.rgb.pop_back();
  request = good;
  request.images[0].image = wrong;
  refuse(request, "not prepared for this model");
  wrong = std::make_shared<image::Prepared>(*picture);
  ++wrong->plan.llm_rows;
  request.images[0].image = wrong;
  refuse(request, "not prepared for this model");
  // Placeholders without an image are ids like others.
  request = good;
  request.images.clear();
  EXPECT_EQ(ask(engine, request).tokens.size(), 1U);
}

TEST(ImageRequests, WithoutATower) {
  Options options = small_options(PrefillMode::kExact);
  const Loaded with = load_engine(kTiny, options);
  options.language_model_only = true;
  const Loaded without = load_engine(kTiny, options);
  EXPECT_FALSE(without.engine->info().vision.has_value());
  const Request request =
      PromptMaker(*with.engine).picture(golden_picture(*with.engine, 0)).greedy(1);
  const auto id = without.engine->submit(request, std::make_shared<Collector>());
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().code, Code::kUnsupported);
  // The plan has the tower's memory only where there is one; without images text is as with it.
  const auto has = [](const Loaded& loaded, std::string_view name) {
    return std::ranges::any_of(loaded.plan.parts,
                               [&](const plan::Part& part) { return part.name == name; });
  };
  for (const char* name : {"vision tower", "encoded images", "pixels of images"}) {
    EXPECT_TRUE(has(with, name));
    EXPECT_FALSE(has(without, name));
  }
  expect_same(ask(*without.engine, greedy_request(random_prompt(3, 60), 5)),
              ask(*with.engine, greedy_request(random_prompt(3, 60), 5)));
}

TEST(ImageRequests, PixelsAreBounded) {
  Options options = small_options(PrefillMode::kExact);
  options.max_num_seqs = 1;
  options.image_queue_bytes = 1;  // one image, the largest
  const Loaded loaded = load_engine(kTiny, options);
  Engine& engine = *loaded.engine;
  // Shared pictures count once.
  const Picture picture = drawn_picture(engine, 200, 200, 1);
  const auto many = [&](bool shared) {
    PromptMaker prompt(engine);
    for (int i = 0; i < 5; ++i) {
      prompt.picture(shared ? picture : drawn_picture(engine, 200, 200, static_cast<uint8_t>(i)));
    }
    return prompt.greedy(1);
  };
  EXPECT_EQ(ask(engine, many(true)).tokens.size(), 1U);
  const auto id = engine.submit(many(false), std::make_shared<Collector>());
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().code, Code::kTooLarge);
  // What ended has given its pixels back, however it ended.
  for (int i = 0; i < 6; ++i) {
    const Ticket ticket =
        submit(engine, PromptMaker(engine)
                           .picture(drawn_picture(engine, 250, 150, static_cast<uint8_t>(i)))
                           .greedy(1));
    if (i % 2 == 0) engine.cancel(ticket.id);
    ticket.sink->wait();
  }
}

TEST(ImageSpans, IdsTellContentsAndPlacesApart) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  const auto ids = [&](int number, int64_t position) {
    const Picture picture = golden_picture(*loaded.engine, number);
    std::vector<int32_t> tokens(200, 7);
    const std::vector<ImageSpan> spans{{position, picture}};
    mark_images(spans, tokens);
    EXPECT_EQ(std::ranges::count_if(tokens, is_image_row), picture->plan.span_tokens());
    EXPECT_FALSE(is_image_row(tokens[static_cast<size_t>(position - 1)]));
    return std::vector<int32_t>(tokens.begin() + position,
                                tokens.begin() + position + picture->plan.span_tokens());
  };
  const std::vector<int32_t> zero = ids(0, 5);
  EXPECT_EQ(ids(0, 77), zero);  // wherever it stands
  EXPECT_EQ(std::set<int32_t>(zero.begin(), zero.end()).size(), zero.size());
  const std::vector<int32_t> one = ids(1, 5);
  for (size_t i = 0; i < std::min(zero.size(), one.size()); ++i) EXPECT_NE(zero[i], one[i]);
}

}  // namespace
}  // namespace cedra::engine

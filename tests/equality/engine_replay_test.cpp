// What the engine makes of a prefix hit in bounded mode, against the definition (spec kv_cache.md
// 4a) written down plainly: adopt H tokens of compressed rows, run [H - W, N) in one step with
// those before H writing windows only, decoder half on the last window; then greedy decoding.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_rig.h"
#include "rig.h"

namespace cedra::equality {
namespace {

using engine::testing::Answer;

constexpr int64_t kBlock = 16;

int32_t best_of(const Logits& row) {
  return static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
}

class EngineReplay : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Levels, EngineReplay, testing::ValuesIn(levels()),
                         [](const auto& param) { return param.param; });

TEST_P(EngineReplay, IsTheDefinition) {
  const Rig rig("tiny", GetParam());
  engine::Options options = engine::testing::small_options(engine::PrefillMode::kBounded);
  options.isa = GetParam();
  const Tokens base = engine::testing::random_prompt(7, 100);
  for (const int64_t shared : {32, 63, 64, 95}) {
    for (const int64_t suffix : {1, 5, 16, 40}) {
      SCOPED_TRACE(testing::Message() << shared << " shared, " << suffix << " more");
      const Tokens prompt = engine::testing::join(
          engine::testing::front(base, shared),
          engine::testing::random_prompt(static_cast<uint32_t>(suffix), suffix));
      const engine::Loaded loaded = engine::testing::load_engine(engine::testing::kTiny, options);
      engine::testing::ask(*loaded.engine, engine::testing::greedy_request(base, 1));
      const Answer got =
          engine::testing::ask(*loaded.engine, engine::testing::greedy_request(prompt, 6));
      const int64_t hit = shared / kBlock * kBlock;
      ASSERT_EQ(got.finish.usage.cached_tokens, hit);

      const auto session = rig.session({.block_tokens = kBlock, .sequences = 2});
      const auto donor = session->new_sequence();
      run_bounded(*session, *donor, base, std::ssize(base), Want::kLast);
      const auto warm = session->new_sequence();
      soil(*warm);
      for (int64_t i = 0; i < hit / kBlock; ++i) {
        session->pool().retain(donor->blocks[static_cast<size_t>(i)]);
        warm->blocks.push_back(donor->blocks[static_cast<size_t>(i)]);
      }
      const int64_t begin = hit - rig.window();
      warm->length = warm->encoder_window_start = warm->decoder_window_start = begin;
      const int64_t lookback = rig.text().engram_max_ngram_size - 1;
      for (int64_t p = std::max<int64_t>(0, begin - lookback); p < begin; ++p) {
        warm->engram_history.push_back(
            rig.model().hasher()->compress(prompt[static_cast<size_t>(p)], false));
      }
      warm->begin_prefill();
      Segment segment;
      segment.sequence = warm.get();
      segment.tokens = slice(prompt, begin, std::ssize(prompt));
      segment.bounded = true;
      segment.replay_until = hit;
      Tokens want{best_of(session->run(segment))};
      while (want.size() < 6) {
        const Tokens next{want.back()};
        want.push_back(best_of(session->run(*warm, next, Want::kLast)));
      }
      EXPECT_EQ(got.tokens, want);
    }
  }
}

}  // namespace
}  // namespace cedra::equality

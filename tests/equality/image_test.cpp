// The engine's way for images (spans, pages of rows, marked ids) against the forward pass with the
// embeddings laid out by model::span_embeddings, as `cedra golden` runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "engine/image_rig.h"
#include "engine/image_store.h"
#include "model/vision.h"
#include "rig.h"

namespace cedra::equality {
namespace {

namespace rig = engine::testing;

class PromptTokens final : public engine::Sink {
 public:
  void on_prompt_logprobs(std::span<const engine::Token> tokens) override {
    prompt.assign(tokens.begin(), tokens.end());
  }
  bool on_token(const engine::Token& token) override {
    first = token.id;
    return true;
  }
  void on_finish(const engine::Finish&) override { done.set_value(); }
  std::vector<engine::Token> prompt;
  int32_t first = -1;
  std::promise<void> done;
};

TEST(ImagePrompts, TheEngineRunsWhatTheForwardPassRuns) {
  for (const std::string& level : levels()) {
    SCOPED_TRACE(level);
    engine::Options options = rig::small_options(engine::PrefillMode::kExact);
    options.isa = level;
    options.max_num_batched_tokens = 13;
    const engine::Loaded loaded = rig::load_engine(rig::kTiny, options);
    const rig::Picture pictures[] = {rig::golden_picture(*loaded.engine, 0),
                                     rig::golden_picture(*loaded.engine, 1)};
    rig::PromptMaker maker(*loaded.engine);
    maker.text(1, 7).picture(pictures[0]).text(2, 5).picture(pictures[1]).text(3, 4);
    engine::Request request = maker.greedy(1);
    request.sampling.prompt_logprobs = 2;
    const std::vector<int32_t> tokens = request.prompt;
    const std::vector<engine::ImageSpan> spans = request.images;
    const auto sink = std::make_shared<PromptTokens>();
    ASSERT_TRUE(loaded.engine->submit(std::move(request), sink).has_value());
    sink->done.get_future().wait();
    ASSERT_EQ(sink->prompt.size(), tokens.size());

    const Rig forward("tiny", level);
    const auto session = forward.session({});
    const auto tower =
        model::VisionTower::create(forward.model(), session->ops(), session->team()).value();
    std::vector<model::RowKind> kinds(tokens.size(), model::RowKind::kText);
    std::vector<const bf16*> embeddings(tokens.size(), nullptr);
    std::vector<std::vector<bf16>> rows;
    for (const engine::ImageSpan& span : spans) {
      const model::ImageGrid grid = engine::grid_of(span.image->plan);
      std::vector<bf16> patches;
      for (const uint16_t bits : image::patchify(span.image->pixels, 14)) {
        patches.push_back(bf16{bits});
      }
      rows.emplace_back(static_cast<size_t>(grid.image_tokens() * forward.text().hidden_size));
      ASSERT_TRUE(tower->encode(patches, grid, rows.back().data()).has_value());
      std::ranges::copy(model::span_embeddings(forward.model().weights(), grid, rows.back().data(),
                                               forward.text().hidden_size),
                        embeddings.begin() + span.position);
      std::fill_n(kinds.begin() + span.position, grid.span_tokens(), model::RowKind::kImage);
    }
    const auto sequence = session->new_sequence();
    model::Segment segment;
    segment.sequence = sequence.get();
    segment.tokens = tokens;
    segment.want = model::Want::kAll;
    segment.kinds = kinds;
    segment.embeddings = embeddings;
    const std::vector<float> logits = session->run(segment);
    const int64_t vocab = forward.text().vocab_size;
    for (size_t p = 1; p < tokens.size(); ++p) {
      const float* row = logits.data() + static_cast<int64_t>(p - 1) * vocab;
      const engine::Token& seen = sink->prompt[p];
      ASSERT_EQ(seen.top.size(), 2U);
      // The distance of two log probabilities is that of their logits. (The engine masks ids that
      // are never produced, so the very best of the row need not be among its two.)
      EXPECT_NEAR(seen.top[0].logprob - seen.top[1].logprob,
                  row[seen.top[0].token] - row[seen.top[1].token], 2e-5F)
          << "position " << p;
      if (tokens[p] == loaded.engine->info().vision->token_id) continue;
      EXPECT_NEAR(seen.top[0].logprob - seen.logprob, row[seen.top[0].token] - row[tokens[p]],
                  2e-5F)
          << "position " << p;
    }
  }
}

}  // namespace
}  // namespace cedra::equality

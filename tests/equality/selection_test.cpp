// Index selection over long contexts: a team scans a row's context in parts and merges them, and
// must choose what one thread chooses.
#include <gtest/gtest.h>

#include <algorithm>

#include "rig.h"

namespace cedra::equality {
namespace {

// Selections of all index sources of one step.
struct Selections : model::Probe {
  void selected(int64_t layer, int64_t rows, int64_t k, const int32_t* values) override {
    chosen[layer].assign(values, values + rows * k);
  }
  std::map<int64_t, std::vector<int32_t>> chosen;
};

class Selection : public testing::TestWithParam<const char*> {};

TEST_P(Selection, DoesNotDependOnThreads) {
  const Rig rig(GetParam(), levels().back());
  const int64_t prompt = std::min<int64_t>(rig.text().max_position_embeddings - 40, 1100);
  const Tokens tokens = random_tokens(rig.model(), prompt + 7, 51);
  std::vector<Selections> want;
  Logits want_logits;
  for (const int threads : {1, 2, 3}) {
    const auto session = rig.session({.threads = threads, .max_rows = 256});
    const auto sequence = session->new_sequence();
    for (int64_t at = 0; at < prompt; at += 256) {
      session->run(*sequence, slice(tokens, at, std::min(prompt, at + 256)), Want::kNone);
    }
    std::vector<Selections> got;
    Logits logits;
    int64_t at = prompt;
    for (const int64_t count : {1, 1, 3, 2}) {  // few rows: the team shares each of them
      const Logits some =
          session->run(*sequence, slice(tokens, at, at + count), Want::kAll, &got.emplace_back());
      logits.insert(logits.end(), some.begin(), some.end());
      at += count;
    }
    if (threads == 1) {
      want = got;
      want_logits = logits;
      continue;
    }
    for (size_t step = 0; step < got.size(); ++step) {
      EXPECT_EQ(got[step].chosen, want[step].chosen) << threads << " threads, step " << step;
    }
    EXPECT_TRUE(rig.same(logits, want_logits)) << threads << " threads";
  }
  // A selection of its own per index source, full, ascending, of visible rows.
  for (const Selections& one : want) {
    ASSERT_EQ(one.chosen.size(), rig.text().index_source_layer_ids.size());
    for (const auto& [layer, rows] : one.chosen) {
      const int64_t k = rig.text().index_topk;
      const int64_t ratio =
          rig.text().compress_ratios[static_cast<size_t>(rig.text().kv_source_of(layer))];
      for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(k)) {
        const std::span<const int32_t> chosen(&rows[row], static_cast<size_t>(k));
        EXPECT_GE(chosen.front(), 0);
        EXPECT_LT(chosen.back(), (prompt + 7) / ratio);
        EXPECT_EQ(std::ranges::adjacent_find(chosen, std::greater_equal<>()), chosen.end());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Selection, testing::ValuesIn(kFolders));

}  // namespace
}  // namespace cedra::equality

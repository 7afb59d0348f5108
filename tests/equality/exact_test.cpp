// Exact mode: a row's logits depend on the tokens before it and on nothing else. One-shot prefill,
// chunks, decode, stale workspaces and threads all give the same bits, at every kernel level.
#include <gtest/gtest.h>

#include "rig.h"

namespace cedra::equality {
namespace {

using Param = std::tuple<const char*, std::string>;
std::string param_name(const testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}

class Exact : public testing::TestWithParam<Param> {
 protected:
  Exact()
      : rig_(std::get<0>(GetParam()), std::get<1>(GetParam())),
        tokens_(random_tokens(rig_.model(), length(), 11)) {}

  // Beyond the window, the index top-k and the candidate blocks; the oracle is slow.
  int64_t length() const {
    const bool tiny = std::get<0>(GetParam()) == std::string("tiny");
    return rig_.oracle() ? (tiny ? 60 : 90) : (tiny ? 200 : 260);
  }
  // Computed once per folder and level.
  const Logits& reference() {
    static std::map<Param, Logits> known;
    Logits& logits = known[GetParam()];
    if (logits.empty()) logits = rig_.one_shot(tokens_);
    return logits;
  }
  Logits reference(int64_t begin, int64_t end) { return rig_.rows(reference(), begin, end); }
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }

  Rig rig_;
  Tokens tokens_;
};

TEST_P(Exact, DecodeEqualsPrefillAtEveryLength) {
  const auto session = rig_.session();
  const auto sequence = session->new_sequence();
  for (int64_t i = 0; i < count(); ++i) {
    const Logits row = session->run(*sequence, slice(tokens_, i, i + 1), Want::kLast);
    ASSERT_TRUE(rig_.same(row, reference(i, i + 1))) << "position " << i;
  }
  EXPECT_EQ(sequence->length, count());
}

TEST_P(Exact, ShorterPrefillIsAPrefixOfALongerOne) {
  const auto session = rig_.session();
  std::vector<int64_t> lengths = {1, 2, 3, 5, 8, 15, 16, 17};
  if (!rig_.oracle()) lengths.insert(lengths.end(), {31, 32, 33, 47, 63, 64, 65, 96, 127, 150});
  for (const int64_t n : lengths) {
    const auto sequence = session->new_sequence();
    EXPECT_TRUE(
        rig_.same(session->run(*sequence, slice(tokens_, 0, n), Want::kAll), reference(0, n)))
        << "length " << n;
    const auto last = session->new_sequence();
    EXPECT_TRUE(
        rig_.same(session->run(*last, slice(tokens_, 0, n), Want::kLast), reference(n - 1, n)))
        << "length " << n << ", last row only";
  }
}

TEST_P(Exact, ChunksOfAnySizeGiveTheSameBits) {
  const auto session = rig_.session();
  for (const int64_t chunk : {3, 16, 17, 64, 1000}) {
    if (rig_.oracle() && chunk > 17) continue;
    const auto sequence = session->new_sequence();
    EXPECT_TRUE(rig_.same(run_chunks(*session, *sequence, tokens_, chunk), reference()))
        << "chunk " << chunk;
  }
}

// Chunks that want nothing leave the same state behind.
TEST_P(Exact, ChunksWithoutLogitsAreStillComplete) {
  const auto session = rig_.session();
  const int64_t chunk = 19;
  const auto sequence = session->new_sequence();
  const int64_t n = std::min<int64_t>(count(), 100);
  for (int64_t at = 0; at < n; at += chunk) {
    const int64_t end = std::min(n, at + chunk);
    const bool last = end == n;
    const Logits logits =
        session->run(*sequence, slice(tokens_, at, end), last ? Want::kLast : Want::kNone);
    ASSERT_EQ(session->forward().wanted_rows(), last ? 1 : 0);
    if (last) {
      EXPECT_TRUE(rig_.same(logits, reference(n - 1, n)));
    }
  }
}

TEST_P(Exact, StaleWorkspacesNeverMatter) {
  const auto session = rig_.session();
  const auto sequence = session->new_sequence();
  soil(*sequence);
  std::mt19937 random(3);
  shuffle_free_blocks(session->pool(), random);
  Logits all;
  int64_t at = 0;
  for (const int64_t chunk : {1, 1, 5, 17, 1, 2, 30, 1}) {
    session->forward().poison();
    const Logits some = session->run(*sequence, slice(tokens_, at, at + chunk), Want::kAll);
    all.insert(all.end(), some.begin(), some.end());
    at += chunk;
  }
  EXPECT_TRUE(rig_.same(all, reference(0, at)));
}

TEST_P(Exact, ThreadsGiveTheSameBits) {
  for (const int threads : {2, 3}) {
    if (rig_.oracle() && threads == 3) continue;
    SCOPED_TRACE(threads);
    // With two threads nearly all of it in small steps: few rows take other paths than many, and
    // short contexts make every candidate block count.
    const int64_t prompt = threads == 2 && !rig_.oracle() ? 10 : count() - 12;
    const int64_t end = std::min<int64_t>(count(), prompt + 110);
    const auto session = rig_.session({.threads = threads});
    const auto sequence = session->new_sequence();
    session->forward().poison();
    EXPECT_TRUE(rig_.same(session->run(*sequence, slice(tokens_, 0, prompt), Want::kAll),
                          reference(0, prompt)));
    constexpr int64_t kSteps[] = {1, 2, 3, 1, 1};
    int64_t at = prompt;
    for (size_t step = 0; at < end; ++step) {
      const int64_t next = std::min(end, at + kSteps[step % std::size(kSteps)]);
      ASSERT_TRUE(rig_.same(session->run(*sequence, slice(tokens_, at, next), Want::kAll),
                            reference(at, next)))
          << next - at << " rows at " << at;
      at = next;
    }
  }
}

TEST_P(Exact, BlocksOfAnySizeGiveTheSameBits) {
  for (const int64_t block_tokens : {2, 64}) {
    if (rig_.oracle() && block_tokens == 64) continue;
    const auto session = rig_.session({.block_tokens = block_tokens});
    const auto sequence = session->new_sequence();
    const int64_t n = std::min<int64_t>(count(), 120);
    EXPECT_TRUE(
        rig_.same(run_chunks(*session, *sequence, slice(tokens_, 0, n), 50), reference(0, n)))
        << "blocks of " << block_tokens;
  }
}

TEST_P(Exact, RowsOfLogitsDoNotDependOnTheirNumber) {
  const auto session = rig_.session();
  const auto sequence = session->new_sequence();
  session->run(*sequence, slice(tokens_, 0, 40), Want::kAll);
  const int64_t vocab = rig_.text().vocab_size;
  for (const int64_t rows : {1, 2, 7, 33}) {
    const float* values = session->forward().logits(5, rows);
    EXPECT_TRUE(rig_.same({values, values + rows * vocab}, reference(5, 5 + rows)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Exact,
                         testing::Combine(testing::ValuesIn(kFolders), testing::ValuesIn(levels())),
                         param_name);

// Shorter than a window, than one compression group, without any compressed row.
TEST(ShortContexts, EverySplitOfAFewTokens) {
  for (const char* folder : kFolders) {
    const Rig rig(folder, levels().back());
    const auto session = rig.session();
    const Tokens tokens = random_tokens(rig.model(), 9, 5);
    const Logits reference = rig.one_shot(tokens);
    for (int64_t n = 1; n <= 9; ++n) {
      for (int64_t cut = 1; cut < n; ++cut) {
        const auto sequence = session->new_sequence();
        soil(*sequence);
        session->forward().poison();
        const Logits first = session->run(*sequence, slice(tokens, 0, cut), Want::kAll);
        EXPECT_TRUE(rig.same(first, rig.rows(reference, 0, cut))) << cut << " of " << n;
        const Logits rest = session->run(*sequence, slice(tokens, cut, n), Want::kAll);
        EXPECT_TRUE(rig.same(rest, rig.rows(reference, cut, n))) << cut << " of " << n;
      }
    }
  }
}

}  // namespace
}  // namespace cedra::equality

// Places of a sequence's windows, tails and seam rows: distinct where they must be, rings of W.
#include "cache/sequence.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace cedra::cache {
namespace {

struct Slot {
  CacheLayout layout;
  SequenceLimits limits{.max_tokens = 200,
                        .stream_width = 24,
                        .copies = 4,
                        .lookback = 3,
                        .keep_seam = true,
                        .max_rollback = 5};
};

Slot slot() {
  const Result<Config> config = load_config(CEDRA_SOURCE_DIR "/tests/golden/deep");
  EXPECT_TRUE(config.has_value());
  const Result<CacheLayout> layout = make_layout(config->text, 16);
  EXPECT_TRUE(layout.has_value());
  return {.layout = *layout};
}

TEST(Sequence, WindowRecordsOfWPositionsAreDistinct) {
  const Slot s = slot();
  Sequence sequence(s.layout, s.limits);
  const size_t bytes = static_cast<size_t>(s.layout.window_record_bytes());
  const auto mark = [&](int64_t layer, int64_t p) {
    return static_cast<int>((layer * 31 + p * 7) % 251);
  };
  for (int64_t layer = 0; layer < s.layout.layers; ++layer) {
    // From an odd start, so that the ring wraps.
    for (int64_t p = 41; p < 41 + s.layout.window; ++p) {
      std::memset(sequence.window_record(layer, p), mark(layer, p), bytes);
    }
  }
  for (int64_t layer = 0; layer < s.layout.layers; ++layer) {
    for (int64_t p = 41; p < 41 + s.layout.window; ++p) {
      const uint8_t* record = sequence.window_record(layer, p);
      ASSERT_EQ(record[0], mark(layer, p));
      ASSERT_EQ(record[bytes - 1], mark(layer, p));
      EXPECT_EQ(record, sequence.window_record(layer, p + s.layout.window));
    }
  }
}

TEST(Sequence, WindowLayerIsTheLayersRing) {
  const Slot s = slot();
  Sequence sequence(s.layout, s.limits);
  for (int64_t layer = 0; layer < s.layout.layers; ++layer) {
    const std::span<uint8_t> ring = sequence.window_layer(layer);
    EXPECT_EQ(ring.data(), sequence.window_record(layer, 0));
    EXPECT_EQ(static_cast<int64_t>(ring.size()), s.layout.window * s.layout.window_record_bytes());
    EXPECT_EQ(ring.data() + ring.size(),
              sequence.window_record(layer, s.layout.window - 1) + s.layout.window_record_bytes());
  }
}

TEST(Sequence, TailsAreDistinct) {
  const Slot s = slot();
  ASSERT_GT(s.layout.tails, 0);
  Sequence sequence(s.layout, s.limits);
  float value = 1;
  const auto each = [&](auto&& fn) {
    for (int64_t tail = 0; tail < s.layout.tails; ++tail) {
      for (int64_t i = 0; i < s.layout.max_ratio + 5; ++i) {
        fn(sequence.tail_kv(tail, i));
        fn(sequence.tail_score(tail, i));
      }
    }
  };
  each([&](float* row) { std::fill(row, row + s.layout.head_dim, value++); });
  value = 1;
  each([&](float* row) {
    EXPECT_EQ(row[0], value);
    EXPECT_EQ(row[s.layout.head_dim - 1], value);
    ++value;
  });
}

TEST(Sequence, SeamRowsOfWPositionsAreDistinct) {
  const Slot s = slot();
  Sequence sequence(s.layout, s.limits);
  for (int64_t p = 5; p < 5 + s.layout.window; ++p) {
    std::fill_n(sequence.seam_stream(p), s.limits.stream_width, to_bf16(static_cast<float>(p)));
    std::fill_n(sequence.seam_pre(p), s.limits.copies, static_cast<float>(-p));
    *sequence.seam_image(p) = static_cast<uint8_t>(p % 2);
  }
  for (int64_t p = 5; p < 5 + s.layout.window; ++p) {
    EXPECT_EQ(to_float(sequence.seam_stream(p)[s.limits.stream_width - 1]), static_cast<float>(p));
    EXPECT_EQ(sequence.seam_pre(p)[s.limits.copies - 1], static_cast<float>(-p));
    EXPECT_EQ(*sequence.seam_image(p), p % 2);
  }
}

TEST(Sequence, ResetForgetsEverythingThatCounts) {
  const Slot s = slot();
  Sequence sequence(s.layout, s.limits);
  sequence.length = 33;
  sequence.blocks = {1, 2, 3};
  sequence.encoder_window_start = 4;
  sequence.decoder_window_start = 5;
  sequence.engram_history = {1, 2, 3};
  sequence.prefill_rows = 9;
  sequence.reset();
  EXPECT_EQ(sequence.length, 0);
  EXPECT_TRUE(sequence.blocks.empty());
  EXPECT_EQ(sequence.encoder_window_start, 0);
  EXPECT_EQ(sequence.decoder_window_start, 0);
  EXPECT_TRUE(sequence.engram_history.empty());
  EXPECT_EQ(sequence.prefill_rows, 0);
  EXPECT_GE(sequence.blocks.capacity(), static_cast<size_t>(s.layout.blocks_for(200)));
}

TEST(Sequence, RollbackBringsBackWhatRowsOverwrote) {
  const Slot s = slot();
  Sequence sequence(s.layout, s.limits);
  const size_t bytes = static_cast<size_t>(s.layout.window_record_bytes());
  const auto mark = [](int64_t layer, int64_t p) { return static_cast<int>(layer * 31 + p) % 251; };
  const int64_t end = s.layout.window + 9;
  const auto write = [&](int64_t layer, int64_t p) {
    std::memset(sequence.window_record(layer, p), mark(layer, p), bytes);
  };
  // Four of five new rows are kept for taking back; two are.
  sequence.rollback_floor = end + 1;
  for (int64_t layer = 0; layer < s.layout.layers; ++layer) {
    for (int64_t p = 0; p < end + 5; ++p) {
      if (p >= sequence.rollback_floor) {
        std::memcpy(sequence.saved_record(layer, p), sequence.window_record(layer, p), bytes);
      }
      write(layer, p);
    }
  }
  sequence.length = end + 5;
  sequence.engram_history = {1, 2, 3, 4, 5, 6, 7, 8};
  sequence.rollback(end + 3);
  EXPECT_EQ(sequence.length, end + 3);
  EXPECT_EQ(sequence.engram_history, (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  for (int64_t layer = 0; layer < s.layout.layers; ++layer) {
    for (int64_t p = end + 3 - s.layout.window; p < end + 3; ++p) {
      ASSERT_EQ(sequence.window_record(layer, p)[0], mark(layer, p)) << layer << " " << p;
      ASSERT_EQ(sequence.window_record(layer, p)[bytes - 1], mark(layer, p));
    }
  }
}

TEST(Sequence, SlotBytesCountsWhatIsTaken) {
  const Slot s = slot();
  const CacheLayout& l = s.layout;
  int64_t want = l.layers * l.window * l.window_record_bytes();
  want += l.tails * (l.max_ratio + 5) * 2 * l.head_dim * 4;
  want += l.layers * 5 * l.window_record_bytes();
  want += 13 * 4;  // 200 tokens in blocks of 16
  want += l.window * (24 * 2 + 4 * 4 + 1);
  EXPECT_EQ(Sequence::slot_bytes(l, s.limits), want);
  SequenceLimits without = s.limits;
  without.keep_seam = false;
  EXPECT_EQ(Sequence::slot_bytes(l, without), want - l.window * (24 * 2 + 4 * 4 + 1));
}

}  // namespace
}  // namespace cedra::cache

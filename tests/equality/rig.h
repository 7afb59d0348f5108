// What the equality tests share: a golden folder with sessions on demand, prompts, and a comparison
// of bits.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "golden/session.h"

namespace cedra::equality {

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;
using golden::Session;
using model::Segment;
using model::Want;

// The folder's model; loaded once per process, never changed.
const model::Model& model_of(const std::string& folder);

inline const char* const kFolders[] = {"tiny", "deep"};
std::vector<std::string> levels();
// Every level but the oracle; the oracle alone if there is no other.
std::vector<std::string> fast_levels();

// The same tokens for the same seed, everywhere.
Tokens random_tokens(const model::Model& model, int64_t count, uint32_t seed);

inline std::span<const int32_t> slice(const Tokens& tokens, int64_t begin, int64_t end) {
  return std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

// One folder at one level.
class Rig {
 public:
  Rig(const std::string& folder, const std::string& level)
      : model_(model_of(folder)), level_(level) {}

  const model::Model& model() const { return model_; }
  const TextConfig& text() const { return model_.text(); }
  const std::string& level() const { return level_; }
  bool oracle() const { return level_ == "oracle"; }
  int64_t window() const { return text().sliding_window; }

  // Fails the test if it cannot be had.
  std::unique_ptr<Session> session(golden::SessionOptions options = {}) const;
  // Logits of every row, one step, one thread, fresh session.
  Logits one_shot(const Tokens& tokens) const;

  // Rows [begin, end) of logits.
  Logits rows(const Logits& all, int64_t begin, int64_t end) const;
  // Whether `got` has the bits of `want`; if not, says where.
  testing::AssertionResult same(const Logits& got, const Logits& want) const;

 private:
  const model::Model& model_;
  std::string level_;
};

// Runs `tokens` on a sequence in chunks of `chunk`; logits of every row.
Logits run_chunks(Session& session, cache::Sequence& sequence, std::span<const int32_t> tokens,
                  int64_t chunk);
// The same as a bounded prefill; logits of the rows that the decoder half sees.
Logits run_bounded(Session& session, cache::Sequence& sequence, std::span<const int32_t> tokens,
                   int64_t chunk, Want want = Want::kAll);

// Logits of the last step's wanted rows, 1 at a time.
Logits all_logits(Session& session);

// Bytes of the compressed rows and index keys of positions [0, tokens) of a sequence: whole rows
// that are finished, source by source. Bytes of a block beyond them mean nothing.
std::vector<uint8_t> compressed_bytes(Session& session, const cache::Sequence& sequence,
                                      int64_t tokens);
// Window records of a layer for positions [begin, end).
std::vector<uint8_t> window_bytes(cache::Sequence& sequence, int64_t layer, int64_t begin,
                                  int64_t end);

// Fills all free blocks with 0xFF and puts them into a random order.
void shuffle_free_blocks(cache::BlockPool& pool, std::mt19937& random);
// 0xFF into everything that a new request must not read from its slot.
void soil(cache::Sequence& sequence);

}  // namespace cedra::equality

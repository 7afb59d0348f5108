// Speculative decoding with the checkpoint's draft stages, as the vendor's recipe asks for it
// (docs/dspark.md).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace cedra::engine {

enum class DraftSampling : uint8_t {
  kGreedy,         // the likeliest
  kProbabilistic,  // drawn by the request's own rules
};

enum class RejectionMethod : uint8_t { kStandard, kBlock };

// Replaces what the stages drafted: for tests and benchmarks. On the engine's thread; the drafts
// count as likeliest ones.
class DraftForcing {
 public:
  // `tokens`: prompt and answer so far.
  virtual void force(std::span<const int32_t> tokens, std::span<int32_t> drafts) = 0;

 protected:
  ~DraftForcing() = default;
};

// As many drafts as the stages were trained for.
inline constexpr int64_t kTrainedBlock = -1;
// Far more than that.
inline constexpr int64_t kMaxSpeculativeTokens = 16;

struct SpeculativeConfig {
  int64_t num_speculative_tokens = 0;  // 0 = off
  DraftSampling draft_sample_method = DraftSampling::kGreedy;
  RejectionMethod rejection_sample_method = RejectionMethod::kStandard;
  // Verify as many drafts as pay, and draft only while it pays; otherwise always all of them.
  bool enable_adaptive_verification = true;
  DraftForcing* forcing = nullptr;  // outlives the engine

  bool on() const { return num_speculative_tokens != 0; }
  // Whether tokens are drawn as without drafts and compared, which changes not even the answer of a
  // seed. Otherwise answers have the same distribution.
  bool compares() const {
    return draft_sample_method == DraftSampling::kGreedy &&
           rejection_sample_method == RejectionMethod::kStandard;
  }
};

// The JSON object of --speculative-config, with vLLM's keys: method ("dspark"),
// num_speculative_tokens (default: the trained block), draft_sample_method ("greedy",
// "probabilistic"), rejection_sample_method ("standard", "block"), enable_adaptive_verification.
// kInvalid names the key and what would be right.
Result<SpeculativeConfig> parse_speculative_config(std::string_view json);

}  // namespace cedra::engine

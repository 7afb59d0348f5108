// --speculative-config: what is accepted, and that every refusal names its key.
#include "engine/speculative_config.h"

#include <gtest/gtest.h>

namespace cedra::engine {
namespace {

TEST(SpeculativeConfig, TheVendorsRecipe) {
  const auto config = parse_speculative_config(
      R"({"method":"dspark","num_speculative_tokens":5,"draft_sample_method":"probabilistic",)"
      R"("rejection_sample_method":"block","enable_adaptive_verification":true})");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->num_speculative_tokens, 5);
  EXPECT_EQ(config->draft_sample_method, DraftSampling::kProbabilistic);
  EXPECT_EQ(config->rejection_sample_method, RejectionMethod::kBlock);
  EXPECT_TRUE(config->enable_adaptive_verification);
  EXPECT_FALSE(config->compares());
}

TEST(SpeculativeConfig, DefaultsKeepTheTokensOfASeed) {
  const auto config = parse_speculative_config(R"({"method":"dspark"})");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->num_speculative_tokens, kTrainedBlock);
  EXPECT_TRUE(config->on());
  EXPECT_TRUE(config->compares());
  EXPECT_TRUE(config->enable_adaptive_verification);
  EXPECT_FALSE(SpeculativeConfig().on());
}

TEST(SpeculativeConfig, RefusalsNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "speculative-config"},
      {"[]", "object"},
      {"{}", "method"},
      {R"({"method":"eagle"})", "method"},
      {R"({"method":"dspark","num_speculative_tokens":0})", "num_speculative_tokens"},
      {R"({"method":"dspark","num_speculative_tokens":17})", "num_speculative_tokens"},
      {R"({"method":"dspark","num_speculative_tokens":"5"})", "num_speculative_tokens"},
      {R"({"method":"dspark","draft_sample_method":"other"})", "draft_sample_method"},
      {R"({"method":"dspark","rejection_sample_method":"synthetic"})", "rejection_sample_method"},
      {R"({"method":"dspark","enable_adaptive_verification":1})", "enable_adaptive_verification"},
      {R"({"method":"dspark","model":"x"})", "model"},
  };
  for (const auto& [json, key] : cases) {
    const auto config = parse_speculative_config(json);
    ASSERT_FALSE(config.has_value()) << json;
    EXPECT_EQ(config.error().code, Code::kInvalid) << json;
    EXPECT_NE(config.error().message.find(key), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace cedra::engine

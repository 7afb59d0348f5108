#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

namespace cedra {
TEST(Smoke, OpensAll) {
  for (const char* f : {"/models/tiny", "/tests/golden/tiny", "/tests/golden/deep"}) {
    auto c = Checkpoint::open(std::string(CEDRA_SOURCE_DIR) + f, {.verify = Verify::kAll});
    ASSERT_TRUE(c.has_value()) << c.error().message;
    EXPECT_TRUE(c->warnings().empty()) << c->warnings().front();
    EXPECT_TRUE(c->skipped().empty());
    auto w = c->weight("layers.0.attn.wq_a");
    ASSERT_TRUE(w.has_value());
    EXPECT_NE(w->scale, nullptr);
  }
}
}  // namespace cedra

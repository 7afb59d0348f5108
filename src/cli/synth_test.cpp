// Runs the built program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/test_program.h"

namespace cedra::cli::testing {
namespace {

using ::testing::HasSubstr;

TEST(Synth, SaysHowLargeTheReleaseIs) {
  const Ran result = run("synth /nonexistent/folder --dry-run");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output, "510.29 GB\n");
}

TEST(Synth, RefusesByName) {
  Ran result = run("synth /nonexistent/folder --layers 3");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("cedra synth: layers must be between 6 and 2048, got 3"));
  result = run("synth /dev/null --layers 6 --vocab 1000 --engram-rows 100");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("/dev/null is no folder"));
}

}  // namespace
}  // namespace cedra::cli::testing

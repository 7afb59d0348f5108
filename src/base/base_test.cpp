#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/log.h"
#include "base/mapped_file.h"

namespace cedra {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("cedra_base_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, MapsTheBytes) {
  const auto file = MappedFile::open(write("a", "hello"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(std::string(file->bytes().begin(), file->bytes().end()), "hello");
}

TEST_F(MappedFileTest, EmptyFileIsAnEmptySpan) {
  const auto file = MappedFile::open(write("a", ""));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
  file->advise(Access::kRandom);
  EXPECT_TRUE(file->populate(0, 10).has_value());
}

TEST_F(MappedFileTest, MoveKeepsTheMapping) {
  auto file = MappedFile::open(write("a", "hello"));
  ASSERT_TRUE(file.has_value());
  MappedFile moved = std::move(*file);
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().size(), 5u);
  EXPECT_EQ(assigned.bytes()[4], 'o');
}

TEST_F(MappedFileTest, PopulateAndAdviseClampToTheFile) {
  const auto file = MappedFile::open(write("a", std::string(10000, 'x')));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->populate(4097, std::numeric_limits<size_t>::max()).has_value());
  EXPECT_TRUE(file->populate(20000, 5).has_value());
  file->advise(Access::kWillNeed, 9999, 100);
  file->advise(Access::kSequential, 5000, 1);
}

TEST_F(MappedFileTest, ErrorsNameThePath) {
  const auto missing = MappedFile::open(folder_ / "missing");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr((folder_ / "missing").string()));

  const auto folder = MappedFile::open(folder_);
  ASSERT_FALSE(folder.has_value());
  EXPECT_THAT(folder.error().message, HasSubstr("not a regular file"));
}

TEST_F(MappedFileTest, PipeIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::open(folder_ / "pipe").has_value());
  EXPECT_FALSE(read_file(folder_ / "pipe", 100).has_value());
}

TEST_F(MappedFileTest, ReadFileHasALimit) {
  const auto path = write("a", "12345");
  EXPECT_EQ(read_file(path, 5).value(), "12345");
  const auto large = read_file(path, 4);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, Code::kTooLarge);
  EXPECT_THAT(large.error().message, HasSubstr("5 bytes, at most 4"));
}

TEST(Checked, ReportsOverflow) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_FALSE(checked_add(kMax, 1).has_value());
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1), 0xFFFFFFFF00000000u);
  EXPECT_FALSE(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32).has_value());
}

TEST(Checked, Product) {
  const std::vector<int64_t> none, shape = {3, 5}, zero = {int64_t{1} << 62, 0},
                                   large = {int64_t{1} << 32, int64_t{1} << 31}, negative = {-1};
  EXPECT_EQ(checked_product(none), 1);
  EXPECT_EQ(checked_product(shape), 15);
  EXPECT_EQ(checked_product(zero), 0);
  EXPECT_FALSE(checked_product(large).has_value());
  EXPECT_FALSE(checked_product(negative).has_value());
  EXPECT_EQ(ceil_div(0, 32), 0);
  EXPECT_EQ(ceil_div(33, 32), 2);
}

TEST(Log, LevelsAndStderr) {
  EXPECT_EQ(log::level_from_name("warning"), log::Level::kWarning);
  EXPECT_FALSE(log::level_from_name("loud").has_value());
  testing::internal::CaptureStderr();
  log::set_level(log::Level::kWarning);
  log::info("not {}", "shown");
  log::warning("shown {}\nforged", 7);
  log::set_level(log::Level::kInfo);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("warning shown 7\\x0aforged"));
  EXPECT_THAT(text, testing::Not(HasSubstr("not shown")));
}

TEST(Log, EventsAreTextOrJson) {
  const auto logged = [] {
    testing::internal::CaptureStderr();
    log::event(log::Level::kWarning, "a \"b\"\n",
               {{"path", "/x y"}, {"plain", "z\x01"}, {"count", int64_t{3}}, {"ms", 1.5}});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(logged(),
              HasSubstr("warning a \"b\"\\x0a path=\"/x y\" plain=z\\x01 count=3 ms=1.500"));
  log::set_json(true);
  const std::string json = logged();
  log::set_json(false);
  EXPECT_THAT(json, testing::StartsWith("{\"time\":\"20"));
  EXPECT_THAT(json, HasSubstr(R"("level":"warning","message":"a \"b\"\u000a","path":"/x y",)"
                              R"("plain":"z\u0001","count":3,"ms":1.500})"));
}

}  // namespace
}  // namespace cedra

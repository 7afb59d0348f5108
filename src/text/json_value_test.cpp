#include "text/json_value.h"

#include <gtest/gtest.h>

namespace cedra::text {
namespace {

std::string round_trip(std::string_view text) {
  JsonReader reader;
  const auto value = reader.read(text);
  return value ? python_json(*value) : "error: " + value.error().message;
}

TEST(JsonValue, SpellsAsPython) {
  // Each pair was checked with json.dumps(json.loads(left), ensure_ascii=False).
  EXPECT_EQ(round_trip("{\"b\":1,\"a\":[true,false,null]}"),
            "{\"b\": 1, \"a\": [true, false, null]}");
  EXPECT_EQ(
      round_trip("[1e-5,0.0001,1e16,1e15,123456.789,100.0,1.0,0.1,5e-324,1.5e300]"),
      "[1e-05, 0.0001, 1e+16, 1000000000000000.0, 123456.789, 100.0, 1.0, 0.1, 5e-324, 1.5e+300]");
  EXPECT_EQ(round_trip("[-0,-0.0,0,1E2,-1.25e4,12345678901234567890123,9007199254740993]"),
            "[0, -0.0, 0, 100.0, -12500.0, 12345678901234567890123, 9007199254740993]");
  EXPECT_EQ(round_trip("[1e999,-1e999,1e-999]"), "[Infinity, -Infinity, 0.0]");
  EXPECT_EQ(round_trip("\"\\u0001\\u001f\\u007f\\/\\\"\\\\\\b\\f\\n\\r\\t\\u4e2d\\ud83d\\ude00\""),
            "\"\\u0001\\u001f\x7f/\\\"\\\\\\b\\f\\n\\r\\t\u4e2d\U0001F600\"");
  EXPECT_EQ(round_trip("{}"), "{}");
  EXPECT_EQ(round_trip(" [ ] "), "[]");
}

TEST(JsonValue, RepeatedKeysKeepPlaceAndTakeTheLastValue) {
  EXPECT_EQ(round_trip("{\"a\":1,\"b\":2,\"a\":3}"), "{\"a\": 3, \"b\": 2}");
  std::string text = "{";
  for (int i = 0; i < 20; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  const std::string many = round_trip(text + "\"k3\":1,\"k19\":2}");
  EXPECT_NE(many.find("\"k2\": 0, \"k3\": 1, \"k4\": 0"), std::string::npos) << many;
  EXPECT_TRUE(many.ends_with("\"k19\": 2}")) << many;
}

TEST(JsonValue, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",         " ",    "nul",        "tru",     "1x",          "01",
        "1.",       "-",    "+1",         ".5",      "NaN",         "[NaN]",
        "[1 2]",    "[1,]", "[,]",        "{\"a\"}", "{\"a\":}",    "{\"a\":1,}",
        "{a:1}",    "1 2",  "1,2",        "\"a\" 1", "[] []",       "[]]",
        "[1,2}",    "\"a",  "[\"a\nb\"]", "\"\\x\"", "\"\\ud800\"", "\"\\ud800\\u0041\"",
        "\"\xff\"", "]",    "[",          "1] [2",   "{} x"}) {
    JsonReader reader;
    EXPECT_FALSE(reader.read(text).has_value()) << text;
    EXPECT_FALSE(reader.valid(text)) << text;
  }
}

TEST(JsonValue, DepthAndSizeAreBounded) {
  JsonReader reader;
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(reader.valid(nested(128)));
  EXPECT_FALSE(reader.valid(nested(129)));
  const auto deep = reader.read(nested(500));
  ASSERT_FALSE(deep.has_value());
  EXPECT_EQ(deep.error().code, Code::kTooLarge);
  EXPECT_FALSE(reader.valid(std::string(1 << 20, '[')));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(reader.valid(objects));

  JsonReader few({.values = 3});
  EXPECT_TRUE(few.valid("[1,{\"a\":2}]"));
  EXPECT_EQ(few.read("[1,2,3,4]").error().code, Code::kTooLarge);

  JsonReader small({.depth = 4, .bytes = 8});
  EXPECT_TRUE(small.valid("[1,2,3]"));
  EXPECT_EQ(small.read("[1,2,3,4]").error().code, Code::kTooLarge);
}

TEST(JsonValue, NumbersKeepTheirSpelling) {
  JsonReader reader;
  EXPECT_EQ(reader.read("9007199254740993")->as_int64(), 9007199254740993);
  EXPECT_EQ(reader.read("9223372036854775808")->as_int64(), std::nullopt);
  EXPECT_TRUE(reader.read("9223372036854775808")->is_integer());
  EXPECT_EQ(reader.read("1.0")->as_int64(), std::nullopt);
  EXPECT_EQ(reader.read("1e2")->as_double(), 100.0);
  EXPECT_EQ(reader.read("true")->as_double(), std::nullopt);
}

}  // namespace
}  // namespace cedra::text

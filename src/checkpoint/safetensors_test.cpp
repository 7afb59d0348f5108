#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/value_check.h"

namespace cedra {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file of this header and `data_bytes` zero bytes.
std::string file_of(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + std::string(data_bytes, '\0');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "f.st");
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string header =
      "{" + tensor("b", "F32", "[2,3]", "[3,27]") + "," + R"("__metadata__":{"format":"pt"},)" +
      tensor("a", "U8", "[3]", "[0,3]") + "," + tensor("none", "BF16", "[0,7]", "[27,27]") + "," +
      tensor("scalar", "F8_E8M0", "[]", "[27,28]") + "}   ";
  const auto parsed = parse(file_of(header, 28));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->data_begin, 8 + header.size());
  ASSERT_EQ(parsed->tensors.size(), 4u);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  // F32 at an odd offset: the format allows it.
  EXPECT_EQ(parsed->tensors[1].name, "b");
  EXPECT_EQ(parsed->tensors[1].begin, parsed->data_begin + 3);
  EXPECT_THAT(parsed->tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed->tensors[1].dtype, Dtype::kF32);
  EXPECT_EQ(parsed->tensors[3].name, "scalar");
}

TEST(Safetensors, NoTensors) {
  EXPECT_TRUE(parse(file_of("{}", 0)).has_value());
  EXPECT_FALSE(parse(file_of("{}", 1)).has_value());
}

struct Hostile {
  const char* what;
  std::string file;
  const char* message;
};

TEST(Safetensors, HostileFiles) {
  const auto one = [](const std::string& entry, size_t bytes) {
    return file_of("{" + entry + "}", bytes);
  };
  const std::string good = one(tensor("a", "BF16", "[2,3]", "[0,12]"), 12);
  ASSERT_TRUE(parse(good).has_value());
  std::string huge_length = good;
  for (size_t i = 0; i < 8; ++i) huge_length[i] = '\xff';
  std::string length_past_end = good;
  length_past_end[0] = '\x7f';
  std::string deep = "{\"a\":";
  for (int i = 0; i < 1000; ++i) deep += "{\"a\":";

  const std::vector<Hostile> files = {
      {"empty", "", "0 bytes, a safetensors file has at least 8"},
      {"seven bytes", "1234567", "7 bytes"},
      {"one byte short", good.substr(0, good.size() - 1),
       "file has 77 bytes, its tensors end at 78: it is truncated"},
      {"one byte long", good + "x",
       "file has 79 bytes, its tensors end at 78: it is longer than its header says"},
      {"huge length", huge_length, "header length is 18446744073709551615, at most"},
      {"length past the end", length_past_end, "header length is 127, only 70 bytes follow"},
      {"not json", file_of("{]", 0), "header is not JSON"},
      {"array", file_of("[1]", 0), "header does not start with {"},
      {"leading space", file_of(" {}", 0), "header does not start with {"},
      {"deep", file_of(deep, 0), "header is not JSON of at most 8 levels"},
      {"bad utf-8", file_of("{\"\xff\":1}", 0), "header is not JSON"},
      {"twice", one(tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("a", "U8", "[1]", "[1,2]"), 2),
       "\"a\" stands twice"},
      {"metadata number", file_of(R"({"__metadata__":{"n":1}})", 0),
       "__metadata__.n is not a string"},
      {"metadata list", file_of(R"({"__metadata__":[]})", 0), "__metadata__ is not an object"},
      {"entry not an object", file_of(R"({"a":1})", 0), "a: entry is not an object"},
      {"unknown dtype", one(tensor("a", "F7", "[1]", "[0,1]"), 1), "a: dtype \"F7\" is unknown"},
      {"dtype number", file_of(R"({"a":{"dtype":1,"shape":[],"data_offsets":[0,0]}})", 0),
       "a: dtype is not a string"},
      {"no shape", file_of(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0),
       "a: shape is missing"},
      {"extra key", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0),
       "a: unknown key \"x\""},
      {"key twice",
       file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0),
       "a: dtype stands twice"},
      {"negative dim", one(tensor("a", "U8", "[-1]", "[0,1]"), 1), "a: shape has -1, must be"},
      {"fractional dim", one(tensor("a", "U8", "[1.0]", "[0,1]"), 1), "a: shape has 1.0, must be"},
      {"dim over 63 bits", one(tensor("a", "U8", "[9223372036854775808]", "[0,1]"), 1),
       "a: shape has 9223372036854775808, must be"},
      {"product overflow", one(tensor("a", "U8", "[4294967296,4294967296]", "[0,0]"), 0),
       "a: shape [4294967296, 4294967296] does not fit 64 bits"},
      {"byte overflow", one(tensor("a", "F64", "[4611686018427387904]", "[0,0]"), 0),
       "does not fit 64 bits"},
      {"too many dims", one(tensor("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1),
       "a: shape has more than 8 entries"},
      {"one offset", one(tensor("a", "U8", "[1]", "[0]"), 1),
       "a: data_offsets has not two entries"},
      {"three offsets", one(tensor("a", "U8", "[1]", "[0,1,2]"), 1),
       "a: data_offsets has more than 2 entries"},
      {"backwards", one(tensor("a", "U8", "[1]", "[1,0]"), 1),
       "a: data_offsets [1, 0] go backwards"},
      {"negative offset", one(tensor("a", "U8", "[1]", "[-1,0]"), 1), "a: data_offsets has -1"},
      {"2^53 + 1", one(tensor("a", "U8", "[1]", "[9007199254740992,9007199254740993]"), 1),
       "data starts at byte 9007199254740992 of the data section"},
      {"offset at 2^63 - 1",
       one(tensor("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]"), 1),
       "it is truncated"},
      {"size differs", one(tensor("a", "BF16", "[2,3]", "[0,11]"), 11),
       "a: BF16 [2, 3] needs 12 bytes, data_offsets [0, 11] hold 11"},
      {"hole", one(tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "U8", "[1]", "[2,3]"), 3),
       "b: data starts at byte 2 of the data section, the tensor before it ends at 1: there is a "
       "hole"},
      {"hole at the start", one(tensor("a", "U8", "[1]", "[1,2]"), 2), "there is a hole"},
      {"overlap",
       one(tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[1,3]"), 3),
       "b: data starts at byte 1 of the data section, the tensor before it ends at 2: they "
       "overlap"},
      {"same bytes twice",
       one(tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[0,2]"), 2),
       "they overlap"},
      {"empty name", one(tensor("", "U8", "[1]", "[0,1]"), 1), "a tensor name has 0 bytes"},
      {"long name", one(tensor(std::string(513, 'n'), "U8", "[1]", "[0,1]"), 1),
       "a tensor name has 513 bytes"},
  };
  for (const Hostile& hostile : files) {
    const auto parsed = parse(hostile.file);
    ASSERT_FALSE(parsed.has_value()) << hostile.what;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt) << hostile.what;
    EXPECT_THAT(parsed.error().message, HasSubstr(hostile.message)) << hostile.what;
    EXPECT_THAT(parsed.error().message, testing::StartsWith("f.st: ")) << hostile.what;
  }
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string good = file_of("{" + tensor("a", "BF16", "[2,3]", "[0,12]") + "}", 12);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse(good.substr(0, size)).has_value()) << size;
  }
}

TEST(Dtype, NamesRoundTrip) {
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_bytes(Dtype::kBool), 1);
  EXPECT_EQ(dtype_bytes(Dtype::kBf16), 2);
  EXPECT_EQ(dtype_bytes(Dtype::kF64), 8);
  EXPECT_FALSE(dtype_from_name("bf16").has_value());
}

// Sizes around the scan block, at every alignment.
TEST(ValueCheck, FindsTheFirst) {
  for (const size_t elements : {1u, 7u, 4095u, 4096u, 4097u, 9000u}) {
    for (const size_t misalignment : {0u, 1u, 3u}) {
      std::vector<uint8_t> bytes(elements * 4 + misalignment, 0);
      const std::span<const uint8_t> view(bytes.data() + misalignment, elements * 4);
      EXPECT_FALSE(first_bad_value(Dtype::kF32, view).has_value());
      bytes[misalignment + (elements - 1) * 4 + 3] = 0x7F;
      bytes[misalignment + (elements - 1) * 4 + 2] = 0x80;
      EXPECT_EQ(first_bad_value(Dtype::kF32, view), static_cast<int64_t>(elements - 1));
    }
  }
}

TEST(ValueCheck, BadCodes) {
  const auto bad = [](Dtype dtype, std::vector<uint8_t> bytes) {
    return first_bad_value(dtype, bytes).has_value();
  };
  EXPECT_TRUE(bad(Dtype::kF8E8M0, {0, 254, 255}));
  EXPECT_FALSE(bad(Dtype::kF8E8M0, {0, 254}));
  EXPECT_TRUE(bad(Dtype::kF8E4M3, {0x7F}));
  EXPECT_TRUE(bad(Dtype::kF8E4M3, {0xFF}));
  EXPECT_FALSE(bad(Dtype::kF8E4M3, {0x7E, 0xFE, 0x80}));
  EXPECT_TRUE(bad(Dtype::kBf16, {0x80, 0x7F}));   // infinity
  EXPECT_TRUE(bad(Dtype::kBf16, {0xC0, 0xFF}));   // NaN
  EXPECT_FALSE(bad(Dtype::kBf16, {0x7F, 0x7F}));  // the greatest finite value
  EXPECT_TRUE(bad(Dtype::kF16, {0x00, 0x7C}));
  EXPECT_FALSE(bad(Dtype::kF16, {0xFF, 0x7B}));
  EXPECT_FALSE(bad(Dtype::kI8, {0xFF, 0x7F}));  // packed FP4: every code is a number
}

}  // namespace
}  // namespace cedra

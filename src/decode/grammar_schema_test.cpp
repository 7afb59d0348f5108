// JSON Schema: every keyword of docs/structured_output.md with what it takes and refuses, and what
// is said of those that are not there.
#include "decode/grammar_schema.h"

#include <gmock/gmock.h>

#include <chrono>

#include "decode/grammar_number.h"
#include "decode/test_grammar.h"

namespace cedra::decode {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct Case {
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const auto compiled = grammar(schema(c.schema));
    ASSERT_NE(compiled, nullptr) << c.schema;
    for (const char* text : c.good) EXPECT_TRUE(takes(compiled, text)) << c.schema << "  " << text;
    for (const char* text : c.bad) EXPECT_FALSE(takes(compiled, text)) << c.schema << "  " << text;
  }
}

TEST(Schema, Types) {
  check({
      {R"({"type":"null"})", {"null"}, {"true", "nul", ""}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "True", "1"}},
      {R"({"type":"integer"})", {"0", "-7", "123"}, {"01", "1.0", "1e2", "-", "-0", "+1"}},
      {R"({"type":"number"})",
       {"0", "-0.5", "1e5", "1.25E-3", "12"},
       {".5", "1.", "01", "1e", "1e999", "NaN"}},
      {R"({"type":"string"})",
       {R"("")", R"("a\n\u00e4\"\\/")", R"("\ud83d\ude00")", "\"\u00e4\u4e2d\xF0\x9F\x98\x80\""},
       {"\"a", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\ude00")", R"("\u00g0")", "a"}},
      {R"({"type":["string","null"]})", {"null", R"("x")"}, {"1", "true"}},
      {R"({"type":"array"})", {"[]", "[1, \"a\",null]", "[[],{}]"}, {"[1,]", "[", "[1 2]"}},
      {R"({"type":"object"})",
       {"{}", R"({"a":1, "b": [true]})"},
       {R"({"a"})", R"({a:1})", R"({"a":1,})"}},
      {"{}", {"1", "{}", "[null]", R"("x")"}, {"x", ""}},
      {"true", {"1", "[]"}, {"x"}},
      {R"({"title":"T","description":"{\"}<|","default":3,"examples":[1],"$comment":"c",
          "deprecated":true,"x-note":{"a":1},"type":"integer"})",
       {"3"},
       {"{}"}},
  });
}

TEST(Schema, Strings) {
  check({
      {R"({"type":"string","minLength":2})", {R"("ab")", R"("abc")"}, {R"("a")", R"("")"}},
      // Characters count, not bytes, nor escapes.
      {R"({"type":"string","maxLength":2})",
       {R"("")", "\"\u4e2d\u4e2d\"", R"("\n\"")"},
       {R"("abc")", "\"\u4e2d\u4e2d\u4e2d\""}},
      {R"({"minLength":1,"maxLength":1})", {R"("a")"}, {R"("")", R"("ab")", "1"}},
      {R"({"type":"string","pattern":"^[a-c]+$"})", {R"("abc")"}, {R"("abd")", R"("")"}},
      {R"({"type":"string","pattern":"b+"})", {R"("abbc")", R"("b")"}, {R"("ac")"}},
      {R"({"type":"string","pattern":"^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xa")", R"("bx")"}},
      {R"({"type":"string","pattern":"^.{2,3}$","maxLength":2})", {R"("ab")"}, {R"("abc")"}},
      {R"({"type":"string","pattern":"a","minLength":3,"maxLength":4})",
       {R"("xax")", R"("xxxa")"},
       {R"("a")", R"("xxx")", R"("xxxxa")"}},
      {R"({"type":"string","pattern":"^\"\\\\\\n$"})", {R"("\"\\\n")"}, {"\"\"\\\n\""}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-28")", R"("1999-12-31")"},
       {R"("2024-02-30")", R"("2024-13-01")", R"("2024-1-1")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-28T23:59:59Z")", R"("2024-02-28T00:00:00.25+01:00")"},
       {R"("2024-02-28 23:59:59Z")", R"("2024-02-28T24:00:00Z")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {R"({"type":"string","format":"email"})", {R"("a.b@c-d.org")"}, {R"("a@b")", R"("@c.d")"}},
      {R"({"type":"string","format":"ipv4"})", {R"("255.0.10.1")"}, {R"("256.0.0.1")"}},
      {R"({"type":"string","format":"uri"})", {R"("https://a.b/c?d=e#f")"}, {R"("a b")"}},
  });
}

TEST(Schema, Numbers) {
  check({
      {R"({"type":"integer","minimum":3,"maximum":21})",
       {"3", "9", "10", "21"},
       {"2", "22", "-3", "3.0", "100", "03"}},
      {R"({"type":"integer","minimum":-15,"maximum":7})",
       {"-15", "-9", "0", "7"},
       {"-16", "8", "-0"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"1", "99999"}, {"0", "-1"}},
      {R"({"type":"integer","exclusiveMaximum":-1})", {"-2", "-100"}, {"-1", "0"}},
      {R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type":"integer","minimum":199,"maximum":1002})",
       {"199", "200", "999", "1000", "1002"},
       {"198", "1003", "99"}},
      {R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})",
       {"14", "21", "28"},
       {"7", "15", "35"}},
      {R"({"type":"integer","multipleOf":5})", {"0", "-5", "1005"}, {"4", "-0"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "0.5", "1", "1.0", "0.999"},
       {"1.1", "-0.1", "2", "-0"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
       {"0.1", "0.001"},
       {"0", "1", "0.0", "1.0", "0.000"}},
      {R"({"type":"number","minimum":-1.25,"maximum":10.5})",
       {"-1.25", "-1.2", "0", "10.5", "10.49", "9.99", "-0.3"},
       {"-1.26", "10.51", "11", "-2"}},
      {R"({"type":"number","minimum":1.5e1})", {"15", "15.1", "100"}, {"14.9", "1"}},
      {R"({"type":"integer","format":"int32","minimum":2147483640})",
       {"2147483647"},
       {"2147483648"}},
      {R"({"type":["integer","string"],"minimum":5})", {"5", R"("x")"}, {"4"}},
  });
}

TEST(Schema, Arrays) {
  check({
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1, 2,\n 3]"},
       {R"(["a"])"}},
      {R"({"type":"array","items":{"type":"null"},"minItems":1,"maxItems":2})",
       {"[null]", "[null,null]"},
       {"[]", "[null,null,null]"}},
      {R"({"type":"array","minItems":2})", {"[1,2]", "[1,2,3]"}, {"[1]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {"[]", "[1]", R"([1,"a"])"},
       {R"(["a"])", R"([1,"a",2])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":2})",
       {"[1,null]", "[1,null,null]"},
       {"[1]", "[1,1]"}},
      {R"({"type":"array","prefixItems":[true,true],"items":false,"minItems":2})",
       {"[1,2]"},
       {"[1]", "[1,2,3]"}},
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":false})", {"[1,1]"}, {}},
  });
}

TEST(Schema, Objects) {
  check({
      // In the schema's order; optional ones may be left out.
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},
          "c":{"type":"boolean"}},"required":["b"]})",
       {R"({"b":null})", R"({"a":1,"b":null})", R"({"b": null, "c": true})",
        R"({"a":1,"b":null,"c":false})"},
       {R"({})", R"({"b":null,"a":1})", R"({"a":1})", R"({"b":null,"d":1})",
        R"({"b":null,"b":null})"}},
      {R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
       {R"({})", R"({"a":null})", R"({"a":1,"x":2,"y":3})", R"({"x":2})", R"({"aa":1})"},
       {R"({"x":"s"})", R"({"x":1,"a":1})", R"({"\u0061":1})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"type":"object","required":["z"],"properties":{"a":{"type":"null"}}})",
       {R"({"z":1})", R"({"a":null,"z":[]})"},
       {"{}", R"({"a":null})"}},
      {R"({"type":"object","patternProperties":{"^x_":{"type":"integer"}},
          "additionalProperties":{"type":"null"}})",
       {R"({"x_1":1})", R"({"y":null,"x_":2})", "{}"},
       {R"({"x_1":null})", R"({"y":1})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,
          "maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
      {R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}},"minProperties":1})",
       {R"({"a":null})", R"({"b":null})"},
       {"{}"}},
      {R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}},"minProperties":2})",
       {R"({"a":null,"b":null})"},
       {R"({"a":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"unevaluatedProperties":false})",
       {R"({"a":null})"},
       {R"({"b":null})"}},
      {R"({"type":"object","properties":{"a\"\\\n\u00e4":{"type":"null"}}})",
       {"{\"a\\\"\\\\\\n\u00e4\":null}"},
       {}},
  });
}

TEST(Schema, Alternatives) {
  check({
      {R"({"enum":["a","ab",1,null,{"x":[1]}]})",
       {R"("a")", R"("ab")", "1", "null", R"({"x":[1]})", R"({ "x": [ 1 ] })"},
       {R"("abc")", "2", R"({"x":[2]})"}},
      {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
      {R"({"const":"x<y"})", {R"("x<y")"}, {R"("x")"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
       {"5", R"("a")"},
       {R"("ab")", "null"}},
      {R"({"type":"object","properties":{"k":{"type":"integer"},"v":{"type":"null"}},
          "anyOf":[{"required":["k"]},{"required":["v"]}]})",
       {R"({"k":1})", R"({"v":null})", R"({"k":1,"v":null})"},
       {"{}"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"null"}]})", {"1", "null"}, {R"("a")"}},
      {R"({"oneOf":[
          {"type":"object","properties":{"t":{"const":"a"},"n":{"type":"integer"}},"required":["t","n"]},
          {"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]})",
       {R"({"t":"a","n":1})", R"({"t":"b"})"},
       {R"({"t":"a"})", R"({"t":"b","n":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
          {"type":"object","properties":{"b":{"type":"null"},"a":{"minimum":5}}}]})",
       {R"({"a":5})", R"({"a":7,"b":null})"},
       {R"({"a":4})", R"({"b":null})"}},
      {R"({"allOf":[{"type":"number"},{"type":["integer","string"]}]})", {"1"}, {"1.5", R"("a")"}},
      {R"({"anyOf":[{"type":"string"},false]})", {R"("a")"}, {"1"}},
  });
}

TEST(Schema, References) {
  check({
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}})", {"1"}, {"null"}},
      {R"({"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},
          "required":["v"]})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"v":1,"next":{}})"}},
      {R"({"definitions":{"t":{"type":"object","properties":{"c":{"type":"array","items":
          {"$ref":"#/definitions/t"}}}}},"$ref":"#/definitions/t"})",
       {R"({})", R"({"c":[{"c":[]},{}]})"},
       {R"({"c":[1]})"}},
      {R"({"$ref":"#/$defs/s","maxLength":1,"$defs":{"s":{"type":"string"}}})",
       {R"("a")"},
       {R"("ab")"}},
      {R"({"prefixItems":[{"type":"integer"},{"$ref":"#/prefixItems/0"}]})",
       {"[1,2]"},
       {"[1,null]"}},
  });
}

TEST(Schema, WhiteSpaceIsBounded) {
  const auto compiled = grammar(schema(R"({"type":"object","properties":{"a":{"type":"array"}}})"));
  EXPECT_TRUE(takes(compiled, "{\n  \"a\": [\n    1,\n    2\n  ]\n}"));
  EXPECT_TRUE(takes(compiled, R"({ "a":[ 1, 2 ] })"));
  EXPECT_FALSE(takes(compiled, R"({  "a":[]})"));
  EXPECT_FALSE(takes(compiled, "{\n\n\"a\":[]}"));
  EXPECT_FALSE(takes(compiled, R"({"a" :[]})"));
  EXPECT_FALSE(takes(compiled, R"( {"a":[]})"));
  EXPECT_FALSE(takes(compiled, R"({"a":[]} )"));
  EXPECT_TRUE(takes(compiled, "{\n" + std::string(kMaxIndent, ' ') + "}"));
  EXPECT_FALSE(takes(compiled, "{\n" + std::string(kMaxIndent + 1, ' ') + "}"));
}

TEST(Schema, WhatIsNotSupportedIsNamedWithItsPlace) {
  struct Refusal {
    const char* schema;
    const char* says;
  };
  for (const auto& [text, says] : std::vector<Refusal>{
           {R"({"properties":{"a":{"items":{"not":{}}}}})",
            R"("not" at #/properties/a/items is not supported)"},
           {R"({"if":{}})", R"("if" at # is not supported)"},
           {R"({"type":"object","propertyNames":{}})", R"("propertyNames" at #)"},
           {R"({"contains":{}})", R"("contains")"},
           {R"({"dependentRequired":{}})", R"("dependentRequired")"},
           {R"({"minLenght":1})", R"("minLenght")"},
           {R"({"type":"array","uniqueItems":true})", R"("uniqueItems")"},
           {R"({"type":"array","items":[{}]})", R"("items" at # is not supported: as a list)"},
           {R"({"type":"string","format":"iri"})", R"("format" at # is not supported: with "iri")"},
           {R"({"type":"number","multipleOf":0.01})", R"("multipleOf")"},
           {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "might match both 0 and 1"},
           {R"({"oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},
               {"properties":{"a":{"const":2}},"required":["a"]}]})",
            "might match both"},
           {R"({"enum":["a"],"minLength":1})", R"("minLength" at # is not supported: beside enum)"},
           {R"({"$ref":"http://a/b"})", R"("$ref")"},
           {R"({"$ref":"#/nowhere"})", R"("$ref" at # "#/nowhere" leads nowhere)"},
           {R"({"properties":{"a":{"$id":"x"}}})", R"("$id" at #/properties/a)"},
           {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", R"("pattern")"},
           {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},
               {"properties":{"b":{}}}]})",
            R"("additionalProperties")"},
           {R"({"patternProperties":{"^a":{}},"properties":{"ab":{}}})", R"("patternProperties")"},
           {R"({"properties":{"a":{},"b":{},"c":{}},"minProperties":2})", R"("minProperties")"},
           {R"({"type":"string","maxLength":100000})",
            R"("maxLength" at # is not supported: above)"},
           {R"({"properties":{"a/b":{"type":"text"}}})", R"("type" at #/properties/a~1b expected)"},
           {R"({"type":"string","minLength":-1})", R"("minLength")"},
           {R"({"required":"a"})", R"("required")"},
           {R"({"required":["a"],"additionalProperties":false})", R"(demands "a")"},
           {R"({"properties":{"a":3}})", "#/properties/a must be an object or a boolean"},
           {R"~({"type":"string","pattern":"(?=a)"})~", "lookahead"},
           {R"({"type":"string","pattern":"("})", "a group without its ')'"},
           {R"({"enum":[]})", "at least one value"},
           {"false", "nothing can satisfy it"},
           {R"({"$ref":"#"})", "refers to itself"},
           {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "left recursion"},
           {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
            "nothing can satisfy it"},
           {"[]", "must be an object or a boolean"},
           {"{", "it: "},
       }) {
    EXPECT_THAT(error_of(schema(text)), HasSubstr(says)) << text;
    EXPECT_THAT(error_of(schema(text)), HasSubstr("it")) << text;
  }
}

TEST(Schema, HostileOnesEndSoonWithAnError) {
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += R"({"items":)";
  std::string long_enum = R"({"enum":[)";
  for (int i = 0; i < 30000; ++i) long_enum += "\"value " + std::to_string(i * 7919) + "\",";
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 20000; ++i)
    wide += "\"p" + std::to_string(i) + "\":{\"type\":\"string\",\"maxLength\":16000},";
  std::string chain = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 3000; ++i) {
    chain += "\"" + std::to_string(i) + R"(":{"allOf":[{"$ref":"#/$defs/)" + std::to_string(i + 1) +
             R"("},{"minLength":1}]},)";
  }
  chain += R"("3000":{"type":"string"}}})";
  std::string doubling = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 64; ++i) {
    const std::string next = R"({"$ref":"#/$defs/)" + std::to_string(i + 1) + "\"}";
    doubling += "\"" + std::to_string(i) + R"(":{"type":"array","prefixItems":[)" + next + "," +
                next + "]},";
  }
  doubling += R"("64":{"type":"null"}}})";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(error_of(schema(deep + "1" + std::string(5000, '}'))), "no error");
  EXPECT_EQ(error_of(schema(long_enum + "0]}")), "no error");
  EXPECT_NE(error_of(schema(std::string(kMaxGrammarBytes + 1, ' '))), "no error");
  error_of(schema(wide + "\"z\":true}}"));
  EXPECT_NE(error_of(schema(chain)), "no error");
  EXPECT_EQ(error_of(schema(doubling)), "no error");
  EXPECT_NE(error_of(schema(R"({"type":"array","items":{"type":"array","items":{"type":"array",
      "items":{"type":"null"},"minItems":16384},"minItems":16384},"minItems":99999})")),
            "no error");
  EXPECT_NE(error_of(schema(R"({"pattern":"(((a{1000}){1000}){1000}){1000}"})")), "no error");
  EXPECT_NE(error_of(schema(R"~({"pattern":"(a|b)*a(a|b){30}$","maxLength":100})~")), "no error");
  EXPECT_NE(error_of(schema(R"({"pattern":")" + std::string(60000, '(') + "\"}")), "no error");
  // No test of speed: it would have to wait for hours where a bound is missing.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
}

TEST(Schema, RandomTextsFollowNumbersBounds) {
  std::mt19937 random(11);
  struct Range {
    const char* schema;
    double low;
    double high;
  };
  for (const auto& [text, low, high] :
       {Range{R"({"type":"number","minimum":-3.25,"maximum":17.5})", -3.25, 17.5},
        Range{R"({"type":"number","minimum":0.001,"maximum":0.0025})", 0.001, 0.0025},
        Range{R"({"type":"integer","minimum":-1234,"maximum":98765})", -1234, 98765},
        Range{R"({"type":"number","maximum":-1e3,"minimum":-1e4})", -1e4, -1e3}}) {
    const auto compiled = grammar(schema(text));
    for (int i = 0; i < 100; ++i) {
      const Sampled sampled = sample(compiled, random, 200);
      ASSERT_TRUE(sampled.complete);
      const double value = std::stod(sampled.text);
      EXPECT_GE(value, low) << sampled.text;
      EXPECT_LE(value, high) << sampled.text;
    }
  }
}

TEST(Decimal, ReadsJsonNumbers) {
  const auto text = [](std::string_view literal) {
    const auto d = Decimal::parse(literal);
    if (!d) return std::string("none");
    return (d->negative ? "-" : "") + d->whole + "." + d->fraction;
  };
  EXPECT_EQ(text("0"), "0.");
  EXPECT_EQ(text("-0.0"), "0.");
  EXPECT_EQ(text("12.50"), "12.5");
  EXPECT_EQ(text("1.5e3"), "1500.");
  EXPECT_EQ(text("-25E-4"), "-0.0025");
  EXPECT_EQ(text("1e+2"), "100.");
  EXPECT_EQ(text("1e999"), "none");
}

}  // namespace
}  // namespace cedra::decode

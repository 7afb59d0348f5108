// Tool calls in the model's markup, reasoning, and how they go together. What comes out must be
// what the output parser reads.
#include "decode/grammar_tools.h"

#include <gmock/gmock.h>

#include "decode/test_grammar.h"
#include "text/output_parser.h"

namespace cedra::decode {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr char kD[] = "\xFF";  // the symbol of the markup's token

std::string invoke(const std::string& name, const std::string& parameters) {
  return std::string("<") + kD + " invoke name=\"" + name + "\">\n" + parameters + "\n</" + kD +
         " invoke>\n";
}
std::string parameter(const std::string& name, bool string, const std::string& value) {
  return std::string("<") + kD + " parameter name=\"" + name + "\" string=\"" +
         (string ? "true" : "false") + "\">" + value + "</" + kD + " parameter>";
}
std::string block(const std::string& calls) {
  return std::string("\n\n<") + kD + " calls>\n" + calls + "</" + kD + " calls>";
}

const char* const kSearch = R"({"type":"object","properties":{"query":{"type":"string"},
  "limit":{"type":"integer","minimum":1,"maximum":50},"tags":{"type":"array","items":{"type":"string"}},
  "mode":{"enum":["fast","deep",3]}},"required":["query"],"additionalProperties":false})";

GrammarSpec must(std::vector<GrammarTool> tools) {
  GrammarSpec spec;
  spec.calls = GrammarSpec::Calls::kMust;
  spec.markup = true;
  spec.tools = std::move(tools);
  return spec;
}

TEST(Tools, ArgumentsFollowTheSchema) {
  const auto compiled = grammar(must({{"search", kSearch, true}, {"now", "", true}}));
  const auto call = [&](const std::string& parameters) {
    return takes(compiled, block(invoke("search", parameters)));
  };
  EXPECT_TRUE(call(parameter("query", true, "a \"b\"\n< c")));
  EXPECT_TRUE(call(parameter("query", true, "")));
  EXPECT_TRUE(call(parameter("query", true, "x") + "\n" + parameter("limit", false, "50") + "\n" +
                   parameter("tags", false, R"(["a", "b"])") + "\n" +
                   parameter("mode", true, "fast")));
  EXPECT_TRUE(call(parameter("query", true, "x") + "\n" + parameter("mode", false, "3")));
  EXPECT_FALSE(call(""));
  EXPECT_FALSE(call(parameter("query", false, "\"x\"")));
  EXPECT_FALSE(call(parameter("query", true, "x") + "\n" + parameter("limit", false, "51")));
  EXPECT_FALSE(call(parameter("query", true, "x") + "\n" + parameter("limit", true, "5")));
  EXPECT_FALSE(call(parameter("query", true, "x") + "\n" + parameter("mode", true, "slow")));
  EXPECT_FALSE(call(parameter("query", true, "x") + "\n" + parameter("other", true, "y")));
  EXPECT_FALSE(call(parameter("limit", false, "1") + "\n" + parameter("query", true, "x")));
  EXPECT_TRUE(takes(compiled, block(invoke("now", ""))));
  EXPECT_TRUE(
      takes(compiled, block(invoke("now", "") + invoke("search", parameter("query", true, "x")))));
  EXPECT_FALSE(takes(compiled, block(invoke("later", ""))));
  EXPECT_FALSE(takes(compiled, block("")));
  EXPECT_FALSE(takes(compiled, "text"));
  EXPECT_FALSE(takes(compiled, block(invoke("now", "")) + " "));
}

TEST(Tools, TextInsideValuesNeverBecomesMarkup) {
  const auto compiled = grammar(must({{"f", R"({"type":"object","properties":{"s":{"type":"string"},
      "j":{"type":"object"},"k":{"enum":["a<|DSML| b"]}}})",
                                       false},
                                      {"g", R"({"type":"object","properties":{"s":{"type":"string",
      "maxLength":9}}})",
                                       true}}));
  for (const std::string tag : {"<\uff5cDSML", "</\uff5cDSML", "<|DSML", "</|DSML"}) {
    EXPECT_FALSE(takes(compiled, block(invoke("f", parameter("s", true, "a" + tag + "b"))))) << tag;
    EXPECT_FALSE(takes(compiled, block(invoke("g", parameter("s", true, tag))))) << tag;
    EXPECT_FALSE(takes(compiled, block(invoke("f", parameter("j", false, "{\"" + tag + "\":1}")))));
  }
  EXPECT_TRUE(takes(compiled, block(invoke("f", parameter("s", true, "a < b </ c <| d |")))));
  EXPECT_TRUE(takes(compiled, block(invoke("f", parameter("j", false, R"({"\u003c|DSML":1})")))));
  EXPECT_TRUE(takes(compiled, block(invoke("f", parameter("s", true, "ls 2>&1 | grep '<b>'")))));
}

TEST(Tools, OtherPropertiesWhereTheSchemaAllowsThem) {
  const auto compiled = grammar(must({{"f", R"({"type":"object","properties":{"a":{"type":"null"}},
      "additionalProperties":{"type":["integer","string"]}})",
                                       true}}));
  const auto call = [&](const std::string& p) { return takes(compiled, block(invoke("f", p))); };
  EXPECT_TRUE(call(parameter("b", false, "1") + "\n" + parameter("c", true, "x")));
  EXPECT_TRUE(call(parameter("a", false, "null") + "\n" + parameter("b", true, "1")));
  EXPECT_FALSE(call(parameter("b", false, "1.5")));
  EXPECT_FALSE(call(parameter("a", false, "1")));
  // The parser would unwrap it.
  EXPECT_FALSE(call(parameter("arguments", true, "{}")));
}

TEST(Tools, StrictRefusesWhatItCannotHold) {
  const std::string odd = R"({"type":"object","properties":{"a":{"not":{}}}})";
  EXPECT_THAT(error_of(must({{"f", odd, true}})),
              HasSubstr(R"(tool "f": the keyword "not" at #/properties/a)"));
  // Without strict, the markup's form is still held.
  const auto compiled = grammar(must({{"f", odd, false}}));
  EXPECT_TRUE(takes(compiled, block(invoke("f", parameter("a", false, "{\"x\": 1}")))));
  EXPECT_FALSE(takes(compiled, block(invoke("f", parameter("a", false, "{")))));
  EXPECT_THAT(error_of(must({{"f", R"({"anyOf":[{"type":"object"}]})", true}})),
              HasSubstr("at the top"));
  EXPECT_THAT(error_of(must({{"f", R"({"properties":{"a\"b":{}}})", true}})),
              HasSubstr("cannot carry"));
}

TEST(Tools, CallsMayBeLimitedAndOptional) {
  GrammarSpec spec = must({{"now", "{}", false}});
  spec.max_calls = 1;
  EXPECT_TRUE(takes(spec, block(invoke("now", ""))));
  EXPECT_FALSE(takes(spec, block(invoke("now", "") + invoke("now", ""))));
  spec.in_calls = true;
  EXPECT_TRUE(takes(spec, invoke("now", "") + "</" + kD + " calls>"));
  spec.in_calls = false;
  spec.calls = GrammarSpec::Calls::kMay;
  EXPECT_FALSE(spec.constrains());
  spec.tools[0].strict = true;
  EXPECT_TRUE(spec.constrains());
  EXPECT_TRUE(takes(spec, "any < text\n"));
  EXPECT_TRUE(takes(spec, ""));
  EXPECT_TRUE(takes(spec, "text" + block(invoke("now", ""))));
  EXPECT_TRUE(takes(spec, block(invoke("now", ""))));
  EXPECT_FALSE(takes(spec, block(invoke("now", parameter("arguments", true, "1")))));
  spec.format = GrammarSpec::Format::kJsonObject;
  EXPECT_TRUE(takes(spec, "{}"));
  EXPECT_TRUE(takes(spec, block(invoke("now", ""))));
  EXPECT_FALSE(takes(spec, "text"));
}

TEST(Reasoning, IsFreeUpToItsEnd) {
  GrammarSpec spec = schema(R"({"type":"integer"})");
  spec.in_reasoning = spec.markup = true;
  const auto compiled = grammar(spec);
  EXPECT_TRUE(takes(compiled,
                    "anything: {\"a\" < \n\xFE"
                    "12"));
  EXPECT_TRUE(takes(compiled,
                    "\xFE"
                    "12"));
  EXPECT_FALSE(takes(compiled, "12"));
  EXPECT_FALSE(takes(compiled,
                     "a\xFE"
                     "b"));
  EXPECT_FALSE(takes(compiled,
                     "a\xFE"
                     "1\xFE"
                     "2"));
  // Spelled by ordinary tokens, the tag would end the reasoning for the parser only.
  EXPECT_FALSE(takes(compiled,
                     "a</think>\xFE"
                     "1"));
  EXPECT_TRUE(takes(compiled,
                    "a</thin\xFE"
                    "1"));
  GrammarState state(compiled);
  EXPECT_FALSE(state.complete());  // no end before the answer
}

// Random calls come back from the parser as calls with arguments of the right kinds.
TEST(Tools, TheParserReadsWhatTheGrammarMakes) {
  GrammarSpec spec = must({{"search", kSearch, true}});
  spec.in_calls = true;
  spec.max_calls = 2;
  const auto compiled = grammar(spec);
  text::ParserOptions options;
  options.start = text::ParserStart::kCalls;
  text::ToolDefinition tool;
  tool.name = "search";
  tool.properties = {{"query", true}, {"limit", false}, {"tags", false}, {"mode", false}};
  options.tools = {tool};
  std::mt19937 random(5);
  int calls = 0;
  for (int run = 0; run < 60; ++run) {
    const Sampled sampled = sample(compiled, random, 3000, "\xFF</\"]");
    if (!sampled.complete) continue;
    std::string text;
    for (const char c : sampled.text)
      text += c == kD[0] ? std::string("\uff5cDSML\uff5c") : std::string(1, c);
    const text::ParsedMessage message = text::parse_output(text, options, text::OutputEnd::kEos);
    EXPECT_EQ(message.content, "") << text;
    ASSERT_FALSE(message.calls.empty()) << text;
    for (const text::ParsedCall& call : message.calls) {
      ++calls;
      text::JsonReader reader;
      const auto arguments = reader.read(call.arguments);
      ASSERT_TRUE(arguments.has_value()) << call.arguments;
      ASSERT_NE(arguments->find("query"), nullptr) << call.arguments;
      EXPECT_TRUE(arguments->find("query")->is_string()) << call.arguments;
      const auto* limit = arguments->find("limit");
      const auto* tags = arguments->find("tags");
      EXPECT_TRUE(limit == nullptr || limit->is_integer()) << call.arguments;
      EXPECT_TRUE(tags == nullptr || tags->is_array()) << call.arguments;
    }
  }
  EXPECT_GT(calls, 20);
}

}  // namespace
}  // namespace cedra::decode

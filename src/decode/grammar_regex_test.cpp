// Regular expressions, EBNF and choices.
#include "decode/grammar_regex.h"

#include <gmock/gmock.h>

#include "decode/test_grammar.h"

namespace cedra::decode {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct Case {
  const char* source;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

TEST(Regex, TakesWhatItsSyntaxMeans) {
  for (const Case& c :
       std::vector<Case>{{"abc", {"abc"}, {"ab", "abcd", "xabc", ""}},
                         {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
                         {"(a|b)*c", {"c", "abac"}, {"ab"}},
                         {"a+b?", {"a", "aab"}, {"b", "abb"}},
                         {"a{2}b{1,}c{0,2}", {"aab", "aabbcc"}, {"ab", "aabccc"}},
                         {"a{0}", {""}, {"a"}},
                         {"x{,3}", {"x{,3}"}, {"x"}},
                         {"(?:ab)+(?<n>c)(?P<m>d)", {"ababcd"}, {"abc"}},
                         {"a*?b+?", {"aab", "b"}, {"a"}},
                         {"[a-c_-]", {"b", "_", "-"}, {"d", ""}},
                         {"[^a-c]", {"d", "\u00e4"}, {"a"}},
                         {"[\\d\\s\\-\\]]", {"5", " ", "-", "]"}, {"x"}},
                         {"[]", {}, {"", "a"}},
                         {"[^]", {"a", "\n"}, {""}},
                         {"\\d\\D\\w\\W\\s\\S", {"1a_- x"}, {"aa_- x"}},
                         {".", {"a", "\u4e2d"}, {"\n", "\r", ""}},
                         {"\\n\\t\\x41\\u00e4\\u{1F600}\\ud83d\\ude00\\cA\\0",
                          {"\n\tA\u00e4\xF0\x9F\x98\x80\xF0\x9F\x98\x80\x01\x00"},
                          {}},
                         {"\\.\\*\\/\\-\\{", {".*/-{"}, {"a"}},
                         {"^a$", {"a"}, {"aa"}},
                         {"(^a|b$)c?", {"a", "ac", "b"}, {"bc"}},
                         {"a$b", {}, {"ab", "a"}},
                         {"\\p{Lu}\\p{N}+\\P{L}", {"\u00c41 ", "A12."}, {"a1 ", "A1b"}},
                         {"\\p{Letter}", {"\u4e2d"}, {"1"}},
                         {"(a*)*b", {"b", "aab"}, {"a"}},
                         {"(a?){3}", {"", "aaa"}, {"aaaa"}}}) {
    if (c.good.empty() && c.source[0] == '[') {
      EXPECT_THAT(error_of(regex(c.source)), HasSubstr("nothing can satisfy it"));
      continue;
    }
    if (std::string_view(c.source) == "a$b") {
      EXPECT_THAT(error_of(regex(c.source)), HasSubstr("nothing can satisfy it"));
      continue;
    }
    const auto compiled = grammar(regex(c.source));
    ASSERT_NE(compiled, nullptr) << c.source;
    for (const char* text : c.good) {
      const bool zero = std::string_view(c.source).ends_with("\\0");
      EXPECT_TRUE(takes(compiled, zero ? std::string(text) + '\0' : text))
          << c.source << " " << text;
    }
    for (const char* text : c.bad) EXPECT_FALSE(takes(compiled, text)) << c.source << " " << text;
  }
}

TEST(Regex, SaysWhatIsWrongAndWhere) {
  for (const auto& [source, says] : std::vector<std::pair<std::string, std::string>>{
           {"(a", "a group without its ')'"},
           {"a)", "character 1: unmatched ')'"},
           {"*a", "character 0: nothing stands before this repetition"},
           {"a**", "a repetition of a repetition"},
           {"a{3,2}", "m < n"},
           {"[a", "without its ']'"},
           {"[z-a]", "whose end comes before"},
           {"[\\d-z]", "not characters"},
           {"a(?=b)", "lookahead"},
           {"(?<!a)", "lookbehind"},
           {"(?i)a", "this kind of group"},
           {"\\bword", "a word border is not supported"},
           {"(a)\\1", "a back reference is not supported"},
           {"\\q", "\\q means nothing"},
           {"\\u12", "hexadecimal"},
           {"\\ud800", "not a character"},
           {"\\p{Script=Greek}", "general categories"},
           {"\\", "a backslash at the end"},
           {"\xff", "not valid UTF-8"},
           {std::string(1000, '(') + std::string(1000, ')'), "groups inside each other"},
           {"(a{1000}){1000}", "written out"},
           {"(^|x)(a|b)*a(a|b){30}", "more than"}}) {
    EXPECT_THAT(error_of(regex(source)), HasSubstr(says)) << source;
  }
}

TEST(Ebnf, TakesWhatItsSyntaxMeans) {
  for (const Case& c : std::vector<Case>{
           {"root ::= \"a\" | \"b\" \"c\"", {"a", "bc"}, {"b", "abc"}},
           {"# a comment\nroot ::= x # more\n  | y\nx ::= \"1\"\ny ::= \"2\"+",
            {"1", "222"},
            {"12"}},
           {"root ::= (\"a\" | [b-d])* \"!\"?", {"", "abcd!", "!"}, {"e"}},
           {"root ::= [^\\n\\x41]{2,3}", {"ab", "abc"}, {"a", "A\n", "abcd"}},
           {"root ::= \"\\\"\\\\\\n\\t\\u00e4\\U0001F600\\x41\"",
            {"\"\\\n\t\u00e4\xF0\x9F\x98\x80"
             "A"},
            {}},
           {"root ::= item{2} item{0,1} item{3,}\nitem ::= \"x\"", {"xxxxx", "xxxxxxxx"}, {"xxxx"}},
           {"root ::= \"(\" root \")\" | \"\"", {"", "(())"}, {"(", "())"}},
           {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
            {"1", "1+(2+34)"},
            {"1+", "(1"}},
           {"root ::= \"\" \"a\"", {"a"}, {""}},
           {"root ::= . \"b\"", {"ab", "\nb"}, {"b"}},
           {"root ::= (\"a\"?)* \"b\"", {"b", "aab"}, {"a"}},
           {"root ::= a-1 a_2\na-1 ::= \"x\"\na_2 ::= \"y\"", {"xy"}, {}}}) {
    const auto compiled = grammar(ebnf(c.source));
    ASSERT_NE(compiled, nullptr) << c.source;
    for (const char* text : c.good) EXPECT_TRUE(takes(compiled, text)) << c.source << " " << text;
    for (const char* text : c.bad) EXPECT_FALSE(takes(compiled, text)) << c.source << " " << text;
  }
}

TEST(Ebnf, SaysWhatIsWrongAndWhere) {
  for (const auto& [source, says] : std::vector<std::pair<std::string, std::string>>{
           {"", "\"root\""},
           {"a ::= \"x\"", "\"root\""},
           {"root ::= x", "line 1: there is no rule \"x\""},
           {"root ::= \"a\"\n\nroot ::= \"b\"", "defined twice"},
           {"root = \"a\"", "expected '::='"},
           {"root ::= \"a", "literal without its end"},
           {"root ::= (\"a\"", "a group without its ')'"},
           {"root ::= \"a\"\n  )", "line 2: expected a rule"},
           {"root ::= [a", "without its ']'"},
           {"root ::= \"\\q\"", "does not stand for a character"},
           {"root ::= \"a\"{2", "expected '}'"},
           {"root ::= \"a\"{x}", "expected a number"},
           {"root ::= /a/", "'/' is not understood"},
           {"root ::= root \"a\" | \"b\"", "rule \"root\" refers to itself"},
           {"root ::= x root | \"b\"\nx ::= \"a\"?", "left recursion"},
           {"root ::= a\na ::= b\nb ::= a \"x\" | \"y\"", "left recursion"},
           {"root ::= \"a\" root", "nothing can satisfy it"},
           {"root ::= " + std::string(1000, '(') + "\"a\"" + std::string(1000, ')'),
            "groups inside"},
           {"root ::= \"a\"" + std::string(100, '?'), "too many repetitions"},
           {"root ::= ((\"a\"{9999}){9999}){9999} \"b\"{99999999}", "states and edges"}}) {
    EXPECT_THAT(error_of(ebnf(source)), HasSubstr(says)) << source;
  }
}

TEST(Choice, IsOneOfTheTexts) {
  GrammarSpec spec;
  spec.format = GrammarSpec::Format::kChoice;
  spec.where = "guided_choice";
  spec.choices = {"yes", "no", "not sure", "\u00e4"};
  const auto compiled = grammar(spec);
  for (const std::string& choice : spec.choices) EXPECT_TRUE(takes(compiled, choice));
  EXPECT_FALSE(takes(compiled, "not"));
  EXPECT_FALSE(takes(compiled, "yesno"));
  spec.choices.clear();
  EXPECT_THAT(error_of(spec), HasSubstr("guided_choice must hold 1 to"));
}

}  // namespace
}  // namespace cedra::decode

// States, masks and the promises of the automaton: every state can be completed, masks are what
// trying every token gives, memory stays bounded.
#include "decode/grammar.h"

#include <algorithm>

#include "decode/test_grammar.h"

namespace cedra::decode {
namespace {

using namespace testing;

// The mask by its definition.
std::vector<int32_t> tried(const GrammarState& state) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < state.grammar().vocabulary().size(); ++id) {
    GrammarState copy = state;
    if (copy.accept(id)) ids.push_back(id);
  }
  return ids;
}

const char* const kPerson = R"({"type":"object","properties":{
  "name":{"type":"string"},"age":{"type":"integer"},
  "tags":{"type":"array","items":{"type":"string","maxLength":5}},
  "more":{}},"required":["name"]})";

TEST(Vocabulary, HoldsBytesAndSymbolsOfTokens) {
  const auto vocabulary = tiny_vocabulary();
  EXPECT_EQ(vocabulary->bytes(*tiny_tokenizer().added_id("</think>")), "\xFE");
  EXPECT_EQ(vocabulary->bytes(*tiny_tokenizer().added_id("\uff5cDSML\uff5c")), "\xFF");
  EXPECT_EQ(vocabulary->bytes(0), "");  // BOS
  EXPECT_EQ(vocabulary->bytes(-1), "");
  EXPECT_EQ(vocabulary->bytes(100000), "");
  const TokenTrie& trie = vocabulary->trie();
  size_t tokens = 0;
  for (int32_t id = 0; id < vocabulary->size(); ++id) tokens += !vocabulary->bytes(id).empty();
  EXPECT_EQ(trie.tokens.size(), tokens);
}

TEST(Grammar, MasksAreWhatTryingEveryTokenGives) {
  std::mt19937 random(7);
  GrammarSpec with_tools;
  with_tools.in_reasoning = with_tools.markup = true;
  with_tools.calls = GrammarSpec::Calls::kMay;
  with_tools.tools = {{"f", kPerson, true}};
  for (const GrammarSpec& spec :
       {schema(kPerson), regex("(a|bc)*[x-z\u00e4]{2,5}|\\d+"),
        ebnf("root ::= \"(\" root \")\" | word (\",\" root)?\nword ::= [a-z]+ | \"\u00fc\" word"),
        spec_of(GrammarSpec::Format::kJsonObject, ""), with_tools}) {
    const auto compiled = grammar(spec);
    ASSERT_NE(compiled, nullptr);
    for (int run = 0; run < 3; ++run) {
      GrammarState state(compiled);
      for (int i = 0; i < 25 && !state.finished(); ++i) {
        const std::vector<int32_t> ids = allowed(state);
        ASSERT_EQ(ids, tried(state)) << spec.text;
        ASSERT_FALSE(ids.empty());
        ASSERT_TRUE(state.accept(ids[random() % ids.size()]));
      }
    }
  }
}

TEST(Grammar, CopiesGoTheirOwnWays) {
  GrammarState state(grammar(regex("a(b|c)d")));
  ASSERT_TRUE(state.accept("a"));
  GrammarState copy = state;
  ASSERT_TRUE(copy.accept("bd"));
  EXPECT_TRUE(copy.finished());
  EXPECT_FALSE(state.complete());
  ASSERT_TRUE(state.accept("c"));
  EXPECT_FALSE(state.complete());
  ASSERT_TRUE(state.accept("d"));
  EXPECT_TRUE(state.finished());
}

TEST(Grammar, SaysNoForGoodOnce) {
  GrammarState state(grammar(regex("ab")));
  EXPECT_FALSE(state.accept("x"));
  EXPECT_TRUE(state.failed());
  EXPECT_FALSE(state.accept("a"));
  EXPECT_TRUE(allowed(state).empty());
  GrammarState control(grammar(regex(".*")));
  EXPECT_FALSE(control.accept(0));  // BOS is no text
  EXPECT_TRUE(control.failed());
}

TEST(Grammar, NeverAllowsControlTokensOrBrokenUtf8) {
  const auto compiled = grammar(regex("(.|\\n)*"));
  GrammarState state(compiled);
  for (const text::AddedToken& token : tiny_tokenizer().added_tokens()) {
    GrammarState copy = state;
    EXPECT_FALSE(copy.accept(token.id)) << token.content;
  }
  EXPECT_FALSE(takes(compiled, "\xC3"));
  EXPECT_FALSE(takes(compiled, "\xED\xA0\x80"));  // a surrogate
  EXPECT_FALSE(takes(compiled, "\xF8"));
  EXPECT_TRUE(takes(compiled, "\xC3\xA4\n\xF0\x9F\x98\x80"));
}

TEST(Grammar, NestingIsBoundedAndNeverADeadEnd) {
  // At the deepest level only what needs no further level is left.
  for (const char* text : {R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"array","items":
                               {"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}})",
                           R"({})"}) {
    const auto compiled = grammar(schema(text));
    GrammarState state(compiled);
    int depth = 0;
    while (state.accept("[")) ++depth;
    EXPECT_GT(depth, 50);
    EXPECT_LE(depth, kMaxGrammarDepth);
    GrammarState deepest(compiled);
    for (int i = 0; i < depth; ++i) ASSERT_TRUE(deepest.accept("["));
    EXPECT_FALSE(allowed(deepest).empty());
    for (int i = 0; i < depth; ++i) ASSERT_TRUE(deepest.accept("]")) << i;
    EXPECT_TRUE(deepest.complete());
  }
  // Masks near the bound are still what trying gives.
  const auto compiled = grammar(schema("{}"));
  GrammarState state(compiled);
  for (GrammarState next = state; next.accept("[[");) state = next;
  EXPECT_EQ(allowed(state), tried(state));
}

TEST(Grammar, AmbiguityCostsNoBlowUp) {
  // 2^n stacks, if they were told apart.
  const auto compiled = grammar(ebnf(R"(root ::= "a" root "b" | "a" root "c" | "d")"));
  GrammarState state(compiled);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(state.accept("a"));
  ASSERT_TRUE(state.accept("d"));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(state.accept(i % 3 == 0 ? "b" : "c"));
  EXPECT_TRUE(state.finished());
  const auto twice = grammar(ebnf(R"(root ::= "a" | "a" root root)"));
  GrammarState many(twice);
  for (int i = 0; i < 151; ++i) ASSERT_TRUE(many.accept("a")) << i;
  EXPECT_TRUE(many.complete());
}

TEST(Grammar, TailCallsDoNotNest) {
  const auto compiled = grammar(ebnf("root ::= [a-z] root | \".\""));
  GrammarState state(compiled);
  for (int i = 0; i < 10 * kMaxGrammarDepth; ++i) ASSERT_TRUE(state.accept("x"));
  EXPECT_TRUE(state.accept("."));
  EXPECT_TRUE(state.finished());
}

TEST(Grammar, StartsOverWhenItsCacheIsFull) {
  const auto kept = grammar(schema(kPerson));
  auto rebuilt = compile(schema(kPerson));
  ASSERT_TRUE(rebuilt.has_value());
  // The same rules with next to no room: states move to new automata all the time.
  RuleBuilder builder;
  JsonRules json(builder, Spelling::kJson);
  const RuleId root = builder.rule();
  builder.jump(json.object(builder.start(root)), builder.end(root));
  auto rules = std::move(builder).finish(root);
  ASSERT_TRUE(rules.has_value());
  const auto small = Grammar::make(*rules, tiny_vocabulary(), {}, 1);
  const auto large = Grammar::make(*rules, tiny_vocabulary());
  std::mt19937 random(3);
  GrammarState a(small), b(large);
  GrammarState fork = a;
  for (int i = 0; i < 60 && !a.finished(); ++i) {
    const std::vector<int32_t> ids = allowed(a);
    ASSERT_EQ(ids, allowed(b));
    const int32_t id = ids[random() % ids.size()];
    ASSERT_TRUE(a.accept(id));
    ASSERT_TRUE(b.accept(id));
    ASSERT_EQ(a.complete(), b.complete());
    if (i == 10) fork = a;
  }
  EXPECT_FALSE(allowed(fork).empty());
  EXPECT_LT(small->bytes(), large->bytes());
}

TEST(GrammarCache, KeepsWhatWasUsedLast) {
  GrammarCache cache(tiny_vocabulary(), GrammarCache::kBytes, 2);
  const auto a = cache.get(regex("a"));
  const auto b = cache.get(regex("b"));
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(*cache.get(regex("a")), *a);
  EXPECT_TRUE(cache.get(regex("c")).has_value());
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(*cache.get(regex("a")), *a);
  EXPECT_NE(*cache.get(regex("b")), *b);
  EXPECT_FALSE(cache.get(regex("(")).has_value());
  GrammarSpec choice = regex("a");
  choice.format = GrammarSpec::Format::kEbnf;
  choice.text = "root ::= \"a\"";
  EXPECT_NE(*cache.get(choice), *a);
}

TEST(GrammarCache, BytesAreBoundedWithThoseOfRequests) {
  const int64_t one = (*GrammarCache(tiny_vocabulary()).get(regex("a")))->bytes();
  GrammarCache cache(tiny_vocabulary(), 2 * one + one / 2);
  auto a = cache.get(regex("a"));
  auto b = cache.get(regex("b"));
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(cache.bytes(), 2 * one);
  // Both are in use: there is no room for a third, but those two are still there.
  const auto refused = cache.get(regex("c"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_EQ(*cache.get(regex("a")), *a);
  EXPECT_EQ(*cache.get(regex("b")), *b);
  // The one that nobody uses makes room.
  const Grammar* kept = a->get();
  b = std::shared_ptr<const Grammar>();
  EXPECT_TRUE(cache.get(regex("c")).has_value());
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.get(regex("a"))->get(), kept);
  EXPECT_LE(cache.bytes(), 2 * one + one / 2);
  // Alone, one may be as large as it is.
  GrammarCache tight(tiny_vocabulary(), 1);
  a = tight.get(regex("a"));
  EXPECT_TRUE(a.has_value());
  EXPECT_FALSE(tight.get(regex("b")).has_value());
  a = std::shared_ptr<const Grammar>();
  EXPECT_TRUE(tight.get(regex("b")).has_value());
  EXPECT_EQ(tight.size(), 0U);
}

// What answers find out counts.
TEST(GrammarCache, MasksCount) {
  GrammarCache cache(tiny_vocabulary());
  GrammarSpec spec = regex("a");
  spec.format = GrammarSpec::Format::kJsonObject;
  const auto grammar = cache.get(spec);
  ASSERT_TRUE(grammar.has_value());
  const int64_t before = cache.bytes();
  GrammarState state(*grammar);
  std::vector<uint64_t> words((*grammar)->mask_words());
  for (const char c : std::string_view(R"({"a":[1]})")) {
    ASSERT_TRUE(state.mask(words));
    ASSERT_TRUE(state.accept(std::string_view(&c, 1)));
  }
  EXPECT_GT(cache.bytes(), before);
}

}  // namespace
}  // namespace cedra::decode

// The grammar as a mask of the sampler.
#include "decode/sampler.h"
#include "decode/test_grammar.h"

namespace cedra::decode {
namespace {

using namespace testing;

constexpr int64_t kVocab = 512;
constexpr int32_t kEos = 1;

int32_t id_of(char c) {
  for (int32_t id = 0; id < kVocab; ++id) {
    if (tiny_vocabulary()->bytes(id) == std::string_view(&c, 1)) return id;
  }
  return -1;
}

struct Draw {
  SequenceSampling sequence;
  Sampler sampler{kVocab, {}};
  std::vector<float> logits = std::vector<float>(kVocab, 0.0F);

  Draw(const std::string& pattern, SamplerParams params)
      : sequence(with(pattern, params), {}, kVocab) {}
  static SamplerParams with(const std::string& pattern, SamplerParams params) {
    params.grammar = grammar(regex(pattern));
    params.end_ids = {kEos};
    return params;
  }
  int32_t next() {
    const Result<int32_t> id = sampler.sample(logits, sequence);
    EXPECT_TRUE(id.has_value()) << id.error().message;
    return id.value_or(-1);
  }
};

SamplerParams greedy() {
  SamplerParams params;
  params.temperature = 0;
  return params;
}

TEST(GrammarSampling, TheBestOfWhatFits) {
  Draw draw("a[xy]", greedy());
  draw.logits[static_cast<size_t>(kEos)] = 9;
  draw.logits[static_cast<size_t>(id_of('y'))] = 5;
  draw.logits[static_cast<size_t>(id_of('a'))] = -50;
  EXPECT_EQ(draw.next(), id_of('a'));
  draw.sequence.accept(id_of('a'));
  EXPECT_EQ(draw.next(), id_of('y'));
  draw.sequence.accept(id_of('y'));
  EXPECT_EQ(draw.next(), kEos);
}

TEST(GrammarSampling, TheEndIsAllowedWhereTheTextIsComplete) {
  Draw draw("ab?", greedy());
  draw.logits[static_cast<size_t>(kEos)] = 9;
  EXPECT_EQ(draw.next(), id_of('a'));
  draw.sequence.accept(id_of('a'));
  EXPECT_EQ(draw.next(), kEos);
  // min_tokens holds it back as long as there is something else.
  SamplerParams params = greedy();
  params.min_tokens = 5;
  Draw later("ab?", params);
  later.logits[static_cast<size_t>(kEos)] = 9;
  later.sequence.accept(id_of('a'));
  EXPECT_EQ(later.next(), id_of('b'));
  later.sequence.accept(id_of('b'));
  EXPECT_EQ(later.next(), kEos);
}

TEST(GrammarSampling, BiasAndPenaltiesLiftNothing) {
  SamplerParams params;
  params.logit_bias = {{id_of('z'), 100.0F}};
  params.presence_penalty = 2;
  params.seed = 3;
  for (int i = 0; i < 50; ++i) {
    params.seed = static_cast<uint64_t>(i);
    Draw draw("[abc]", params);
    const int32_t id = draw.next();
    EXPECT_TRUE(id == id_of('a') || id == id_of('b') || id == id_of('c')) << id;
  }
}

TEST(GrammarSampling, LogprobsStayTheModels) {
  Draw draw("a", greedy());
  draw.logits[static_cast<size_t>(id_of('b'))] = 3;
  EXPECT_EQ(draw.next(), id_of('a'));
  float logprob = 0;
  std::vector<TokenLogprob> top(1);
  draw.sampler.logprobs(draw.logits, id_of('a'), &logprob, top);
  EXPECT_EQ(top[0].token, id_of('b'));
  EXPECT_LT(logprob, top[0].logprob);
}

TEST(GrammarSampling, ForksFollowTheirOwnTokens) {
  Draw draw("a(b|c)d", greedy());
  draw.sequence.accept(id_of('a'));
  SequenceSampling fork = draw.sequence;
  fork.accept(id_of('b'));
  EXPECT_EQ(draw.sampler.sample(draw.logits, fork).value_or(-1), id_of('d'));
  EXPECT_EQ(draw.next(), std::min(id_of('b'), id_of('c')));
  // Behind a draft that does not fit nothing counts, and nothing fails.
  fork.accept(id_of('x'));
  EXPECT_TRUE(draw.sampler.sample(draw.logits, fork).has_value());
}

TEST(GrammarSampling, AmbiguityBeyondBoundsIsAnError) {
  std::string wide = "root ::= \"x\" (";
  for (int i = 0; i < 9000; ++i) wide += (i == 0 ? "r" : " | r") + std::to_string(i);
  wide += ")";
  for (int i = 0; i < 9000; ++i) wide += "\nr" + std::to_string(i) + " ::= \"a\" \"b\"";
  SamplerParams params = greedy();
  params.grammar = grammar(ebnf(wide));
  SequenceSampling sequence(params, {}, kVocab);
  sequence.accept(id_of('x'));
  Sampler sampler(kVocab, {});
  const Result<int32_t> id = sampler.sample(std::vector<float>(kVocab), sequence);
  ASSERT_FALSE(id.has_value());
  EXPECT_NE(id.error().message.find("ambiguous"), std::string::npos) << id.error().message;
}

}  // namespace
}  // namespace cedra::decode

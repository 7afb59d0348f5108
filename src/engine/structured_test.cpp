// Structured outputs through the whole engine: whatever a random model would like to say, the
// answer is in the grammar.
#include <algorithm>

#include "decode/grammar_compile.h"
#include "engine/engine_rig.h"
#include "text/json_value.h"
#include "text/tokenizer.h"

namespace cedra::engine {
namespace {

using namespace testing;

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer loaded = [] {
    auto result = text::Tokenizer::load(kTiny + "/tokenizer.json");
    if (!result) throw std::runtime_error(result.error().message);
    return *std::move(result);
  }();
  return loaded;
}

std::shared_ptr<const decode::Grammar> compiled(const decode::GrammarSpec& spec) {
  static const auto vocabulary = decode::Vocabulary::create(tokenizer());
  auto grammar = decode::compile_grammar(spec, *vocabulary);
  if (!grammar) throw std::runtime_error(grammar.error().message);
  return *grammar;
}

decode::GrammarSpec schema(const char* text) {
  decode::GrammarSpec spec;
  spec.format = decode::GrammarSpec::Format::kJsonSchema;
  spec.text = text;
  spec.where = "schema";
  return spec;
}

const char* const kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},
  "age":{"type":"integer","minimum":0,"maximum":150},
  "tags":{"type":"array","items":{"enum":["red","green"]},"minItems":1,"maxItems":2}},
  "required":["name","age","tags"],"additionalProperties":false})";

Request structured(const std::shared_ptr<const decode::Grammar>& grammar, uint64_t seed) {
  Request request = greedy_request(random_prompt(static_cast<uint32_t>(seed), 20), 300);
  request.sampling.ignore_eos = false;
  request.sampling.temperature = seed == 0 ? 0 : 1;
  request.sampling.seed = seed;
  request.sampling.grammar = grammar;
  return request;
}

void expect_person(const std::string& text) {
  text::JsonReader reader;
  const auto value = reader.read(text);
  ASSERT_TRUE(value.has_value()) << text;
  ASSERT_TRUE(value->is_object()) << text;
  ASSERT_EQ(value->members().size(), 3U) << text;
  EXPECT_EQ(value->members()[0].first, "name");
  EXPECT_TRUE(value->find("name")->is_string());
  const auto age = value->find("age")->as_int64();
  ASSERT_TRUE(age.has_value()) << text;
  EXPECT_TRUE(*age >= 0 && *age <= 150) << text;
  const auto* tags = value->find("tags");
  ASSERT_TRUE(tags->is_array() && !tags->items().empty() && tags->items().size() <= 2) << text;
  for (const auto& tag : tags->items()) EXPECT_TRUE(tag.text() == "red" || tag.text() == "green");
}

TEST(Structured, EveryAnswerIsInTheSchema) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  const auto grammar = compiled(schema(kPerson));
  std::vector<Ticket> tickets;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    // Waiting for some of them keeps the queue short.
    if (seed >= 4) tickets[seed - 4].sink->wait();
    tickets.push_back(submit(*loaded.engine, structured(grammar, seed)));
  }
  for (const Ticket& ticket : tickets) {
    const Answer answer = ticket.sink->wait();
    ASSERT_EQ(answer.finish.reason, FinishReason::kStop)
        << (answer.finish.error ? answer.finish.error->message : "");
    EXPECT_EQ(answer.finish.stop_token, 1);
    expect_person(tokenizer().decode(answer.tokens));
  }
}

TEST(Structured, BeginsAtTheEndOfReasoning) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  decode::GrammarSpec spec = schema(kPerson);
  spec.in_reasoning = spec.markup = true;
  const auto grammar = compiled(spec);
  const int32_t tag = *tokenizer().added_id("</think>");
  for (uint64_t seed = 1; seed < 5; ++seed) {
    Request request = structured(grammar, seed);
    request.sampling.logit_bias = {{tag, 4.0F}};  // sooner or later
    const Answer answer = ask(*loaded.engine, request);
    ASSERT_EQ(answer.finish.reason, FinishReason::kStop);
    const auto at = std::ranges::find(answer.tokens, tag);
    ASSERT_NE(at, answer.tokens.end());
    expect_person(tokenizer().decode(std::vector<int32_t>(at + 1, answer.tokens.end())));
  }
}

TEST(Structured, OnlyTheTokenLimitCutsAnAnswer) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  Request request = structured(compiled(schema(kPerson)), 1);
  request.sampling.max_tokens = 5;
  const Answer answer = ask(*loaded.engine, request);
  EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
  EXPECT_EQ(answer.tokens.size(), 5U);
}

TEST(Structured, LogprobsAreTheModels) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  // The grammar leaves one way, and the model's log probabilities of it are those of a free request
  // that is biased there.
  decode::GrammarSpec spec;
  spec.format = decode::GrammarSpec::Format::kChoice;
  spec.choices = {"{"};
  const Answer held = ask(*loaded.engine, structured(compiled(spec), 0));
  ASSERT_EQ(held.tokens.size(), 1U);
  Request biased = structured(nullptr, 0);
  biased.sampling.logit_bias = {{held.tokens[0], 1000.0F}};
  biased.sampling.max_tokens = 1;
  expect_same(ask(*loaded.engine, biased), held);
}

TEST(Structured, RefusesIgnoreEos) {
  const Loaded loaded = load_engine(kTiny, small_options(PrefillMode::kExact));
  Request request = structured(compiled(schema(kPerson)), 0);
  request.sampling.ignore_eos = true;
  const auto refused = loaded.engine->submit(request, std::make_shared<Collector>());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("ignore_eos"), std::string::npos);
}

}  // namespace
}  // namespace cedra::engine

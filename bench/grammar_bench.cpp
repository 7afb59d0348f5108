// Structured outputs: compiling, and the mask of the next token, on the real vocabulary
// (scripts/fetch_tokenizer.sh). `mask` is what one generated token costs: the mask's words, and the
// step over the token's bytes, along a fixed answer that was gone through once; `first` is the same
// without that, all masks computed anew; `apply` adds the sampler's pass over the logits.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "decode/grammar_compile.h"
#include "decode/sampler.h"
#include "text/tokenizer.h"

namespace {

using namespace cedra;

const text::Tokenizer* tokenizer() {
  static const auto loaded = text::Tokenizer::load(CEDRA_REAL_TOKENIZER);
  return loaded ? &*loaded : nullptr;
}

std::shared_ptr<const decode::Vocabulary> vocabulary() {
  static const auto made = decode::Vocabulary::create(*tokenizer());
  return made ? *made : nullptr;
}

decode::GrammarSpec schema(std::string text) {
  decode::GrammarSpec spec;
  spec.format = decode::GrammarSpec::Format::kJsonSchema;
  spec.text = std::move(text);
  spec.where = "schema";
  return spec;
}

constexpr std::string_view kPerson = R"({"type":"object","properties":{
  "name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
  "email":{"type":"string","format":"email"},"code":{"type":"string","maxLength":40},
  "tags":{"type":"array","items":{"type":"string"}},"score":{"type":"number"},
  "notes":{"type":"object"}},
  "required":["name","age","email","code","tags","score","notes"],"additionalProperties":false})";
constexpr std::string_view kAnswer =
    R"({"name": "Ada Lovelace, \"countess\" of Lovelace", "age": 36, "email": "ada@example.com", )"
    R"("code": "a code with some words in it", "tags": ["mathematics", "engines", "notes"], )"
    R"("score": 97.25, "notes": {"born": 1815, "works": [{"title": "Sketch of the Engine"}]}})";

// Objects in objects with descriptions, about `bytes` long.
std::string large_schema(size_t bytes) {
  std::string out = R"({"type":"object","properties":{)";
  for (int i = 0; out.size() < bytes; ++i) {
    out += fmt::format(
        R"({}"field_{}":{{"type":"object","description":"What field {} is for.","properties":{{)"
        R"("id":{{"type":"integer","minimum":0}},"title":{{"type":"string","minLength":1}},)"
        R"("kind":{{"enum":["a{}","b{}","c{}"]}},"items":{{"type":"array","items":)"
        R"({{"type":"object","properties":{{"x":{{"type":"number"}},"y":{{"type":"number"}}}},)"
        R"("required":["x","y"],"additionalProperties":false}}}}}},"required":["id","title"],)"
        R"("additionalProperties":false}})",
        i == 0 ? "" : ",", i, i, i, i, i);
  }
  return out + R"(},"additionalProperties":false})";
}

bool ready(benchmark::State& state) {
  if (tokenizer() != nullptr && vocabulary() != nullptr) return true;
  state.SkipWithError("no tokenizer: run scripts/fetch_tokenizer.sh");
  return false;
}

std::shared_ptr<const decode::Grammar> compiled(const decode::GrammarSpec& spec) {
  auto grammar = decode::compile_grammar(spec, vocabulary());
  if (!grammar) {
    fmt::print(stderr, "{}\n", grammar.error().message);
    std::abort();
  }
  return *grammar;
}

void compile(benchmark::State& state, const std::string& text) {
  if (!ready(state)) return;
  for (auto _ : state) benchmark::DoNotOptimize(compiled(schema(text)));
  state.counters["schema bytes"] = static_cast<double>(text.size());
}

// Walks the answer; returns its number of tokens.
size_t follow(const std::shared_ptr<const decode::Grammar>& grammar,
              const std::vector<int32_t>& ids, std::vector<uint64_t>& words) {
  decode::GrammarState at(grammar);
  for (const int32_t id : ids) {
    at.mask(words);
    benchmark::DoNotOptimize(words.data());
    if (!at.accept(id)) {
      fmt::print(stderr, "the answer is not in the grammar\n");
      std::abort();
    }
  }
  return ids.size();
}

void mask(benchmark::State& state, const decode::GrammarSpec& spec, std::string_view answer,
          bool warm) {
  if (!ready(state)) return;
  const std::vector<int32_t> ids = tokenizer()->encode_plain(answer);
  auto grammar = compiled(spec);
  std::vector<uint64_t> words(grammar->mask_words());
  if (warm) follow(grammar, ids, words);
  for (auto _ : state) {
    if (!warm) {
      state.PauseTiming();
      grammar = compiled(spec);
      state.ResumeTiming();
    }
    follow(grammar, ids, words);
  }
  state.counters["per token"] = benchmark::Counter(
      static_cast<double>(ids.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["KiB kept"] = static_cast<double>(grammar->bytes()) / 1024;
}

void apply(benchmark::State& state) {
  if (!ready(state)) return;
  const auto vocab = static_cast<int64_t>(tokenizer()->size());
  decode::SamplerParams params;
  params.temperature = 0;
  decode::Sampler sampler(vocab, {});
  const std::vector<float> logits(static_cast<size_t>(vocab));
  decode::SamplerParams free = params;
  params.grammar = compiled(schema(std::string(kPerson)));
  if (state.range(0) == 0) params = free;
  decode::SequenceSampling sequence(params, {}, vocab);
  for (const int32_t id : tokenizer()->encode_plain("{\"name\": \"Ada")) sequence.accept(id);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(logits, sequence));
}

decode::GrammarSpec json_object() {
  decode::GrammarSpec spec;
  spec.format = decode::GrammarSpec::Format::kJsonObject;
  return spec;
}

BENCHMARK_CAPTURE(compile, person, std::string(kPerson))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(compile, 50_KB, large_schema(50'000))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(mask, schema_warm, schema(std::string(kPerson)), kAnswer, true);
BENCHMARK_CAPTURE(mask, schema_first, schema(std::string(kPerson)), kAnswer, false);
BENCHMARK_CAPTURE(mask, json_object_warm, json_object(), kAnswer, true);
BENCHMARK_CAPTURE(mask, json_object_first, json_object(), kAnswer, false);
BENCHMARK(apply)->ArgName("grammar")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace

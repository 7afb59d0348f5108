// Schemas, regular expressions and EBNF. What compiles is walked: under its own masks no state may
// be without a way on, and JSON that came to its end is JSON.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "decode/grammar_compile.h"
#include "text/json_value.h"
#include "text/tokenizer.h"

namespace {

using namespace cedra;

void check(bool holds) {
  if (!holds) std::abort();
}

const std::shared_ptr<const decode::Vocabulary>& vocabulary() {
  static const auto tokenizer =
      text::Tokenizer::load(CEDRA_SOURCE_DIR "/tests/golden/tiny/tokenizer.json");
  static const auto made = decode::Vocabulary::create(*tokenizer);
  return *made;
}

// The n-th of the tokens that fit, counted round and round.
int32_t token(const std::vector<uint64_t>& words, uint32_t n) {
  int count = 0;
  for (const uint64_t word : words) count += std::popcount(word);
  if (count == 0) return -1;
  n %= static_cast<uint32_t>(count);
  for (size_t w = 0;; ++w) {
    for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      if (n-- == 0) return static_cast<int32_t>(w * 64) + std::countr_zero(bits);
    }
  }
}

void walk(const std::shared_ptr<const decode::Grammar>& grammar, bool json, uint32_t seed) {
  std::vector<uint64_t> words(grammar->mask_words());
  decode::GrammarState state(grammar);
  std::string text;
  for (int i = 0; i < 60 && !state.finished(); ++i) {
    if (!state.mask(words)) return;
    seed = seed * 1664525 + 1013904223;
    const int32_t id = token(words, seed >> 8);
    check(id >= 0);
    text += grammar->vocabulary().bytes(id);
    decode::GrammarState fork = state;
    if (!state.accept(id)) {
      check(state.too_ambiguous());
      return;
    }
    check(fork.accept(id) && fork.complete() == state.complete());
  }
  if (json && state.complete()) check(text::JsonReader().valid(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  decode::GrammarSpec spec;
  using Format = decode::GrammarSpec::Format;
  constexpr Format kFormats[] = {Format::kJsonSchema, Format::kRegex, Format::kEbnf};
  spec.format = kFormats[data[0] % 3];
  spec.markup = (data[0] & 64) != 0;
  spec.in_reasoning = (data[0] & 128) != 0;
  spec.text.assign(reinterpret_cast<const char*>(data + 2), size - 2);
  spec.where = "it";
  if ((data[0] & 32) != 0) {
    spec.calls = decode::GrammarSpec::Calls::kMust;
    spec.tools = {{"f", spec.text, (data[0] & 16) != 0}};
  }
  const auto grammar = decode::compile_grammar(spec, vocabulary());
  if (!grammar) {
    check(!grammar.error().message.empty());
    return 0;
  }
  const bool json = spec.format == Format::kJsonSchema && !spec.in_reasoning && (data[0] & 32) == 0;
  for (uint32_t i = 0; i < 3; ++i) walk(*grammar, json, data[1] + i * 77);
  return 0;
}

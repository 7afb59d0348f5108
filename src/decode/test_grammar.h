// Test support: grammars on the tiny vocabulary, whether they take a text, and random texts of
// theirs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "decode/grammar_compile.h"
#include "text/tokenizer.h"

namespace cedra::decode::testing {

inline const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = [] {
    auto loaded = text::Tokenizer::load(CEDRA_SOURCE_DIR "/tests/golden/tiny/tokenizer.json");
    if (!loaded) std::abort();
    return *std::move(loaded);
  }();
  return tokenizer;
}

inline std::shared_ptr<const Vocabulary> tiny_vocabulary() {
  static const std::shared_ptr<const Vocabulary> vocabulary = [] {
    auto made = Vocabulary::create(tiny_tokenizer());
    if (!made) std::abort();
    return *std::move(made);
  }();
  return vocabulary;
}

inline Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) {
  return compile_grammar(spec, tiny_vocabulary());
}

inline GrammarSpec spec_of(GrammarSpec::Format format, std::string text) {
  GrammarSpec spec;
  spec.format = format;
  spec.text = std::move(text);
  spec.where = "it";
  return spec;
}
inline GrammarSpec schema(std::string text) {
  return spec_of(GrammarSpec::Format::kJsonSchema, std::move(text));
}
inline GrammarSpec regex(std::string text) {
  return spec_of(GrammarSpec::Format::kRegex, std::move(text));
}
inline GrammarSpec ebnf(std::string text) {
  return spec_of(GrammarSpec::Format::kEbnf, std::move(text));
}

inline std::shared_ptr<const Grammar> grammar(const GrammarSpec& spec) {
  auto compiled = compile(spec);
  if (!compiled) {
    ADD_FAILURE() << spec.text << ": " << compiled.error().message;
    return nullptr;
  }
  return *std::move(compiled);
}

inline std::string error_of(const GrammarSpec& spec) {
  const auto compiled = compile(spec);
  return compiled ? "no error" : compiled.error().message;
}

// Whether the whole text is in the grammar.
inline bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarState state(grammar);
  return state.accept(text) && state.complete();
}
inline bool takes(const GrammarSpec& spec, std::string_view text) {
  const auto compiled = grammar(spec);
  return compiled != nullptr && takes(compiled, text);
}

// Tokens that fit, in ascending order.
inline std::vector<int32_t> allowed(const GrammarState& state) {
  std::vector<uint64_t> words(state.grammar().mask_words());
  state.mask(words);
  std::vector<int32_t> ids;
  for (size_t w = 0; w < words.size(); ++w) {
    for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      ids.push_back(static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(bits))));
    }
  }
  return ids;
}

// Random tokens under the mask, at most `most`; ends where the grammar says so, or may. Every
// second token is one that begins with a byte of `rather`, if one fits: the first byte wherever it
// does, otherwise any of the others. Fails the test where nothing fits.
struct Sampled {
  std::string text;
  bool complete = false;
};
inline Sampled sample(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random, int most,
                      std::string_view rather = {}) {
  Sampled out;
  GrammarState state(grammar);
  for (int i = 0; i < most; ++i) {
    if (state.finished() || (state.complete() && random() % 3 == 0)) {
      out.complete = true;
      return out;
    }
    std::vector<int32_t> ids = allowed(state);
    // Most texts would never end if all tokens were as likely.
    if (!rather.empty() && random() % 2 == 0) {
      for (const char wanted : {rather.front(), rather[random() % rather.size()]}) {
        const auto is_other = [&](int32_t id) {
          return state.grammar().vocabulary().bytes(id).front() != wanted;
        };
        if (std::ranges::all_of(ids, is_other)) continue;
        std::erase_if(ids, is_other);
        break;
      }
    }
    if (ids.empty()) {
      ADD_FAILURE() << "nothing fits after: " << out.text;
      return out;
    }
    const int32_t id = ids[random() % ids.size()];
    out.text += state.grammar().vocabulary().bytes(id);
    if (!state.accept(id)) {
      ADD_FAILURE() << "the mask allowed " << id << " after: " << out.text;
      return out;
    }
  }
  out.complete = state.complete();
  return out;
}

}  // namespace cedra::decode::testing

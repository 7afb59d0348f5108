// sample_grammar TOKENIZER_JSON: a judge's other half. Reads one JSON object per line and answers
// each with one line:
//   {"op":"sample","kind":K,"text":T,"count":N,"seed":S,"max":M} -> {"samples":[...],"cut":n}
//       random answers under the token masks that came to an end within M tokens, and how many did
//       not
//   {"op":"accept","kind":K,"text":T,"inputs":[...]}             -> {"accepted":[...]}
// K: json_schema, json_object, regex or grammar. What cannot be compiled gives {"error":"..."}.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <string>

#include "decode/test_grammar.h"
#include "text/json_value.h"

namespace {

using namespace cedra;

decode::GrammarSpec spec_of(const text::JsonValue& order) {
  const std::string& kind = order.find("kind")->text();
  decode::GrammarSpec spec;
  using Format = decode::GrammarSpec::Format;
  spec.format = kind == "json_schema"   ? Format::kJsonSchema
                : kind == "json_object" ? Format::kJsonObject
                : kind == "regex"       ? Format::kRegex
                                        : Format::kEbnf;
  spec.text = order.find("text")->text();
  spec.where = "it";
  return spec;
}

std::string answer(const text::JsonValue& order,
                   const std::shared_ptr<const decode::Vocabulary>& vocabulary) {
  using text::JsonValue;
  const auto compiled = decode::compile_grammar(spec_of(order), vocabulary);
  std::vector<JsonValue::Member> out;
  if (!compiled) {
    out.emplace_back("error", JsonValue::string(compiled.error().message));
  } else if (order.find("op")->text() == "accept") {
    std::vector<JsonValue> accepted;
    for (const JsonValue& input : order.find("inputs")->items()) {
      accepted.push_back(JsonValue::boolean(decode::testing::takes(*compiled, input.text())));
    }
    out.emplace_back("accepted", JsonValue::array(std::move(accepted)));
  } else {
    std::mt19937 random(static_cast<uint32_t>(*order.find("seed")->as_int64()));
    std::vector<JsonValue> samples;
    int64_t cut = 0;
    const int most = static_cast<int>(*order.find("max")->as_int64());
    for (int64_t i = 0; i < *order.find("count")->as_int64(); ++i) {
      const auto sampled = decode::testing::sample(*compiled, random, most, "\"]}");
      if (sampled.complete) samples.push_back(JsonValue::string(sampled.text));
      cut += sampled.complete ? 0 : 1;
    }
    out.emplace_back("samples", JsonValue::array(std::move(samples)));
    out.emplace_back("cut", JsonValue::number(std::to_string(cut)));
  }
  return text::python_json(JsonValue::object(std::move(out)));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: sample_grammar TOKENIZER_JSON\n";
    return 2;
  }
  const auto tokenizer = cedra::text::Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << '\n';
    return 1;
  }
  const auto vocabulary = cedra::decode::Vocabulary::create(*tokenizer);
  if (!vocabulary) {
    std::cerr << vocabulary.error().message << '\n';
    return 1;
  }
  cedra::text::JsonReader reader;
  for (std::string line; std::getline(std::cin, line);) {
    const auto order = reader.read(line);
    if (!order) {
      std::cerr << order.error().message << '\n';
      return 1;
    }
    std::cout << answer(*order, *vocabulary) << std::endl;
  }
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

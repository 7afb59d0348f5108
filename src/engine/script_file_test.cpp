// Scripts: which answer a prompt gets, and that a wrong file is refused by the place of its error.
#include "engine/script_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cedra::engine {
namespace {

using ::testing::HasSubstr;

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer loaded =
      text::Tokenizer::load(CEDRA_SOURCE_DIR "/models/tiny").value();
  return loaded;
}

Script answer(const ScriptedOptions& options, const std::string& prompt) {
  Request request;
  request.prompt = tokenizer().encode(prompt);
  return options.script(request);
}

std::string text_of(const Script& script) { return tokenizer().decode(script.tokens); }

TEST(ScriptFile, TheFirstRuleThatFitsAnswers) {
  Result<ScriptFile> file = parse_script_file(R"({
    "token_delay_ms": 3, "context_length": 100,
    "answers": [
      {"request": 2, "text": "second"},
      {"when": ["cat", "dog"], "text": "both"},
      {"when": "cat", "unless": "bird", "text": "</think>a cat"},
      {"when": "broken", "text": "so", "error": "the engine broke"}]})");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->token_delay, std::chrono::milliseconds(3));
  const ScriptedOptions options = script_options(*std::move(file), tokenizer()).value();
  EXPECT_EQ(options.info.context_length, 100);
  EXPECT_EQ(options.info.vocab_size, tokenizer().size());
  EXPECT_EQ(text_of(answer(options, "a dog and a cat")), "both");
  EXPECT_EQ(text_of(answer(options, "a dog and a cat")), "second");
  const Script cat = answer(options, "a cat");
  EXPECT_EQ(text_of(cat), "</think>a cat");
  EXPECT_EQ(cat.tokens.front(), tokenizer().added_id("</think>"));
  EXPECT_FALSE(cat.error);
  EXPECT_EQ(answer(options, "broken").error->message, "the engine broke");
  EXPECT_THAT(answer(options, "a cat, a bird").error->message, HasSubstr("no answer"));
}

TEST(ScriptFile, WrongFilesAreRefusedByPlace) {
  const auto message = [](const char* json) {
    const Result<ScriptFile> file = parse_script_file(json);
    return file ? std::string("accepted") : file.error().message;
  };
  EXPECT_THAT(message("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("answers"));
  EXPECT_THAT(message(R"({"answers":[{"when":"x"}]})"), HasSubstr("answers.0.text is missing"));
  EXPECT_THAT(message(R"({"answers":[{"text":"x","then":"y"}]})"), HasSubstr("answers.0.then"));
  EXPECT_THAT(message(R"({"answers":[{"text":"x","when":1}]})"), HasSubstr("answers.0.when"));
  EXPECT_THAT(message(R"({"answers":[{"text":"x","request":0}]})"), HasSubstr("from 1"));
  EXPECT_THAT(message(R"({"answer":[]})"), HasSubstr("answer"));
  EXPECT_THAT(message(R"({"max_num_seqs":-1,"answers":[{"text":"x"}]})"),
              HasSubstr("max_num_seqs"));
}

}  // namespace
}  // namespace cedra::engine

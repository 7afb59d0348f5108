// From a request's fields to an answer of the form: a model that says anything that its grammar
// allows.
#include "server/structured_output.h"

#include <bit>
#include <random>

#include "decode/grammar.h"
#include "server/test_server.h"
#include "text/json_value.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;
using text::JsonValue;

constexpr int32_t kEos = 1;

// Random tokens under the request's grammar; "free" without one. Ends are taken where they can be.
std::vector<int32_t> random_answer(const engine::Request& request) {
  std::vector<int32_t> out;
  if (request.sampling.grammar == nullptr) return tiny_tokenizer().encode("free");
  std::mt19937 random(static_cast<uint32_t>(*request.sampling.seed));
  decode::GrammarState state(request.sampling.grammar);
  std::vector<uint64_t> words(state.grammar().mask_words());
  while (out.size() < 3000 && !(state.complete() && (state.finished() || random() % 2 == 0))) {
    state.mask(words);
    std::vector<int32_t> ids;
    std::vector<int32_t> closing;  // brings texts to an end
    std::vector<int32_t> markup;   // the tag's symbol: goes on with a tag that has begun
    for (size_t w = 0; w < words.size(); ++w) {
      for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
        ids.push_back(static_cast<int32_t>(w * 64) + std::countr_zero(bits));
        const char first = state.grammar().vocabulary().bytes(ids.back()).front();
        if (first == '\xFF') markup.push_back(ids.back());
        if (std::string_view("\"]}</\xFE").find(first) != std::string_view::npos) {
          closing.push_back(ids.back());
        }
      }
    }
    EXPECT_FALSE(ids.empty());
    if (ids.empty()) break;
    const bool rather = random() % 2 == 0;
    const std::vector<int32_t>& from = rather && !markup.empty()    ? markup
                                       : rather && !closing.empty() ? closing
                                                                    : ids;
    out.push_back(from[random() % from.size()]);
    EXPECT_TRUE(state.accept(out.back()));
  }
  out.push_back(kEos);
  return out;
}

struct StructuredService {
  StructuredService() : engine(options()), service(engine, tiny_tokenizer(), {}) {}
  static engine::ScriptedOptions options() {
    engine::ScriptedOptions out;
    out.info.context_length = 8192;
    out.info.vocab_size = 512;
    out.info.eos_token_id = kEos;
    out.info.max_num_seqs = 4;
    out.info.max_queue = 8;
    out.script = random_answer;
    return out;
  }
  JsonValue ask(const std::string& path, const std::string& body) {
    const auto exchange = std::make_shared<MemoryExchange>();
    service.answer({"POST", path, body, {}, {}}, exchange, std::chrono::steady_clock::now());
    const HttpResponse response = exchange->wait();
    EXPECT_EQ(response.status, 200) << response.body;
    auto value = text::JsonReader().read(response.body);
    EXPECT_TRUE(value.has_value()) << response.body;
    return value ? *std::move(value) : JsonValue();
  }
  // The first choice's message, or text.
  JsonValue chat(const std::string& more, int seed) {
    const JsonValue body =
        ask("/v1/chat/completions",
            R"({"messages":[{"role":"user","content":"json"}],"max_tokens":4000,"seed":)" +
                std::to_string(seed) + "," + more + "}");
    return *body.find("choices")->items().at(0).find("message");
  }

  engine::ScriptedEngine engine;
  Service service;
};

JsonValue parsed(const std::string& json) {
  auto value = text::JsonReader().read(json);
  EXPECT_TRUE(value.has_value()) << json;
  return value ? *std::move(value) : JsonValue();
}

const std::string kOff = R"("thinking":{"type":"disabled"},)";
const std::string kSchema = R"({"type":"object","properties":{"city":{"type":"string"},
  "n":{"type":"integer"}},"required":["city","n"],"additionalProperties":false})";

void expect_city(const JsonValue& value) {
  ASSERT_TRUE(value.is_object());
  ASSERT_EQ(value.members().size(), 2U);
  EXPECT_EQ(value.members()[0].first, "city");
  EXPECT_TRUE(value.members()[0].second.is_string());
  EXPECT_EQ(value.members()[1].first, "n");
  EXPECT_TRUE(value.members()[1].second.is_integer());
}

TEST(StructuredOutput, JsonObjectsAndSchemas) {
  StructuredService service;
  for (int seed = 0; seed < 10; ++seed) {
    EXPECT_TRUE(parsed(service.chat(kOff + R"("response_format":{"type":"json_object"})", seed)
                           .find("content")
                           ->text())
                    .is_object());
    for (const std::string& field :
         {R"("response_format":{"type":"json_schema","json_schema":{"name":"c","schema":)" +
              kSchema + "}}",
          R"("guided_json":)" + kSchema, R"("structured_outputs":{"json":)" + kSchema + "}"}) {
      expect_city(parsed(service.chat(kOff + field, seed).find("content")->text()));
    }
  }
}

TEST(StructuredOutput, MessagesHaveAnOutputFormat) {
  StructuredService service;
  const std::string format = R"({"type":"json_schema","schema":)" + kSchema + "}";
  for (const std::string& field :
       {R"("output_config":{"format":)" + format + "}", R"("output_format":)" + format}) {
    for (const char* thinking : {"disabled", "enabled"}) {
      const JsonValue body = service.ask(
          "/v1/messages",
          R"({"max_tokens":4000,"seed":7,"messages":[{"role":"user","content":"x"}],"thinking":{"type":")" +
              std::string(thinking) + "\"}," + field + "}");
      const JsonValue& last = body.find("content")->items().back();
      ASSERT_EQ(last.find("type")->text(), "text");
      expect_city(parsed(last.find("text")->text()));
    }
  }
}

TEST(StructuredOutput, ReasoningComesFirst) {
  StructuredService service;
  for (int seed = 0; seed < 10; ++seed) {
    const JsonValue message =
        service.chat(R"("thinking":{"type":"enabled"},"guided_json":)" + kSchema, seed);
    expect_city(parsed(message.find("content")->text()));
    EXPECT_NE(message.find("reasoning_content"), nullptr);
  }
}

TEST(StructuredOutput, RegexGrammarAndChoice) {
  StructuredService service;
  const auto content = [&](const std::string& field, int seed) {
    return service.chat(kOff + field, seed).find("content")->text();
  };
  for (int seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(content(R"("guided_regex":"a{3}")", seed), "aaa");
    EXPECT_EQ(content(R"("guided_grammar":"root ::= \"x\" y\ny ::= \"z\"")", seed), "xz");
    const std::string choice = content(R"("guided_choice":["yes","no"])", seed);
    EXPECT_TRUE(choice == "yes" || choice == "no") << choice;
    EXPECT_EQ(content(R"("structured_outputs":{"regex":"b"})", seed), "b");
    EXPECT_EQ(content(R"("temperature":1)", seed), "free");
    const JsonValue completion =
        service.ask("/v1/completions", R"({"prompt":"x","guided_regex":"c{4}","max_tokens":99})");
    EXPECT_EQ(completion.find("choices")->items().at(0).find("text")->text(), "cccc");
  }
}

const std::string kTools = R"("tools":[
  {"type":"function","function":{"name":"weather","strict":true,"parameters":)" +
                           kSchema + R"(}},
  {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}])";

TEST(StructuredOutput, ForcedToolsAreCalled) {
  StructuredService service;
  int weather = 0;
  for (int seed = 0; seed < 20; ++seed) {
    const JsonValue message = service.chat(
        kOff + kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)", seed);
    const JsonValue* calls = message.find("tool_calls");
    ASSERT_NE(calls, nullptr);
    ASSERT_EQ(calls->items().size(), 1U);
    const JsonValue* function = calls->items()[0].find("function");
    const JsonValue arguments = parsed(function->find("arguments")->text());
    if (function->find("name")->text() == "weather") {
      ++weather;
      expect_city(arguments);
    } else {
      EXPECT_EQ(function->find("name")->text(), "now");
      EXPECT_TRUE(arguments.members().empty());
    }
    const JsonValue named = service.chat(
        kOff + kTools + R"(,"tool_choice":{"type":"function","function":{"name":"now"}})", seed);
    EXPECT_EQ(named.find("tool_calls")->items().at(0).find("function")->find("name")->text(),
              "now");
  }
  EXPECT_GT(weather, 2);
}

TEST(StructuredOutput, StrictToolsMayBeCalled) {
  StructuredService service;
  int called = 0;
  // Few random answers begin a call.
  for (int seed = 0; seed < 4000 && called < 3; ++seed) {
    const JsonValue message = service.chat(kOff + kTools, seed);
    const JsonValue* calls = message.find("tool_calls");
    if (calls == nullptr) continue;
    for (const JsonValue& call : calls->items()) {
      const JsonValue* function = call.find("function");
      if (function->find("name")->text() != "weather") continue;
      ++called;
      expect_city(parsed(function->find("arguments")->text()));
    }
  }
  EXPECT_GT(called, 0);
}

TEST(StructuredOutput, ContinuedMessagesCountFromTheirBeginning) {
  StructuredService service;
  const JsonValue body = service.ask(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"json"},{"role":"assistant","content":"{\"city\":\"a",
          "prefix":true}],"thinking":{"type":"disabled"},"max_tokens":4000,"guided_json":)" +
          kSchema + "}");
  const std::string rest =
      body.find("choices")->items().at(0).find("message")->find("content")->text();
  expect_city(parsed("{\"city\":\"a" + rest));
}

}  // namespace
}  // namespace cedra::server

// What one request and its answer cannot show: conversations over several requests, the same text
// on every route, failures in mid-answer.
#include <gmock/gmock.h>

#include "server/response_store.h"
#include "server/test_schema.h"
#include "server/test_server.h"
#include "text/json_value.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using text::JsonValue;

JsonValue parsed(const std::string& json) {
  Result<JsonValue> value = text::JsonReader().read(json);
  EXPECT_TRUE(value.has_value()) << json;
  return value ? *std::move(value) : JsonValue();
}

// Follows keys and indices; null if the way ends.
const JsonValue& at(const JsonValue& value, const std::vector<std::string>& path) {
  static const JsonValue kNull;
  const JsonValue* here = &value;
  for (const std::string& step : path) {
    if (here->is_array()) {
      const size_t index = std::stoul(step);
      if (index >= here->items().size()) return kNull;
      here = &here->items()[index];
    } else if ((here = here->find(step)) == nullptr) {
      return kNull;
    }
  }
  return *here;
}

// Keeps the prompts that the engine was given.
struct Prompts {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;

  TestOptions options(const std::string& answer) {
    TestOptions out;
    out.answer = [this, answer](const engine::Request& request) {
      ids.push_back(request.prompt);
      texts.push_back(tiny_tokenizer().decode(request.prompt));
      return engine::Script(tiny_tokenizer().encode(answer));
    };
    return out;
  }
};

HttpResponse ask(TestService& service, const std::string& path, const std::string& body,
                 const std::string& key = "") {
  const auto exchange = std::make_shared<MemoryExchange>();
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.body = body;
  request.api_key = key;
  service.service.answer(request, exchange, std::chrono::steady_clock::now());
  return exchange->wait();
}

TEST(Responses, PreviousResponseGoesOn) {
  Prompts prompts;
  TestService service(prompts.options("Hm</think>Blue."));
  const HttpResponse first =
      ask(service, "/v1/responses", R"({"input":"My colour?","instructions":"Be brief."})");
  ASSERT_EQ(first.status, 200) << first.body;
  const std::string id = at(parsed(first.body), {"id"}).text();
  const HttpResponse second =
      ask(service, "/v1/responses",
          R"({"input":"Sure?","instructions":"Be kind.","previous_response_id":")" + id + "\"}");
  ASSERT_EQ(second.status, 200) << second.body;
  EXPECT_EQ(at(parsed(second.body), {"previous_response_id"}).text(), id);
  // The same as the whole history by hand: instructions are not inherited.
  const HttpResponse whole =
      ask(service, "/v1/responses",
          R"({"instructions":"Be kind.","input":[{"role":"user","content":"My colour?"},)"
          R"({"type":"reasoning","content":[{"type":"reasoning_text","text":"Hm"}]},)"
          R"({"role":"assistant","content":"Blue."},{"role":"user","content":"Sure?"}]})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  ASSERT_EQ(prompts.texts.size(), 3u);
  EXPECT_EQ(prompts.texts[1], prompts.texts[2]);
  EXPECT_THAT(prompts.texts[1], AllOf(HasSubstr("Blue."), Not(HasSubstr("Be brief."))));
}

TEST(Responses, ACallIsAnsweredThroughThePreviousResponse) {
  Prompts prompts;
  TestService service(
      prompts.options("</think>\n\n<\uff5cDSML\uff5c calls>\n<\uff5cDSML\uff5c invoke name=\"f\">\n"
                      "</\uff5cDSML\uff5c invoke>\n</\uff5cDSML\uff5c calls>"));
  const std::string tools = R"("tools":[{"type":"function","name":"f","parameters":{}}])";
  const JsonValue first =
      parsed(ask(service, "/v1/responses", R"({"input":"go",)" + tools + "}").body);
  ASSERT_EQ(at(first, {"output", "0", "type"}).text(), "function_call");
  const HttpResponse second =
      ask(service, "/v1/responses",
          R"({"input":[{"type":"function_call_output","output":"done","call_id":")" +
              at(first, {"output", "0", "call_id"}).text() + R"("}],"previous_response_id":")" +
              at(first, {"id"}).text() + "\"," + tools + "}");
  EXPECT_EQ(second.status, 200) << second.body;
  EXPECT_THAT(second.body, Not(HasSubstr("warnings")));
  EXPECT_THAT(prompts.texts.at(1), AllOf(HasSubstr("invoke name=\"f\""), HasSubstr("done")));
}

TEST(Responses, OnlyTheOwnerFindsWhatIsKept) {
  TestOptions options;
  options.service.api_keys = {"a", "b"};
  TestService service(options);
  const auto body = [](const JsonValue& earlier) {
    return R"({"input":"x","previous_response_id":")" + at(earlier, {"id"}).text() + "\"}";
  };
  const JsonValue kept = parsed(ask(service, "/v1/responses", R"({"input":"x"})", "a").body);
  EXPECT_EQ(ask(service, "/v1/responses", body(kept), "a").status, 200);
  EXPECT_EQ(ask(service, "/v1/responses", body(kept), "b").status, 404);
  const JsonValue not_kept =
      parsed(ask(service, "/v1/responses", R"({"input":"x","store":false})", "a").body);
  EXPECT_EQ(ask(service, "/v1/responses", body(not_kept), "a").status, 404);
}

TEST(Responses, WhatIsKeptCanBeReadAndDeleted) {
  TestOptions options;
  options.script = "Hm</think>Ok";
  options.service.api_keys = {"a", "b"};
  TestService service(options);
  const auto ask_for = [&](const char* method, const std::string& id, const char* key) {
    const auto exchange = std::make_shared<MemoryExchange>();
    HttpRequest request;
    request.method = method;
    request.path = "/v1/responses/" + id;
    request.api_key = key;
    service.service.answer(request, exchange, std::chrono::steady_clock::now());
    return exchange->wait();
  };
  const auto fits = [](const HttpResponse& response, const char* schema) {
    return Schemas::get().check(parsed(response.body), Schemas::get().named(schema));
  };
  const HttpResponse made =
      ask(service, "/v1/responses", R"({"input":"x","metadata":{"k":"v"}})", "a");
  const std::string id = at(parsed(made.body), {"id"}).text();
  HttpResponse kept = ask_for("GET", id, "a");
  EXPECT_EQ(kept.status, 200);
  EXPECT_EQ(kept.body, made.body);
  EXPECT_EQ(fits(kept, "Response"), "");
  for (const char* method : {"GET", "DELETE"}) {
    const HttpResponse foreign = ask_for(method, id, "b");
    EXPECT_EQ(foreign.status, 404);
    EXPECT_EQ(fits(foreign, "Error"), "");
    EXPECT_THAT(foreign.body, HasSubstr(id));
    EXPECT_EQ(ask_for(method, id, "").status, 401);
  }
  // A stream keeps the same object that its last event carries.
  const std::string events =
      ask(service, "/v1/responses", R"({"input":"x","stream":true})", "a").body;
  const size_t last = events.rfind("\"response\":{") + 11;
  const std::string object = events.substr(last, events.rfind("}\n\n") - last);
  kept = ask_for("GET", at(parsed(object), {"id"}).text(), "a");
  EXPECT_EQ(kept.body, object);

  const HttpResponse deleted = ask_for("DELETE", id, "a");
  EXPECT_EQ(deleted.status, 200);
  EXPECT_EQ(deleted.body, R"({"id":")" + id + R"(","object":"response","deleted":true})");
  EXPECT_EQ(fits(deleted, "DeletedResponse"), "");
  EXPECT_EQ(ask_for("DELETE", id, "a").status, 404);
  EXPECT_EQ(ask_for("GET", id, "a").status, 404);
  EXPECT_EQ(
      ask(service, "/v1/responses", R"({"input":"x","previous_response_id":")" + id + "\"}", "a")
          .status,
      404);

  const HttpResponse wrong = ask_for("POST", id, "a");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.headers, Contains(std::pair<std::string, std::string>("Allow", "GET, DELETE")));
}

TEST(ResponseStore, IsBoundedAndForgetsTheLongestUnused) {
  const auto conversation = [](size_t bytes) {
    std::vector<text::Message> out(1);
    out[0].content.push_back({text::ContentPart::Kind::kText, std::string(bytes, 'x')});
    return out;
  };
  ResponseStore store(30'000);
  for (const char* id : {"a", "b"}) store.put(id, 0, conversation(6'000), std::string(4'000, 'x'));
  EXPECT_TRUE(store.get("a", 0));
  store.put("c", 0, conversation(10'000), {});
  EXPECT_TRUE(store.get("a", 0));
  EXPECT_FALSE(store.get("b", 0)) << "a was used after it";
  EXPECT_TRUE(store.get("c", 0));
  store.put("large", 0, conversation(10'000), std::string(30'000, 'x'));
  EXPECT_FALSE(store.get("large", 0));
  EXPECT_TRUE(store.get("c", 0)) << "what cannot be kept pushes nothing out";
  EXPECT_LE(store.bytes(), 30'000u);
  EXPECT_FALSE(store.erase("c", 1)) << "another's";
  EXPECT_TRUE(store.erase("c", 0));
  EXPECT_FALSE(store.body("c", 0));
  EXPECT_TRUE(store.erase("a", 0));
  EXPECT_EQ(store.bytes(), 0u);
  ResponseStore none(0);
  none.put("a", 0, {}, {});
  EXPECT_FALSE(none.get("a", 0));
}

// Fault 21: one parser for all routes.
TEST(Routes, TheSameTextIsOneCallEverywhere) {
  Prompts prompts;
  TestService service(prompts.options(
      "Hm</think>Ok\n\n<\uff5cDSML\uff5c calls>\n<\uff5cDSML\uff5c invoke name=\"f\">\n"
      "<\uff5cDSML\uff5c parameter name=\"city\" string=\"true\">A \"b\"</\uff5cDSML\uff5c "
      "parameter>\n</\uff5cDSML\uff5c invoke>\n</\uff5cDSML\uff5c calls>"));
  const std::string schema = R"({"type":"object","properties":{"city":{"type":"string"}}})";
  const std::string user = R"("messages":[{"role":"user","content":"x"}])";
  const JsonValue chat = parsed(
      ask(service, "/v1/chat/completions",
          "{" + user + R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" +
              schema + "}}]}")
          .body);
  const JsonValue messages =
      parsed(ask(service, "/v1/messages",
                 R"({"max_tokens":500,)" + user + R"(,"tools":[{"name":"f","input_schema":)" +
                     schema + "}]}")
                 .body);
  const JsonValue responses = parsed(
      ask(service, "/v1/responses",
          R"({"input":"x","tools":[{"type":"function","name":"f","parameters":)" + schema + "}]}")
          .body);
  const JsonValue& message = at(chat, {"choices", "0", "message"});
  EXPECT_EQ(at(message, {"reasoning_content"}).text(), "Hm");
  EXPECT_EQ(at(message, {"content"}).text(), "Ok");
  EXPECT_EQ(at(messages, {"content", "0", "thinking"}).text(), "Hm");
  EXPECT_EQ(at(messages, {"content", "1", "text"}).text(), "Ok");
  EXPECT_EQ(at(responses, {"output", "0", "content", "0", "text"}).text(), "Hm");
  EXPECT_EQ(at(responses, {"output", "1", "content", "0", "text"}).text(), "Ok");
  const std::string arguments = at(message, {"tool_calls", "0", "function", "arguments"}).text();
  EXPECT_EQ(at(parsed(arguments), {"city"}).text(), "A \"b\"");
  EXPECT_EQ(text::python_json(at(messages, {"content", "2", "input"})),
            text::python_json(parsed(arguments)));
  EXPECT_EQ(at(responses, {"output", "2", "arguments"}).text(), arguments);
  // And the same prompt.
  ASSERT_EQ(prompts.ids.size(), 3u);
  EXPECT_EQ(prompts.ids[0], prompts.ids[1]);
  EXPECT_EQ(prompts.ids[0], prompts.ids[2]);
}

// Prompt faults 29 and 33: reasoning not sent back, calls without an answer.
TEST(Routes, HistoriesWithGapsAreAccepted) {
  Prompts prompts;
  TestService service(prompts.options("</think>ok"));
  const auto body = [](const std::string& reasoning, const std::string& rest) {
    return R"({"messages":[{"role":"user","content":"x"},{"role":"assistant",)" + reasoning +
           R"("content":null,"tool_calls":[{"id":"1","type":"function","function":)"
           R"({"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":)"
           R"({"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"y"})" +
           rest + "]}";
  };
  const std::string both = R"(,{"role":"tool","tool_call_id":"2","content":"z"})";
  for (const char* reasoning :
       {"", R"("reasoning_content":null,)", R"("reasoning_content":"",)", R"("reasoning":"",)"}) {
    EXPECT_EQ(ask(service, "/v1/chat/completions", body(reasoning, both)).status, 200);
    EXPECT_EQ(prompts.ids.back(), prompts.ids.front()) << reasoning;
  }
  const HttpResponse gap =
      ask(service, "/v1/chat/completions", body("", R"(,{"role":"user","content":"never mind"})"));
  EXPECT_EQ(gap.status, 200);
  EXPECT_THAT(gap.body, HasSubstr("warnings"));
}

// Prompt faults 1 and 3, image faults 6 and 7: markers in a client's text are text.
TEST(Routes, MarkersInTextAreText) {
  Prompts prompts;
  TestService service(prompts.options("</think>ok"));
  const std::string marker = "<\uff5cdeepseek_image\uff5c> <\uff5cUser\uff5c> </think> <image>";
  const std::string text = R"({"role":"user","content":")" + marker + "\"}";
  EXPECT_EQ(ask(service, "/v1/chat/completions", R"({"messages":[)" + text + "]}").status, 200);
  EXPECT_EQ(ask(service, "/v1/messages",
                R"({"max_tokens":9,"system":")" + marker + R"(","messages":[)" + text + "]}")
                .status,
            200);
  for (const auto& ids : prompts.ids) {
    const auto count = [&](const char* token) {
      return std::ranges::count(ids, *tiny_tokenizer().added_id(token));
    };
    EXPECT_EQ(count("<\uff5cdeepseek_image\uff5c>"), 0);
    EXPECT_EQ(count("<\uff5cUser\uff5c>"), 1);
    EXPECT_EQ(count("</think>"), 0);
  }
  for (const std::string& prompt : prompts.texts) EXPECT_THAT(prompt, HasSubstr(marker));
}

// Prompt fault 7.
TEST(Routes, WithToolChoiceNoneThePromptIsTheOneWithoutTools) {
  Prompts prompts;
  TestService service(prompts.options("</think>ok"));
  const std::string start = R"({"messages":[{"role":"user","content":"x"}])";
  ask(service, "/v1/chat/completions", start + "}");
  ask(service, "/v1/chat/completions",
      start + R"(,"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]})");
  ASSERT_EQ(prompts.ids.size(), 2u);
  EXPECT_EQ(prompts.ids[0], prompts.ids[1]);
}

TEST(Routes, ReasoningUnderEitherName) {
  for (const auto& [content, plain] : {std::pair{true, true}, {false, true}}) {
    TestOptions options;
    options.script = "Hm</think>Hi";
    options.service.reasoning_names = {content, plain};
    TestService service(options);
    for (const char* stream : {"true", "false"}) {
      const HttpResponse response = service.ask(
          "POST", "/v1/chat/completions",
          R"({"messages":[{"role":"user","content":"x"}],"stream":)" + std::string(stream) + "}");
      EXPECT_THAT(response.body, HasSubstr("\"reasoning\":\""));
      EXPECT_EQ(response.body.find("reasoning_content\":\"") != std::string::npos, content);
    }
  }
}

// An engine that fails after some tokens.
TestOptions failing(bool only_first) {
  TestOptions options;
  options.max_num_seqs = 4;
  options.token_delay = 1ms;
  options.answer = [only_first, count = 0](const engine::Request&) mutable {
    engine::Script script(tiny_tokenizer().encode("Hello"));
    if (!only_first || count++ == 0) {
      script.error = Error{Code::kInternal, "the engine broke"};
    } else {
      script.tokens = tiny_tokenizer().encode(std::string(3000, 'x'));
    }
    return script;
  };
  return options;
}

TEST(Failures, BeforeAStreamEndsAreToldInTheShapeOfTheRoute) {
  TestService service(failing(false));
  const std::string user = R"("stream":true,"messages":[{"role":"user","content":"x"}]})";
  const std::string chat = ask(service, "/v1/chat/completions", "{" + user).body;
  EXPECT_THAT(chat, AllOf(HasSubstr("data: {\"error\":{\"message\":\"the engine broke\""),
                          Not(HasSubstr("[DONE]"))));
  const std::string messages = ask(service, "/v1/messages", R"({"max_tokens":99,)" + user).body;
  EXPECT_THAT(messages, AllOf(HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{"
                                        "\"type\":\"api_error\",\"message\":\"the engine broke\""),
                              Not(HasSubstr("message_stop"))));
  const std::string responses =
      ask(service, "/v1/responses", R"({"stream":true,"input":"x"})").body;
  EXPECT_THAT(responses, AllOf(HasSubstr("event: response.failed"),
                               HasSubstr("\"message\":\"the engine broke\""),
                               Not(HasSubstr("response.completed"))));
  for (const char* path : {"/v1/chat/completions", "/v1/messages"}) {
    const HttpResponse whole =
        ask(service, path, R"({"max_tokens":99,"messages":[{"role":"user","content":"x"}]})");
    EXPECT_EQ(whole.status, 500);
    EXPECT_THAT(whole.body, HasSubstr("the engine broke"));
  }
  EXPECT_EQ(ask(service, "/v1/responses", R"({"input":"x"})").status, 500);
}

// An engine that is done with a request before submit() returns: the earliest that its thread can
// be.
class InstantEngine final : public engine::Engine {
 public:
  explicit InstantEngine(std::string text) : text_(std::move(text)) {
    info_.context_length = 1024;
    info_.vocab_size = 512;
  }
  const engine::Info& info() const override { return info_; }
  Result<engine::RequestId> submit(engine::Request, std::shared_ptr<engine::Sink> sink) override {
    for (const int32_t id : tiny_tokenizer().encode(text_)) sink->on_token({.id = id, .top = {}});
    engine::Finish finish;
    finish.reason = engine::FinishReason::kError;
    finish.error = Error{Code::kInternal, "the engine broke"};
    sink->on_finish(finish);
    return ++submitted;
  }
  void cancel(engine::RequestId) override {}
  engine::Stats stats() const override { return {}; }
  void drain(std::chrono::milliseconds) override {}

  engine::RequestId submitted = 0;

 private:
  engine::Info info_;
  std::string text_;
};

// What a client is told depends on what was generated, never on which thread was faster.
TEST(Failures, AreToldHoweverEarlyTheyCome) {
  for (const bool spoke : {false, true}) {
    for (const bool stream : {false, true}) {
      for (const int choices : {1, 3}) {
        InstantEngine engine(spoke ? "x" : "");
        ServiceOptions options;
        options.model_names = {"flash"};
        Service service(engine, tiny_tokenizer(), options);
        const auto exchange = std::make_shared<MemoryExchange>();
        HttpRequest request;
        request.method = "POST";
        request.path = "/v1/chat/completions";
        request.body = fmt::format(
            R"({{"messages":[{{"role":"user","content":"x"}}],"thinking":{{"type":"disabled"}},)"
            R"("n":{},"stream":{}}})",
            choices, stream);
        service.answer(request, exchange, std::chrono::steady_clock::now());
        const HttpResponse response = exchange->wait();
        EXPECT_THAT(response.body, HasSubstr("the engine broke"));
        EXPECT_EQ(response.status, stream && spoke ? 200 : 500);
        EXPECT_EQ(response.body.find(R"("content":"x")") != std::string::npos, stream && spoke);
        EXPECT_EQ(engine.submitted, static_cast<engine::RequestId>(choices));
      }
    }
  }
}

TEST(Failures, OfOneChoiceEndTheOthers) {
  for (const char* stream : {"true", "false"}) {
    TestService service(failing(true));
    const HttpResponse response =
        ask(service, "/v1/chat/completions",
            R"({"n":4,"messages":[{"role":"user","content":"x"}],"stream":)" + std::string(stream) +
                "}");
    EXPECT_THAT(response.body, HasSubstr("the engine broke"));
    EXPECT_TRUE(eventually([&] { return service.engine.stats().running == 0; }));
    EXPECT_EQ(service.engine.stats().cancelled, 3) << "they were not run to their end";
  }
}

TEST(Failures, AShutdownIsNoAnswer) {
  TestOptions options;
  options.script = std::string(3000, 'x');
  options.token_delay = 1ms;
  TestService service(options);
  const auto exchange = std::make_shared<MemoryExchange>();
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/messages";
  request.body = R"({"max_tokens":2000,"messages":[{"role":"user","content":"x"}]})";
  service.service.answer(request, exchange, std::chrono::steady_clock::now());
  service.engine.drain(0ms);
  const HttpResponse response = exchange->wait();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("overloaded_error"));
}

// Anthropic's tool runner opens a thread; told so in this form, it goes on without.
TEST(Messages, RefuseThreadsSoThatClientsSendEverything) {
  TestService service({});
  const HttpResponse refused = ask(
      service, "/v1/messages",
      R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "thread": {"type": "create"}})");
  EXPECT_EQ(refused.status, 400);
  const JsonValue body = parsed(refused.body);
  EXPECT_EQ(at(body, {"error", "details", "error_code"}).text(), "thread_unsupported_request");
  EXPECT_EQ(at(body, {"error", "details", "unsupported", "0"}).text(), "thread");
}

}  // namespace
}  // namespace cedra::server

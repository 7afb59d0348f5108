// Runs tests/data/server/*.json: a request and what the model writes -> status, events or body.
// The format is described in tests/data/server/README.md.
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/routes.h"
#include "server/test_schema.h"
#include "server/test_server.h"
#include "text/json_value.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;
using text::JsonValue;

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

JsonValue parsed(const std::string& json) {
  Result<JsonValue> value = text::JsonReader().read(json);
  EXPECT_TRUE(value.has_value()) << json << "\n" << (value ? "" : value.error().message);
  return value ? *std::move(value) : JsonValue();
}

std::string text_or(const JsonValue& object, const char* key, const std::string& fallback) {
  const JsonValue* value = object.find(key);
  return value == nullptr ? fallback : value->text();
}

// A second; instrumented builds are slower by some factor.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr double kQuick = 15;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr double kQuick = 15;
#else
constexpr double kQuick = 1;
#endif
#else
constexpr double kQuick = 1;
#endif

// This thread's computing time: a busy machine does not count.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int64_t integer_or(const JsonValue& object, const char* key, int64_t fallback) {
  const JsonValue* value = object.find(key);
  return value == nullptr ? fallback : value->as_int64().value_or(fallback);
}

// "data: X\n\n" to a list of X, as the file spells them. Where events are named, the name is the
// type inside.
std::vector<std::string> events_of(const std::string& stream) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < stream.size()) {
    std::string name;
    if (stream.compare(at, 7, "event: ") == 0) {
      const size_t line = stream.find('\n', at);
      name = stream.substr(at + 7, line - at - 7);
      at = line + 1;
    }
    const size_t end = stream.find("\n\n", at);
    EXPECT_EQ(stream.compare(at, 6, "data: "), 0) << stream.substr(at);
    EXPECT_NE(end, std::string::npos) << stream.substr(at);
    if (end == std::string::npos) break;
    const std::string data = stream.substr(at + 6, end - at - 6);
    out.push_back(data == "[DONE]" ? "\"[DONE]\"" : text::python_json(parsed(data)));
    if (!name.empty()) {
      EXPECT_EQ(text_or(parsed(data), "type", ""), name);
    }
    at = end + 2;
  }
  return out;
}

// Everything that goes out fits the OpenAPI document: whole answers, each event, errors.
void check_schemas(const std::string& path, const HttpResponse& response,
                   const std::vector<std::string>& events) {
  const Schemas& schemas = Schemas::get();
  for (const auto& [known, item] : schemas.document().find("paths")->members()) {
    if (without_prefixes(known) != without_prefixes(path)) continue;
    const JsonValue* responses = item.members().front().second.find("responses");
    const JsonValue* kind = responses->find(response.status == 200 ? "200" : "default");
    const JsonValue* content = kind == nullptr ? nullptr : kind->find("content");
    const JsonValue* type = content == nullptr ? nullptr : content->find(response.content_type);
    ASSERT_NE(type, nullptr) << path << " " << response.status << " " << response.content_type;
    const JsonValue& schema = *type->find("schema");
    if (response.content_type == "application/json") {
      EXPECT_EQ(schemas.check(parsed(response.body), schema), "");
    }
    for (const std::string& event : events) {
      if (event == "\"[DONE]\"") continue;
      EXPECT_EQ(schemas.check(parsed(event), schema), "") << event;
    }
    return;
  }
}

void run_case(const JsonValue& test) {
  TestOptions options;
  options.script = text_or(test, "script", "Hello");
  options.context_length = integer_or(test, "context_length", 4096);
  options.service.version = "0";
  options.service.now = [] { return int64_t{1700000000}; };
  options.service.random = [next = uint64_t{0}]() mutable { return ++next; };
  TestService service(options);
  const JsonValue* body = test.find("body");
  const std::string sent = body != nullptr ? text::python_json(*body) : text_or(test, "raw", "");
  const double start = cpu_seconds();
  const HttpResponse response = service.ask(text_or(test, "method", "POST"),
                                            text_or(test, "path", "/v1/chat/completions"), sent);
  EXPECT_LT(cpu_seconds() - start, kQuick);
  EXPECT_EQ(response.status, integer_or(test, "status", 200)) << response.body;
  const std::vector<std::string> got = response.content_type == "text/event-stream"
                                           ? events_of(response.body)
                                           : std::vector<std::string>();
  check_schemas(text_or(test, "path", "/v1/chat/completions"), response, got);
  if (const JsonValue* events = test.find("events")) {
    for (size_t i = 0; i < std::max(got.size(), events->items().size()); ++i) {
      const std::string expected =
          i < events->items().size() ? text::python_json(events->items()[i]) : "(nothing)";
      EXPECT_EQ(i < got.size() ? got[i] : "(nothing)", expected) << "event " << i;
    }
  }
  if (const JsonValue* expected = test.find("response")) {
    EXPECT_EQ(text::python_json(parsed(response.body)), text::python_json(*expected));
  }
  if (const JsonValue* part = test.find("error")) {
    const JsonValue json = parsed(response.body);
    const JsonValue* error = json.find("error");
    ASSERT_NE(error, nullptr) << response.body;
    EXPECT_NE(error->find("message")->text().find(part->text()), std::string::npos)
        << error->find("message")->text();
    EXPECT_NE(error->find("type"), nullptr);
    const bool anthropic = text_or(test, "path", "").find("/messages") != std::string::npos;
    EXPECT_EQ(error->find("code") == nullptr, anthropic);
    EXPECT_EQ(text_or(json, "type", "none"), anthropic ? "error" : "none");
  }
  if (const JsonValue* part = test.find("contains")) {
    EXPECT_NE(response.body.find(part->text()), std::string::npos) << response.body;
  }
}

TEST(ApiData, AllFiles) {
  int cases = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(CEDRA_SOURCE_DIR "/tests/data/server")) {
    if (entry.path().extension() != ".json") continue;
    const JsonValue file = parsed(file_text(entry.path()));
    ASSERT_TRUE(file.is_object()) << entry.path();
    for (const JsonValue& test : file.find("cases")->items()) {
      SCOPED_TRACE(entry.path().filename().string() + ": " + test.find("name")->text());
      run_case(test);
      ++cases;
    }
  }
  EXPECT_GE(cases, 120);
}

// What data files cannot hold: sizes.
TEST(ApiData, HugeValuesAreRefusedQuickly) {
  TestService service({});
  std::string nested = R"({"messages":)";
  nested += std::string(60000, '[') + std::string(60000, ']') + "}";
  std::string stops = R"({"messages":[{"role":"user","content":"x"}],"stop":["a")";
  for (int i = 0; i < 1000000; ++i) stops += ",\"a\"";
  stops += "]}";
  const std::string long_stop =
      R"({"messages":[{"role":"user","content":"x"}],"stop":")" + std::string(1000000, 'a') + "\"}";
  const std::string long_prompt =
      R"({"messages":[{"role":"user","content":")" + std::string(200000, 'a') + "\"}]}";
  for (const std::string& body : {nested, stops, long_stop, long_prompt}) {
    const double start = cpu_seconds();
    const HttpResponse response = service.ask("POST", "/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 80);
    EXPECT_LT(response.body.size(), 1000u);
    EXPECT_LT(cpu_seconds() - start, kQuick) << body.substr(0, 80);
  }
  std::string prompts = R"({"prompt":["a")";
  for (int i = 0; i < 100000; ++i) prompts += ",\"a\"";
  EXPECT_EQ(service.ask("POST", "/v1/completions", prompts + "]}").status, 400);
  EXPECT_EQ(
      service.ask("POST", "/v1/completions", R"({"prompt":)" + std::string(60000, '[')).status,
      400);
  EXPECT_EQ(service.ask("POST", "/v1/chat/completions", chat_body(false)).status, 200);
}

TEST(ApiData, ApiKey) {
  TestOptions options;
  options.service.api_keys = {"other", "secret"};
  TestService service(options);
  const auto ask = [&](HttpRequest request) {
    const auto exchange = std::make_shared<MemoryExchange>();
    service.service.answer(request, exchange, std::chrono::steady_clock::now());
    return exchange->wait().status;
  };
  EXPECT_EQ(ask({"GET", "/v1/models", "", "", "", ""}), 401);
  EXPECT_EQ(ask({"GET", "/v1/models", "", "Bearer wrong", "", ""}), 401);
  EXPECT_EQ(ask({"GET", "/v1/models", "", "Bearer secretsecret", "", ""}), 401);
  EXPECT_EQ(ask({"POST", "/v1/completions", "{}", "", "", ""}), 401);
  EXPECT_EQ(ask({"GET", "/v1/models", "", "Bearer secret", "", ""}), 200);
  EXPECT_EQ(ask({"GET", "/v1/models", "", "", "secret", ""}), 200);
  EXPECT_EQ(ask({"GET", "/health", "", "", "", ""}), 200);
}

TEST(ApiData, MetricsCountWhatHappened) {
  TestService service({});
  service.ask("POST", "/v1/chat/completions", chat_body(false));
  service.ask("POST", "/v1/chat/completions", "{");
  const std::string text = service.ask("GET", "/metrics", "").body;
  const std::string label = "{model_name=\"deepseek-flash\"";
  EXPECT_NE(text.find("vllm:num_requests_running" + label + "} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("vllm:request_success_total" + label + ",finished_reason=\"stop\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("vllm:time_to_first_token_seconds_count" + label + "} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("vllm:time_to_first_token_seconds_bucket" + label + ",le=\"+Inf\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("cedra:responses_4xx_total" + label + "} 1\n"), std::string::npos);
  for (const char* name :
       {"request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_prompt_tokens", "request_generation_tokens", "e2e_request_latency_seconds"}) {
    EXPECT_NE(text.find(std::string("vllm:") + name + "_count" + label + "} 1\n"),
              std::string::npos)
        << name;
  }
}

}  // namespace
}  // namespace cedra::server

// Limits and what keeps strangers out: web pages, rates, connections per address, hostile bodies
// beside a stream, request ids, what is answered while the model is loaded.
#include <gmock/gmock.h>

#include "server/origin.h"
#include "server/start_gate.h"
#include "server/test_server.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Origin, OwnPagesAndListedOnesOnly) {
  const auto rule = [](const char* origin, const char* host, bool keys = false,
                       std::vector<std::string> allowed = {}) {
    return origin_rule(origin, host, allowed, keys);
  };
  EXPECT_EQ(rule("http://127.0.0.1:8000", "127.0.0.1:8000"), OriginRule::kOwn);
  EXPECT_EQ(rule("http://localhost:8000", "localhost:8000"), OriginRule::kOwn);
  EXPECT_EQ(rule("http://[::1]:8000", "[::1]:8000"), OriginRule::kOwn);
  EXPECT_EQ(rule("http://evil.example", "127.0.0.1:8000"), OriginRule::kForeign);
  EXPECT_EQ(rule("http://127.0.0.1:9000", "127.0.0.1:8000"), OriginRule::kForeign);
  EXPECT_EQ(rule("null", "127.0.0.1:8000"), OriginRule::kForeign);
  EXPECT_EQ(rule("http://1.evil.example", "1.evil.example"), OriginRule::kForeign)
      << "a name may be made to point here";
  EXPECT_EQ(rule("https://me.example", "me.example", true), OriginRule::kOwn)
      << "who has a key came on purpose";
  EXPECT_EQ(rule("https://a.example", "x", false, {"https://a.example"}), OriginRule::kListed);
  EXPECT_EQ(rule("https://b.example", "x", false, {"https://a.example"}), OriginRule::kForeign);
  EXPECT_EQ(rule("https://b.example", "x", false, {"*"}), OriginRule::kListed);
}

TEST(Safety, ForeignPagesAreRefusedBeforeAnythingIsDone) {
  TestServer server;
  Client client(server);
  client.post("/v1/chat/completions", chat_body(false), "Origin: http://evil.example\r\n");
  const Client::Response refused = client.response();
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.head, Not(HasSubstr("Access-Control")));
  EXPECT_EQ(server.engine.stats().finished, 0);
  client.post("/v1/messages", "{}", "Origin: null\r\n");
  EXPECT_THAT(client.response().body, HasSubstr("permission_error"));
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n");
  EXPECT_EQ(client.response().status, 403);
}

TEST(Safety, ListedPagesMayReadTheAnswer) {
  TestOptions options;
  options.service.allowed_origins = {"https://ui.example"};
  TestServer server(options);
  Client client(server);
  client.post("/v1/chat/completions", chat_body(true), "Origin: https://ui.example\r\n");
  const Client::Response answer = client.response();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, AllOf(HasSubstr("Access-Control-Allow-Origin: https://ui.example\r\n"),
                                 HasSubstr("Vary: Origin\r\n")));
  client.send("OPTIONS /v1/messages HTTP/1.1\r\nHost: x\r\nOrigin: https://ui.example\r\n\r\n");
  const Client::Response preflight = client.response();
  EXPECT_EQ(preflight.status, 200);
  EXPECT_THAT(preflight.head, HasSubstr("Access-Control-Allow-Headers: authorization"));
  client.get("/v1/models");
  EXPECT_THAT(client.response().head, Not(HasSubstr("Access-Control")));
}

TEST(RateLimit, FillsEvenlyAndPerClient) {
  RateLimit limit(60);
  const RateLimit::Clock::time_point start{};
  for (int i = 0; i < 60; ++i) EXPECT_EQ(limit.take("a", start).count(), 0) << i;
  EXPECT_EQ(limit.take("a", start), 1000ms);
  EXPECT_EQ(limit.take("b", start).count(), 0);
  EXPECT_EQ(limit.take("a", start + 400ms), 600ms);
  EXPECT_EQ(limit.take("a", start + 1000ms).count(), 0);
  EXPECT_EQ(limit.take("a", start + 1000ms), 1000ms);
  RateLimit none(0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(none.take("a", start).count(), 0);
}

TEST(RateLimit, MemoryIsBounded) {
  RateLimit limit(1);
  const RateLimit::Clock::time_point start{};
  for (int i = 0; i < 70'000; ++i) limit.take(std::to_string(i), start);
  EXPECT_EQ(limit.take("new", start).count(), 0);
}

TEST(Safety, RatesAreHeldPerKey) {
  TestOptions options;
  options.service.requests_per_minute = 2;
  options.service.api_keys = {"a", "b"};
  TestServer server(options);
  Client client(server);
  const auto status = [&](const std::string& key) {
    client.post("/tokenize", R"({"prompt":"x"})", "x-api-key: " + key + "\r\n");
    return client.response();
  };
  EXPECT_EQ(status("a").status, 200);
  EXPECT_EQ(status("a").status, 200);
  const Client::Response refused = status("a");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 30\r\n"));
  EXPECT_EQ(status("b").status, 200);
  client.get("/health");
  EXPECT_EQ(client.response().status, 200);
}

TEST(Safety, ConnectionsOfOneAddressAreBounded) {
  TestOptions options;
  options.limits.connections_per_address = 3;
  TestServer server(options);
  auto first = std::make_unique<Client>(server);
  Client second(server), third(server);
  for (Client* client : {first.get(), &second, &third}) {
    client->get("/health");
    EXPECT_EQ(client->response().status, 200);
  }
  Client fourth(server);
  const Client::Response refused = fourth.response();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(fourth.closed());
  first.reset();
  EXPECT_TRUE(eventually([&] {
    Client again(server);
    again.get("/health");
    return again.response().status == 200;
  }));
}

TEST(Safety, RefusalsOfTheMessagesRouteHaveItsShape) {
  TestOptions options;
  options.limits.body_bytes = 100;
  TestServer server(options);
  Client client(server);
  client.post("/v1/messages?beta=true", std::string(200, ' '));
  const Client::Response refused = client.response();
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, HasSubstr(R"({"type":"error","error":{"type":"request_too_large")"));
}

TEST(Safety, RequestsHaveIds) {
  TestServer server;
  Client client(server);
  const auto id = [&](const std::string& headers) {
    client.post("/tokenize", R"({"prompt":"x"})", headers);
    const std::string head = client.response().head;
    const size_t at = head.find("\r\nx-request-id: ") + 16;
    return head.substr(at, head.find("\r\n", at) - at);
  };
  EXPECT_EQ(id("x-request-id: abc-1.2_3\r\n"), "abc-1.2_3");
  const std::string made = id("");
  EXPECT_THAT(made, ::testing::StartsWith("req_"));
  EXPECT_NE(id(""), made);
  EXPECT_THAT(id("x-request-id: a b\r\n"), ::testing::StartsWith("req_"));
  EXPECT_THAT(id("x-request-id: " + std::string(200, 'a') + "\r\n"), ::testing::StartsWith("req_"));
}

// Fault 31: each is a 400 of its own, the stream beside them goes on to its end.
TEST(Safety, HostileBodiesDoNotDisturbAStream) {
  TestOptions options;
  options.script = std::string(300, 'x');
  options.token_delay = 2ms;
  TestServer server(options);
  Client stream(server);
  stream.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(stream.read_until("\"content\":\"x\""));
  const std::string user = R"("messages":[{"role":"user","content":"x"}])";
  std::string stops = R"("stop":["a")";
  for (int i = 0; i < 100'000; ++i) stops += ",\"a\"";
  stops += "]";
  std::string pattern = R"({"type":"object","properties":{"a":{"type":"string","pattern":")";
  pattern += std::string(60'000, '(') + std::string(60'000, ')') + "\"}}}";
  std::string deep;
  for (int i = 0; i < 60'000; ++i) deep += R"({"items":)";
  deep += "{}" + std::string(60'000, '}');
  const std::vector<std::string> bodies = {
      "{" + user + R"(,"n":1000000000})",
      "{" + user + R"(,"max_tokens":-1})",
      "{" + user + R"(,"max_completion_tokens":-9223372036854775809})",
      "{" + user + R"(,"logprobs":true,"top_logprobs":1000000000})",
      "{" + user + R"(,"min_tokens":-5})",
      "{" + user + R"(,"seed":-1})",
      "{" + user + "," + stops + "}",
      "{" + user + R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" + deep +
          "}}]}",
      "{" + user + R"(,"temperature":1e999})",
      "{" + user + R"(,"stop_token_ids":[-1]})",
      R"({"messages":[{"role":"user","content":[{"image_url":"x"}]}]})",
      "\x01\x02\xff",
  };
  for (const std::string& body : bodies) {
    Client client(server);
    client.post("/v1/chat/completions", body);
    EXPECT_EQ(client.response(60s).status, 400) << body.substr(0, 120);
  }
  // A pattern is client text and no more than that here.
  Client tool(server);
  tool.post("/v1/chat/completions",
            "{" + user + R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" +
                pattern + "}}]}");
  EXPECT_EQ(tool.response(60s).status, 400) << "its prompt is over the context";
  EXPECT_TRUE(stream.read_until("data: [DONE]", 60s));
  Client after(server);
  after.post("/v1/chat/completions", chat_body(false, R"(,"max_tokens":2)"));
  EXPECT_EQ(after.response().status, 200);
}

TEST(Safety, MessagesStreamsAreKeptAliveByPings) {
  TestOptions options;
  options.prefill_delay = 60ms;
  options.prefill_chunk = 1;
  options.limits.comment_every = 20ms;
  TestServer server(options);
  Client client(server);
  client.post("/v1/messages", R"({"stream":true,"max_tokens":9,"thinking":{"type":"disabled"},)"
                              R"("messages":[{"role":"user","content":"hi"}]})");
  EXPECT_TRUE(client.read_until("event: message_start"));
  EXPECT_TRUE(client.read_until("event: ping"));
  EXPECT_THAT(client.buffer(), Not(HasSubstr("content_block_start")));
}

TEST(StartGate, SaysHowFarLoadingIsAndThenPassesOn) {
  StartGate gate;
  const auto ask = [&](const std::string& method, const std::string& path) {
    const auto exchange = std::make_shared<MemoryExchange>();
    gate.handle({method, path, chat_body(false), {}, {}}, exchange);
    return exchange->wait();
  };
  gate.progress("weights", 42);
  const HttpResponse health = ask("GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, R"({"status":"loading","stage":"weights","percent":42})");
  const HttpResponse chat = ask("POST", "/v1/chat/completions");
  EXPECT_EQ(chat.status, 503);
  EXPECT_THAT(chat.body, HasSubstr("weights 42 %"));
  EXPECT_THAT(ask("POST", "/v1/messages").body, HasSubstr("overloaded_error"));
  TestService service({});
  gate.open(service.service);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("POST", "/v1/chat/completions").status, 200);
}

}  // namespace
}  // namespace cedra::server

// The server over real sockets: framing, limits, disconnects at every stage, overload, drain.
#include "server/http_server.h"

#include "server/test_server.h"

namespace cedra::server {
namespace {

using namespace cedra::server::testing;

bool idle(const TestServer& server) {
  const engine::Stats stats = server.engine.stats();
  return stats.running == 0 && stats.waiting == 0;
}

// The first delta with text of a long_script(), however its words are cut into tokens.
constexpr std::string_view kText = R"("content":"w)";

std::string long_script(int words) {
  std::string out;
  for (int i = 0; i < words; ++i) out += "word ";
  return out;
}

TEST(Http, AnswersWithoutStreaming) {
  TestServer server;
  Client client(server);
  client.post("/v1/chat/completions", chat_body(false));
  const Client::Response response = client.response();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_NE(response.body.find(R"("content":"Hello")"), std::string::npos) << response.body;
  EXPECT_NE(response.head.find("Content-Type: application/json"), std::string::npos);
}

TEST(Http, StreamsEvents) {
  TestServer server;
  Client client(server);
  client.post("/v1/chat/completions", chat_body(true));
  const Client::Response response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.head.find("text/event-stream"), std::string::npos);
  EXPECT_NE(response.head.find("X-Accel-Buffering: no"), std::string::npos);
  EXPECT_TRUE(response.body.starts_with("data: {")) << response.body;
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n")) << response.body;
}

TEST(Http, KeepsTheConnectionAndAnswersPipelinedRequestsInOrder) {
  TestServer server;
  Client client(server);
  const std::string body = chat_body(true);
  std::string both = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                     std::to_string(body.size()) + "\r\n\r\n" + body;
  client.send(both + "GET /health HTTP/1.1\r\n\r\n" + both + "GET /version HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(client.response().body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(client.response().body, R"({"status":"ok"})");
  EXPECT_TRUE(client.response().body.ends_with("data: [DONE]\n\n"));
  EXPECT_NE(client.response().body.find("version"), std::string::npos);
  client.post("/v1/chat/completions", chat_body(false));
  EXPECT_EQ(client.response().status, 200);
}

TEST(Http, TakesHeadersAndBodiesByteByByte) {
  TestServer server;
  Client client(server);
  const std::string body = chat_body(false);
  const std::string all = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body;
  for (const char byte : all) client.send(std::string_view(&byte, 1));
  EXPECT_EQ(client.response().status, 200);
}

TEST(Http, TakesChunkedBodies) {
  TestServer server;
  Client client(server);
  const std::string body = chat_body(false);
  std::string all = "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += 7) {
    const std::string piece = body.substr(at, 7);
    all += std::to_string(piece.size()) + "\r\n" + piece + "\r\n";
  }
  client.send(all + "0\r\n\r\n");
  EXPECT_EQ(client.response().status, 200);
}

TEST(Http, ServesHttp10WithoutChunks) {
  TestServer server;
  Client client(server);
  const std::string body = chat_body(true);
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.buffer().ends_with("data: [DONE]\n\n")) << client.buffer();
  EXPECT_EQ(client.buffer().find("chunked"), std::string::npos);
}

TEST(Http, SaysContinueBeforeLargeBodies) {
  TestServer server;
  Client client(server);
  const std::string body = chat_body(false);
  client.send("POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.response().status, 100);
  client.send(body);
  EXPECT_EQ(client.response().status, 200);
}

TEST(Http, RefusesLargeBodiesBeforeReadingThem) {
  TestOptions options;
  options.limits.body_bytes = 1000;
  TestServer server(options);
  {
    Client client(server);
    client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n");
    EXPECT_EQ(client.response().status, 413);
    EXPECT_TRUE(client.send(std::string(100000, 'x')));
  }
  {
    Client client(server);  // no Content-Length: found out on the way
    client.send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                std::string(2000, 'x'));
    EXPECT_EQ(client.response().status, 413);
  }
  {
    Client client(server);
    client.send("GET /health HTTP/1.1\r\nX: " + std::string(100000, 'x') + "\r\n\r\n");
    EXPECT_EQ(client.response().status, 431);
  }
  Client client(server);
  client.get("/health");
  EXPECT_EQ(client.response().status, 200);
}

TEST(Http, BodiesOfAllRequestsAreBoundedTogether) {
  TestOptions options;
  options.limits.total_body_bytes = 3000;
  TestServer server(options);
  const std::string head = "POST /v1/completions HTTP/1.1\r\nContent-Length: 2000\r\n\r\n";
  {
    Client first(server), second(server);
    first.send(head + std::string(1999, ' '));
    EXPECT_FALSE(first.read_until("HTTP", 100ms)) << "it is not complete";
    second.send(head + std::string(1999, ' '));
    const Client::Response refused = second.response();
    EXPECT_EQ(refused.status, 503);
    EXPECT_NE(refused.head.find("Retry-After"), std::string::npos) << refused.head;
    EXPECT_NE(refused.body.find("3000 bytes"), std::string::npos) << refused.body;
    EXPECT_NE(refused.body.find("service_unavailable_error"), std::string::npos) << refused.body;
    first.send(" ");
    EXPECT_EQ(first.response().status, 400);  // blanks are no JSON
  }
  for (int i = 0; i < 5; ++i) {  // what is over counts no more
    Client client(server);
    client.send(head + std::string(2000, ' '));
    EXPECT_EQ(client.response().status, 400);
  }
}

TEST(Http, HeadHasTheLengthButNoBody) {
  TestServer server;
  Client client(server);
  client.send("HEAD /health HTTP/1.1\r\n\r\nHEAD /nope HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(client.read_until("\r\n\r\nHTTP/1.1 404"));
  EXPECT_TRUE(client.buffer().starts_with("HTTP/1.1 200 OK\r\n")) << client.buffer();
  EXPECT_NE(client.buffer().find("Content-Length: 15\r\n"), std::string::npos);
  client.send("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.buffer().ends_with(R"({"status":"ok"})"));
  EXPECT_EQ(client.buffer().find('{'), client.buffer().size() - 15) << client.buffer();
}

TEST(Http, TakesWholeUrlsAsTargets) {
  TestServer server;
  Client client(server);
  for (const char* target : {"http://host:80/health", "HTTPS://host/health?x=http://y/z"}) {
    client.send(std::string("GET ") + target + " HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client.response().status, 200) << target;
  }
  client.send("GET http://host HTTP/1.1\r\n\r\n");
  const Client::Response response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body.starts_with("<!doctype html>")) << response.body.substr(0, 80);
}

TEST(Http, RefusesWhatIsNotHttp) {
  TestServer server;
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02 hello\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\n"
                    "Content-Length: -5\r\n\r\n")}) {
    Client client(server);
    client.send(bytes);
    EXPECT_EQ(client.response().status, 400) << bytes;
    EXPECT_TRUE(client.closed());
  }
}

TEST(Http, DropsConnectionsThatNeverFinishTheirHeaderOrBody) {
  TestOptions options;
  options.limits.header_timeout = 100ms;
  options.limits.body_timeout = 100ms;
  options.limits.idle_timeout = 100ms;
  TestServer server(options);
  Client silent(server), half_header(server), half_body(server), kept(server);
  half_header.send("GET /hea");
  half_body.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  kept.get("/health");
  EXPECT_EQ(kept.response().status, 200);
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(half_header.closed());
  EXPECT_TRUE(half_body.closed());
  EXPECT_TRUE(kept.closed());
  EXPECT_TRUE(eventually([&] { return server.http->connections() == 0; }));
}

TEST(Http, HoldsTheConnectionCap) {
  TestOptions options;
  options.limits.connections = 2;
  TestServer server(options);
  {
    Client first(server), second(server);
    ASSERT_TRUE(eventually([&] { return server.http->connections() == 2; }));
    Client third(server);
    const Client::Response refused = third.response();
    EXPECT_EQ(refused.status, 503);
    first.get("/health");
    EXPECT_EQ(first.response().status, 200);
  }
  ASSERT_TRUE(eventually([&] { return server.http->connections() == 0; }));
  Client again(server);
  again.get("/health");
  EXPECT_EQ(again.response().status, 200);
}

// faults: "Client gone, work goes on". One request runs, one waits; each leaves in its own way.
class Disconnect : public ::testing::TestWithParam<const char*> {
 protected:
  static void leave(Client& client) {
    const std::string how = GetParam();
    if (how == "close") client.close();
    if (how == "reset") client.reset();
    if (how == "half_close") client.half_close();
    // Bytes of a further request must not hide the hang-up behind them.
    if (how == "pipelined_then_close") {
      client.send("GET /health HTTP/1.1\r\n\r\n");
      std::this_thread::sleep_for(20ms);
      client.close();
    }
  }
};

TEST_P(Disconnect, InDecodeFreesTheSlot) {
  TestOptions options;
  options.script = long_script(3000);
  options.token_delay = 2ms;
  TestServer server(options);
  for (const bool stream : {true, false}) {
    const int64_t before = server.engine.stats().generated_tokens;
    Client client(server);
    client.post("/v1/chat/completions", chat_body(stream));
    if (stream) {
      ASSERT_TRUE(client.read_until(kText));
    } else {
      ASSERT_TRUE(eventually([&] { return server.engine.stats().generated_tokens > before; }));
    }
    leave(client);
    EXPECT_TRUE(eventually([&] { return idle(server); }, 1s));
  }
  EXPECT_TRUE(eventually([&] { return server.engine.stats().cancelled == 2; }));
}

TEST_P(Disconnect, InPrefillFreesTheSlot) {
  TestOptions options;
  options.prefill_delay = 5ms;
  options.prefill_chunk = 1;
  TestServer server(options);
  for (const bool stream : {true, false}) {
    const int64_t before = server.engine.stats().prompt_tokens;
    Client client(server);
    client.post("/v1/chat/completions", chat_body(stream, "", long_script(300)));
    ASSERT_TRUE(eventually([&] { return server.engine.stats().prompt_tokens > before; }));
    leave(client);
    EXPECT_TRUE(eventually([&] { return idle(server); }, 1s));
  }
  EXPECT_EQ(server.engine.stats().generated_tokens, 0);
}

TEST_P(Disconnect, InTheQueueFreesThePlace) {
  TestOptions options;
  options.script = long_script(3000);
  options.token_delay = 2ms;
  options.max_num_seqs = 1;
  TestServer server(options);
  Client running(server), waiting(server);
  running.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(running.read_until(kText));
  waiting.post("/v1/chat/completions", chat_body(false));
  ASSERT_TRUE(eventually([&] { return server.engine.stats().waiting == 1; }));
  leave(waiting);
  EXPECT_TRUE(eventually([&] { return server.engine.stats().waiting == 0; }, 1s));
  EXPECT_EQ(server.engine.stats().running, 1);
  // The neighbour never noticed.
  const size_t before = running.buffer().size();
  EXPECT_TRUE(eventually([&] {
    running.read_until("no such text", 5ms);
    return running.buffer().size() > before;
  }));
}

TEST_P(Disconnect, FreesAllChoices) {
  TestOptions options;
  options.script = long_script(3000);
  options.token_delay = 2ms;
  options.max_num_seqs = 2;
  TestServer server(options);
  Client client(server);
  client.post("/v1/chat/completions", chat_body(true, ",\"n\":4"));
  ASSERT_TRUE(client.read_until(kText));
  leave(client);
  EXPECT_TRUE(eventually([&] { return idle(server); }, 1s));
  EXPECT_TRUE(eventually([&] { return server.engine.stats().cancelled == 4; }));
}

INSTANTIATE_TEST_SUITE_P(Ways, Disconnect,
                         ::testing::Values("close", "reset", "half_close", "pipelined_then_close"),
                         [](const auto& way) { return std::string(way.param); });

TEST(Http, SmallRequestsOfHalfClosedClientsAreAnswered) {
  TestServer server;
  Client client(server);
  client.get("/health");
  client.half_close();
  EXPECT_EQ(client.response().status, 200);
}

// A long request of a client that shuts its sending side while it still waits for the worker.
TEST(Http, DroppedRequestsOfHalfClosedClientsSayWhy) {
  TestServer server;
  std::vector<std::unique_ptr<Client>> busy;
  const std::string long_body = R"({"prompt":")" + std::string(size_t{4} << 20, 'x') + "\"}";
  for (int i = 0; i < 2; ++i) {
    busy.push_back(std::make_unique<Client>(server));
    busy.back()->post("/tokenize", long_body);
  }
  Client client(server);
  client.post("/v1/chat/completions", chat_body(false));
  client.half_close();
  // Too late to be dropped is fine: then the answer is there already, or the connection just ends.
  const Client::Response response = client.response(20s);
  if (response.status != 0 && response.status != 200) {
    EXPECT_EQ(response.status, 499) << response.body;
    EXPECT_TRUE(response.head.starts_with("HTTP/1.1 499 Client Closed Request\r\n"));
    EXPECT_NE(response.body.find("counts as leaving"), std::string::npos) << response.body;
  }
}

TEST(Http, OverloadIsAStatusBeforeAnyEvent) {
  TestOptions options;
  options.script = long_script(3000);
  options.token_delay = 2ms;
  options.max_num_seqs = 1;
  options.max_queue = 1;
  TestServer server(options);
  Client running(server), waiting(server);
  running.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(running.read_until(kText));
  waiting.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(eventually([&] { return server.engine.stats().waiting == 1; }));
  for (const bool stream : {true, false}) {
    Client refused(server);
    refused.post("/v1/chat/completions", chat_body(stream));
    const Client::Response response = refused.response();
    EXPECT_EQ(response.status, 429);
    EXPECT_NE(response.head.find("Retry-After: "), std::string::npos);
    EXPECT_NE(response.body.find("\"error\""), std::string::npos);
  }
  // Some choices fit, not all: none runs.
  waiting.close();
  ASSERT_TRUE(eventually([&] { return server.engine.stats().waiting == 0; }));
  Client many(server);
  many.post("/v1/chat/completions", chat_body(true, ",\"n\":3"));
  EXPECT_EQ(many.response().status, 429);
  EXPECT_TRUE(eventually([&] { return server.engine.stats().waiting == 0; }));
}

TEST(Http, ASlowReaderIsCancelled) {
  TestOptions options;
  options.script = long_script(200000);
  options.context_length = 1 << 20;
  options.token_delay = 20us;
  options.limits.outbox_bytes = 64 << 10;
  options.limits.send_buffer_bytes = 4096;
  TestServer server(options);
  Client slow(server, 4096);
  slow.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(slow.read_until(kText));
  EXPECT_TRUE(eventually([&] { return idle(server); }));
  EXPECT_TRUE(eventually([&] { return server.http->connections() == 0; }));
  EXPECT_LT(server.engine.stats().generated_tokens, 100000);
}

TEST(Http, AStreamWithoutProgressOfItsWriteIsCancelled) {
  TestOptions options;
  options.script = long_script(30000);
  options.context_length = 1 << 20;
  options.token_delay = 50us;
  options.limits.outbox_bytes = 64 << 20;
  options.limits.send_buffer_bytes = 4096;
  options.limits.write_timeout = 200ms;
  TestServer server(options);
  Client slow(server, 4096);
  slow.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(slow.read_until(kText));
  EXPECT_TRUE(eventually([&] { return server.http->connections() == 0; }));
  EXPECT_TRUE(eventually([&] { return idle(server); }));
}

TEST(Http, SilentStreamsGetComments) {
  TestOptions options;
  options.prefill_delay = 300ms;
  options.limits.comment_every = 50ms;
  TestServer server(options);
  Client client(server);
  client.post("/v1/chat/completions", chat_body(true));
  const Client::Response response = client.response();
  EXPECT_NE(response.body.find(": keep-alive\n\n"), std::string::npos) << response.body;
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST(Http, DrainFinishesWhatRunsAndRefusesWhatComes) {
  TestOptions options;
  options.script = long_script(20);
  options.token_delay = 10ms;
  TestServer server(options);
  Client running(server), idle_one(server), late(server);
  running.post("/v1/chat/completions", chat_body(true));
  late.post("/v1/completions", R"({"prompt":"x","max_tokens":200})");
  ASSERT_TRUE(running.read_until(kText));
  ASSERT_TRUE(eventually([&] { return server.engine.stats().running == 2; }));
  server.service.drain();
  server.http->stop_accepting();
  EXPECT_TRUE(idle_one.closed());
  server.engine.drain(5s);
  EXPECT_TRUE(running.response().body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(late.response().status, 200);
  EXPECT_TRUE(running.closed());
}

TEST(Http, DrainCancelsAfterTheGraceTime) {
  TestOptions options;
  options.script = long_script(3000);
  options.token_delay = 2ms;
  TestServer server(options);
  Client client(server);
  client.post("/v1/chat/completions", chat_body(true));
  ASSERT_TRUE(client.read_until(kText));
  server.service.drain();
  server.http->stop_accepting();
  server.engine.drain(50ms);
  const Client::Response response = client.response();
  EXPECT_NE(response.body.find(R"("finish_reason":"aborted")"), std::string::npos);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST(Http, ManyStreamsAtOnce) {
  TestOptions options;
  options.script = long_script(20);
  options.token_delay = 500us;
  options.max_num_seqs = 32;
  options.max_queue = 200;
  TestServer server(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<Client>(server));
    clients.back()->post("/v1/chat/completions", chat_body(i % 2 == 0));
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    if (i % 5 == 0) {
      clients[i]->close();
      continue;
    }
    const Client::Response response = clients[i]->response(20s);
    EXPECT_EQ(response.status, 200);
    EXPECT_NE(response.body.find("\"finish_reason\":\"stop\""), std::string::npos) << response.body;
  }
  EXPECT_TRUE(eventually([&] { return idle(server); }));
}

}  // namespace
}  // namespace cedra::server

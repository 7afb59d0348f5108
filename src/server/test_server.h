// Test support: a service on a scripted engine and the tiny tokenizer, with or without sockets, and
// a blocking client that sends exactly the bytes it is told to.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/scripted_engine.h"
#include "server/http_server.h"
#include "server/service.h"

namespace cedra::server::testing {

using namespace std::chrono_literals;

inline const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = [] {
    Result<text::Tokenizer> loaded =
        text::Tokenizer::load(CEDRA_SOURCE_DIR "/tests/golden/tiny/tokenizer.json");
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      std::abort();
    }
    return *std::move(loaded);
  }();
  return tokenizer;
}

// Polls until `done` or the time is over.
template <class Done>
bool eventually(Done done, std::chrono::milliseconds limit = 5s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// A response kept in memory.
class MemoryExchange final : public Exchange {
 public:
  void add_header(std::string_view name, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    headers_.emplace_back(name, value);
  }
  void respond(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    response_ = std::move(response);
    done_ = true;
    changed_.notify_all();
  }
  void start_events(std::string_view) override {
    const std::lock_guard lock(mutex_);
    response_.content_type = "text/event-stream";
  }
  bool write(std::string_view events) override {
    const std::lock_guard lock(mutex_);
    response_.body += events;
    return !gone_;
  }
  void finish() override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void on_gone(std::function<void()>) override {}

  HttpResponse wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 10s, [this] { return done_; })) << "no answer";
    return response_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HttpResponse response_;
  std::vector<std::pair<std::string, std::string>> headers_;
  bool done_ = false;
  bool gone_ = false;
};

struct TestOptions {
  std::string script = "Hello";
  // Instead of `script`: what a request gets.
  std::function<engine::Script(const engine::Request&)> answer;
  std::chrono::microseconds token_delay{0};
  std::chrono::microseconds prefill_delay{0};
  int64_t prefill_chunk = 16;
  int64_t max_num_seqs = 4;
  int64_t max_queue = 8;
  int64_t context_length = 4096;
  std::optional<engine::VisionInfo> vision;
  HttpLimits limits;
  ServiceOptions service;
};

// Everything but the sockets.
class TestService {
 public:
  explicit TestService(const TestOptions& options)
      : engine(engine_options(options)), service(engine, tiny_tokenizer(), options.service) {}

  HttpResponse ask(const std::string& method, const std::string& path, std::string body) {
    const auto exchange = std::make_shared<MemoryExchange>();
    service.answer({method, path, std::move(body), {}, {}, {}}, exchange,
                   std::chrono::steady_clock::now());
    return exchange->wait();
  }

  engine::ScriptedEngine engine;
  Service service;

 private:
  static engine::ScriptedOptions engine_options(const TestOptions& options) {
    engine::ScriptedOptions out;
    out.info.context_length = options.context_length;
    out.info.vocab_size = 512;
    out.info.vision = options.vision;
    out.info.eos_token_id = 1;
    out.info.max_num_seqs = options.max_num_seqs;
    out.info.max_queue = options.max_queue;
    out.token_delay = options.token_delay;
    out.prefill_delay = options.prefill_delay;
    out.prefill_chunk = options.prefill_chunk;
    out.script = options.answer;
    if (!out.script) {
      out.script = [ids = tiny_tokenizer().encode(options.script)](const engine::Request&) {
        return ids;
      };
    }
    return out;
  }
};

// The same behind a real port.
class TestServer : public TestService {
 public:
  explicit TestServer(const TestOptions& options = {}) : TestService(options) {
    Result<std::unique_ptr<HttpServer>> listening =
        HttpServer::listen("127.0.0.1", 0, options.limits,
                           [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
                             service.handle(std::move(request), std::move(exchange));
                           });
    EXPECT_TRUE(listening.has_value());
    http = *std::move(listening);
    thread = std::thread([this] { http->run(); });
  }
  ~TestServer() {
    engine.drain(0ms);
    http->stop(1s);
    thread.join();
  }

  std::unique_ptr<HttpServer> http;
  std::thread thread;
};

class Client {
 public:
  explicit Client(const TestServer& server, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.http->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // An abrupt end: RST instead of FIN.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }

  // False if the server closed the connection meanwhile.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return send("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
                headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  bool get(const std::string& path) { return send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"); }

  // Reads until `text` was seen; everything read so far stays in the buffer. False: end or timeout.
  bool read_until(std::string_view text, std::chrono::milliseconds limit = 5s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (buffer_.find(text) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd entry{socket_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
      char bytes[4096];
      const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      buffer_.append(bytes, static_cast<size_t>(got));
    }
    return true;
  }
  // One response; its body without framing. Status 0: none came.
  struct Response {
    int status = 0;
    std::string head;
    std::string body;
  };
  Response response(std::chrono::milliseconds limit = 5s) {
    Response out;
    if (!read_until("\r\n\r\n", limit)) return out;
    const size_t end = buffer_.find("\r\n\r\n") + 4;
    out.head = buffer_.substr(0, end);
    buffer_.erase(0, end);
    out.status = std::atoi(out.head.c_str() + std::string("HTTP/1.1 ").size());
    if (out.status == 100) return out;
    const size_t length = out.head.find("Content-Length: ");
    if (length != std::string::npos) {
      const size_t bytes = std::stoul(out.head.substr(length + 16));
      while (buffer_.size() < bytes && read_more(limit)) {
      }
      out.body = buffer_.substr(0, bytes);
      buffer_.erase(0, bytes);
      return out;
    }
    while (true) {  // chunked
      if (!read_until("\r\n", limit)) return out;
      const size_t size = std::stoul(buffer_, nullptr, 16);
      const size_t start = buffer_.find("\r\n") + 2;
      while (buffer_.size() < start + size + 2) {
        if (!read_more(limit)) return out;
      }
      out.body += buffer_.substr(start, size);
      buffer_.erase(0, start + size + 2);
      if (size == 0) return out;
    }
  }
  // The server closed the connection (after anything unread).
  bool closed(std::chrono::milliseconds limit = 5s) {
    while (read_more(limit)) {
    }
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN;
  }
  const std::string& buffer() const { return buffer_; }

 private:
  bool read_more(std::chrono::milliseconds limit) {
    pollfd entry{socket_, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(limit.count())) <= 0) return false;
    char bytes[65536];
    errno = 0;
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  int socket_ = -1;
  std::string buffer_;
};

inline std::string chat_body(bool stream, const std::string& more = "",
                             const std::string& text = "hi") {
  return R"({"model":"deepseek-flash","messages":[{"role":"user","content":")" + text +
         R"("}],"thinking":{"type":"disabled"},"stream":)" + (stream ? "true" : "false") + more +
         "}";
}

}  // namespace cedra::server::testing

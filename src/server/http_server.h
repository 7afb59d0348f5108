// HTTP/1.1 on one I/O thread: keep-alive, pipelining, limits on header, body and connections,
// timeouts, server-sent events through bounded outboxes, disconnects noticed while a request is
// worked on, graceful stop. The only place that knows the network library is http_server.cpp and
// http_session.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace cedra::server {

struct HttpLimits {
  size_t header_bytes = size_t{64} << 10;
  size_t body_bytes = size_t{64} << 20;
  // Bodies of all requests under way together; what exceeds it is told to come back later.
  size_t total_body_bytes = size_t{1} << 30;
  // Unsent bytes of one event stream beyond which its reader counts as too slow.
  size_t outbox_bytes = size_t{1} << 20;
  int send_buffer_bytes = 256 << 10;  // SO_SNDBUF
  int64_t connections = 2048;
  int64_t connections_per_address = 512;
  bool access_log = true;  // a line for each request
  std::chrono::milliseconds header_timeout{30'000};
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests of one connection
  std::chrono::milliseconds write_timeout{30'000};  // without progress of a write
  std::chrono::milliseconds comment_every{15'000};  // a sign of life on silent event streams
};

class HttpServer {
 public:
  // Called on the I/O thread for every complete request: must not block.
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

  // Binds and listens. kInvalid for a bad address, kIo if the port is taken.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& host, uint16_t port,
                                                    const HttpLimits& limits, Handler handler);
  ~HttpServer();

  uint16_t port() const;
  // Runs the I/O on this thread until stop().
  void run();
  // The rest may be called from any thread.
  // Calls back on the I/O thread for each SIGINT or SIGTERM from now on.
  void on_signal(std::function<void()> callback);
  // No new connections, idle ones closed; responses under way go on.
  void stop_accepting();
  // Lets run() return once every response is written, at the latest after `patience`.
  void stop(std::chrono::milliseconds patience);
  int64_t connections() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace cedra::server

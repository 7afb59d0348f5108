// Listening, accepting and stopping. A connection's life is in http_session.cpp.
#include "server/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <random>

#include "base/log.h"
#include "server/http_session.h"

namespace cedra::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  std::shared_ptr<IoCore> core = std::make_shared<IoCore>();
  tcp::acceptor acceptor{core->io};
  asio::signal_set signals{core->io};
  asio::steady_timer retry{core->io};
  asio::steady_timer stop_timer{core->io};
  std::function<void()> on_signal;
  std::chrono::steady_clock::time_point stop_at;
  uint16_t port = 0;

  void accept() {
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (error) {
        // Out of file descriptors, most likely: connections that end will free some.
        log::warning("cannot accept a connection: {}", error.message());
        retry.expires_after(std::chrono::milliseconds(100));
        retry.async_wait([this](error_code stopped) {
          if (!stopped && acceptor.is_open()) accept();
        });
        return;
      }
      const bool full = core->connections.load() >= core->limits.connections;
      const auto session = std::make_shared<Session>(std::move(socket), core);
      if (full) {
        session->refuse(503, "too many connections; try again later");
      } else if (core->per_address[session->remote()] > core->limits.connections_per_address) {
        session->refuse(429, "too many connections from this address; close some");
      } else {
        session->start();
      }
      accept();
    });
  }

  void wait_signal() {
    signals.async_wait([this](error_code error, int) {
      if (error) return;
      if (on_signal) on_signal();
      wait_signal();
    });
  }

  void drain() {
    core->draining = true;
    error_code ignored;
    acceptor.close(ignored);
    // Closing a session may end it, which takes it out of the set.
    std::vector<std::shared_ptr<Session>> open;
    for (Session* session : core->sessions) open.push_back(session->shared_from_this());
    for (const auto& session : open) session->drain();
  }

  void wait_until_written() {
    const bool busy = std::any_of(core->sessions.begin(), core->sessions.end(),
                                  [](const Session* session) { return session->busy(); });
    if (!busy || std::chrono::steady_clock::now() >= stop_at) {
      core->io.stop();
      return;
    }
    stop_timer.expires_after(std::chrono::milliseconds(10));
    stop_timer.async_wait([this](error_code error) {
      if (!error) wait_until_written();
    });
  }
};

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  // Sessions hold themselves through pending operations; closing them here ends these.
  impl_->drain();
  std::vector<std::shared_ptr<Session>> open;
  for (Session* session : impl_->core->sessions) open.push_back(session->shared_from_this());
  for (const auto& session : open) session->close();
  open.clear();
  impl_->signals.cancel();
  impl_->core->io.restart();
  impl_->core->io.poll();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, uint16_t port,
                                                       const HttpLimits& limits, Handler handler) {
  auto impl = std::make_shared<Impl>();
  impl->core->limits = limits;
  impl->core->handler = std::move(handler);
  impl->core->id_base = fmt::format("{:08x}", std::random_device()());
  error_code error;
  const auto address =
      asio::ip::make_address(host == "localhost" ? std::string("127.0.0.1") : host, error);
  if (error) {
    return err(Code::kInvalid, "--host {}: not an IP address (127.0.0.1, 0.0.0.0, ::1, ...)", host);
  }
  const tcp::endpoint endpoint(address, port);
  impl->acceptor.open(endpoint.protocol(), error);
  if (!error) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) impl->acceptor.bind(endpoint, error);
  if (!error) impl->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return err(Code::kIo, "cannot listen on {}:{}: {}", host, port, error.message());
  impl->port = impl->acceptor.local_endpoint().port();
  impl->accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::run() { impl_->core->io.run(); }

void HttpServer::on_signal(std::function<void()> callback) {
  asio::post(impl_->core->io, [impl = impl_.get(), callback = std::move(callback)]() mutable {
    impl->on_signal = std::move(callback);
    error_code ignored;
    impl->signals.add(SIGINT, ignored);
    impl->signals.add(SIGTERM, ignored);
    impl->wait_signal();
  });
}

void HttpServer::stop_accepting() {
  asio::post(impl_->core->io, [impl = impl_.get()] { impl->drain(); });
}

void HttpServer::stop(std::chrono::milliseconds patience) {
  asio::post(impl_->core->io, [impl = impl_.get(), patience] {
    impl->drain();
    impl->stop_at = std::chrono::steady_clock::now() + patience;
    impl->wait_until_written();
  });
}

int64_t HttpServer::connections() const { return impl_->core->connections.load(); }

}  // namespace cedra::server

// The life of a connection: header, body, response, again. See http_session.h for who owns what.
#include "server/http_session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include "base/log.h"
#include "server/error_body.h"
#include "server/routes.h"

namespace cedra::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::chrono::milliseconds kHangupPoll{100};
constexpr std::chrono::milliseconds kLinger{2000};

std::string response_head(int status, std::string_view content_type, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: cedra\r\nContent-Type: {}\r\n", status,
                                 status_text(status), content_type);
  head += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return head;
}

std::string whole_response(const HttpResponse& response, std::string_view headers, bool keep_alive,
                           bool head_only) {
  std::string out = response_head(response.status, response.content_type, keep_alive);
  out += headers;
  for (const auto& [name, value] : response.headers) {
    out += fmt::format("{}: {}\r\n", name, value);
  }
  out += fmt::format("Content-Length: {}\r\n\r\n", response.body.size());
  // 304 tells the length of what the client has already.
  if (!head_only && response.status != 304) out += response.body;
  return out;
}

// The path of "/path?query" or, as proxies send it, "http://host/path?query".
std::string path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    const size_t end = target.find_first_of("/?#", scheme.size());
    target = end == std::string_view::npos ? std::string_view() : target.substr(end);
    break;
  }
  const std::string_view path = target.substr(0, target.find_first_of("?#"));
  return path.empty() ? "/" : std::string(path);
}

// A client's own id, if it can stand in a header and a log line; else "".
std::string request_id(std::string_view given) {
  constexpr size_t kLongest = 128;
  const bool fine = given.size() <= kLongest && std::ranges::all_of(given, [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == ':';
                    });
  return fine ? std::string(given) : std::string();
}

// A path for the log: short, ASCII.
std::string printable(std::string_view path) {
  constexpr size_t kLongest = 200;
  std::string out(path.substr(0, kLongest));
  for (char& c : out) {
    if (c < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

// Keeps the outbox, the session and the I/O core reachable from whoever answers.
class SessionExchange final : public Exchange {
 public:
  SessionExchange(std::shared_ptr<IoCore> core, std::weak_ptr<Session> session,
                  std::shared_ptr<Outbox> outbox)
      : core_(std::move(core)), session_(std::move(session)), outbox_(std::move(outbox)) {}

  ~SessionExchange() override {
    bool started = false;
    bool left = false;
    {
      const std::lock_guard lock(outbox_->mutex);
      if (outbox_->finished) return;
      started = outbox_->started;
      left = outbox_->gone;
      if (started) outbox_->keep_alive = false;
    }
    if (started) {
      finish();
    } else if (left) {  // heard by a client that shut only its sending side
      respond(error_response(
          Error{Code::kCancelled,
                "the client closed its side of the connection, which counts as leaving; keep it "
                "open until the answer is there"}));
    } else {
      respond(error_response(Error{Code::kInternal, "the request was dropped without an answer"}));
    }
  }

  void add_header(std::string_view name, std::string_view value) override {
    const std::lock_guard lock(outbox_->mutex);
    outbox_->headers.append(name).append(": ").append(value).append("\r\n");
  }

  void respond(HttpResponse response) override {
    std::unique_lock lock(outbox_->mutex);
    if (outbox_->finished || outbox_->started) return;
    outbox_->pending =
        whole_response(response, outbox_->headers, outbox_->keep_alive, outbox_->head_only);
    outbox_->status = response.status;
    outbox_->body_bytes = response.body.size();
    outbox_->started = outbox_->finished = true;
    schedule(lock);
  }

  void start_events(std::string_view keep_alive) override {
    std::unique_lock lock(outbox_->mutex);
    if (outbox_->finished || outbox_->started) return;
    outbox_->started = outbox_->events = true;
    outbox_->keep_alive_event = keep_alive;
    outbox_->status = 200;
    if (!outbox_->chunked) outbox_->keep_alive = false;
    outbox_->pending = response_head(200, "text/event-stream; charset=utf-8", outbox_->keep_alive);
    outbox_->pending += outbox_->headers;
    outbox_->pending += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
    outbox_->pending += outbox_->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
    schedule(lock);
  }

  bool write(std::string_view events) override {
    if (events.empty()) return !gone();
    std::unique_lock lock(outbox_->mutex);
    if (outbox_->gone || outbox_->finished || !outbox_->events) return false;
    if (outbox_->pending.size() > core_->limits.outbox_bytes) {
      outbox_->gone = outbox_->too_slow = true;
      schedule(lock);
      return false;
    }
    if (outbox_->chunked) outbox_->pending += fmt::format("{:x}\r\n", events.size());
    outbox_->pending += events;
    outbox_->body_bytes += events.size();
    if (outbox_->chunked) outbox_->pending += "\r\n";
    schedule(lock);
    return true;
  }

  void finish() override {
    std::unique_lock lock(outbox_->mutex);
    if (outbox_->finished || !outbox_->events) return;
    if (outbox_->chunked) outbox_->pending += "0\r\n\r\n";
    outbox_->finished = true;
    schedule(lock);
  }

  bool gone() const override {
    const std::lock_guard lock(outbox_->mutex);
    return outbox_->gone;
  }

  void on_gone(std::function<void()> callback) override {
    {
      const std::lock_guard lock(outbox_->mutex);
      if (outbox_->finished) return;
      if (!outbox_->gone) {
        outbox_->on_gone = std::move(callback);
        return;
      }
    }
    callback();
  }

 private:
  void schedule(std::unique_lock<std::mutex>& lock) {
    if (outbox_->scheduled) return;
    outbox_->scheduled = true;
    lock.unlock();
    asio::post(core_->io, [session = session_] {
      if (const auto alive = session.lock()) alive->flush();
    });
  }

  std::shared_ptr<IoCore> core_;
  std::weak_ptr<Session> session_;
  std::shared_ptr<Outbox> outbox_;
};

}  // namespace

std::string status_text(int status) {
  if (status == 499) return "Client Closed Request";  // not registered, but widely used
  const std::string_view text = http::obsolete_reason(static_cast<http::status>(status));
  return std::string(text);
}

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<IoCore> core)
    : core_(std::move(core)),
      stream_(std::move(socket)),
      hangup_timer_(core_->io),
      comment_timer_(core_->io) {
  error_code unknown;
  const auto peer = stream_.socket().remote_endpoint(unknown);
  if (!unknown) remote_ = peer.address().to_string();
  ++core_->per_address[remote_];
  core_->sessions.insert(this);
  core_->connections.fetch_add(1, std::memory_order_relaxed);
}

Session::~Session() {
  release_body();
  core_->sessions.erase(this);
  const auto count = core_->per_address.find(remote_);
  if (--count->second == 0) core_->per_address.erase(count);
  core_->connections.fetch_sub(1, std::memory_order_relaxed);
}

void Session::start() {
  error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().set_option(asio::socket_base::send_buffer_size(core_->limits.send_buffer_bytes),
                              ignored);
  read_header(core_->limits.header_timeout);
}

void Session::drain() {
  if (busy() || writing_) {
    closing_ = true;
  } else {
    close();
  }
}

void Session::close() {
  if (closed_) return;
  closed_ = true;
  hangup_timer_.cancel();
  comment_timer_.cancel();
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
  if (!busy()) return;
  log_access();
  client_gone();
}

void Session::read_header(std::chrono::milliseconds timeout) {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(core_->limits.header_bytes));
  parser_->body_limit(core_->limits.body_bytes);
  stream_.expires_after(timeout);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, size_t) { self->on_header(error); });
}

// What went wrong while a request was read: the client's fault is told, the rest is no request.
void Session::read_failed(error_code error) {
  const bool malformed =
      error.category() == http::make_error_code(http::error::bad_version).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message;
  if (error == http::error::body_limit) {
    refuse(413, fmt::format("the body may have at most {} bytes", core_->limits.body_bytes));
  } else if (error == http::error::header_limit) {
    refuse(431, fmt::format("the header may have at most {} bytes", core_->limits.header_bytes));
  } else if (malformed) {
    refuse(400, fmt::format("malformed HTTP request: {}", error.message()));
  } else {
    close();
  }
}

void Session::on_header(error_code error) {
  if (closed_) return;
  if (error) {
    read_failed(error);
  } else if (beast::iequals(parser_->get()[http::field::expect], "100-continue") &&
             parser_->get().version() >= 11) {
    sending_ = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(sending_),
                      [self = shared_from_this()](error_code failed, size_t) {
                        if (failed) {
                          self->close();
                        } else {
                          self->read_body();
                        }
                      });
  } else {
    read_body();
  }
}

void Session::read_body() {
  if (closed_) return;
  stream_.expires_after(core_->limits.body_timeout);
  parser_->eager(true);
  read_more_body();
}

void Session::read_more_body() {
  if (parser_->is_done()) {
    dispatch();
    return;
  }
  http::async_read_some(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](error_code error, size_t) { self->on_body(error); });
}

bool Session::count_body() {
  const size_t size = parser_->get().body().size();
  core_->body_bytes += size - body_bytes_;
  body_bytes_ = size;
  return core_->body_bytes <= core_->limits.total_body_bytes;
}

void Session::release_body() {
  core_->body_bytes -= body_bytes_;
  body_bytes_ = 0;
}

void Session::on_body(error_code error) {
  if (closed_) return;
  if (error) {
    read_failed(error);
  } else if (!count_body()) {
    parser_.reset();
    release_body();
    refuse(503, fmt::format("the bodies of all requests under way may have at most {} bytes "
                            "together; try again later",
                            core_->limits.total_body_bytes));
  } else {
    read_more_body();
  }
}

void Session::dispatch() {
  stream_.expires_never();
  auto message = parser_->release();
  parser_.reset();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = path_of(message.target());
  request.authorization = std::string(message[http::field::authorization]);
  request.api_key = std::string(message["x-api-key"]);
  request.if_none_match = std::string(message[http::field::if_none_match]);
  request.origin = std::string(message[http::field::origin]);
  request.host = std::string(message[http::field::host]);
  request.remote = remote_;
  request.body = std::move(message.body());
  id_ = request_id(message["x-request-id"]);
  if (id_.empty()) id_ = fmt::format("req_{}{:08x}", core_->id_base, core_->next_id++);
  request.id = id_;
  method_ = request.method;
  path_ = printable(request.path);
  started_ = std::chrono::steady_clock::now();

  outbox_ = std::make_shared<Outbox>();
  // The two names under which clients look for it.
  outbox_->headers = fmt::format("x-request-id: {}\r\nrequest-id: {}\r\n", id_, id_);
  outbox_->chunked = message.version() >= 11;
  outbox_->head_only = message.method() == http::verb::head;
  outbox_->keep_alive = message.keep_alive() && !core_->draining;
  quiet_ = true;
  arm_comment();
  core_->handler(std::move(request),
                 std::make_shared<SessionExchange>(core_, weak_from_this(), outbox_));
  watch();
}

// While a request is worked on, a readable socket means pipelined bytes or a hang-up.
void Session::watch() {
  if (watching_ || closed_ || !busy()) return;
  watching_ = true;
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                              [self = shared_from_this()](error_code error) {
                                self->watching_ = false;
                                if (!error) self->on_readable();
                              });
}

void Session::on_readable() {
  if (closed_ || !busy()) return;
  char byte = 0;
  const ssize_t got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) {
    poll_hangup();
  } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    watch();
  } else {
    client_gone();
  }
}

// Pipelined bytes wait in the socket, so it stays readable: look for the hang-up behind them.
void Session::poll_hangup() {
  if (closed_ || !busy()) return;
  pollfd entry{stream_.socket().native_handle(), POLLRDHUP, 0};
  if (::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    client_gone();
    return;
  }
  hangup_timer_.expires_after(kHangupPoll);
  hangup_timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->poll_hangup();
  });
}

void Session::arm_comment() {
  comment_timer_.expires_after(core_->limits.comment_every);
  comment_timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->closed_ || !self->busy()) return;
    if (self->quiet_ && !self->writing_) {
      const std::lock_guard lock(self->outbox_->mutex);
      Outbox& box = *self->outbox_;
      if (box.events && !box.finished && box.pending.empty()) {
        const std::string& event = box.keep_alive_event;
        box.pending = box.chunked ? fmt::format("{:x}\r\n{}\r\n", event.size(), event) : event;
      }
    }
    self->quiet_ = true;
    self->flush();
    self->arm_comment();
  });
}

// Tells the one who works on the request. A request without such a one still gets its answer: a
// client that shuts its writing side after a small request may wait for it.
void Session::client_gone() {
  const std::shared_ptr<Outbox> outbox = outbox_;
  if (!outbox) return;
  std::function<void()> callback;
  {
    const std::lock_guard lock(outbox->mutex);
    if (outbox->finished && !closed_) return;
    outbox->gone = true;
    callback = std::exchange(outbox->on_gone, nullptr);
  }
  if (callback) callback();
  if (callback && !closed_) close();
}

void Session::flush() {
  if (closed_ || !busy()) return;
  bool slow = false;
  {
    const std::lock_guard lock(outbox_->mutex);
    outbox_->scheduled = false;
    slow = outbox_->too_slow;
    if (!writing_ && !slow) sending_ = std::exchange(outbox_->pending, {});
  }
  if (slow) {
    log::info("a client reads its stream too slowly; request {} is cancelled", id_);
    close();
    return;
  }
  if (writing_) return;
  if (sending_.empty()) {
    bool finished = false;
    {
      const std::lock_guard lock(outbox_->mutex);
      finished = outbox_->finished && outbox_->pending.empty();
    }
    if (finished) response_done();
    return;
  }
  writing_ = true;
  quiet_ = false;
  stream_.expires_after(core_->limits.write_timeout);
  asio::async_write(
      stream_, asio::buffer(sending_),
      [self = shared_from_this()](error_code error, size_t) { self->on_written(error); });
}

void Session::on_written(error_code error) {
  writing_ = false;
  if (closed_) return;
  if (error) {
    close();
    return;
  }
  if (!busy()) {  // a refusal
    linger();
    return;
  }
  stream_.expires_never();
  flush();
}

// One line per request, whether it was answered or left.
void Session::log_access() {
  if (!core_->limits.access_log) return;
  const std::lock_guard lock(outbox_->mutex);
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - started_;
  constexpr int kLeft = 499;
  const bool left = closed_ || outbox_->status == 0;
  log::event(log::Level::kInfo, "request",
             {{"id", id_},
              {"remote", remote_},
              {"method", method_},
              {"path", path_},
              {"status", int64_t{left ? kLeft : outbox_->status}},
              {"request_bytes", static_cast<int64_t>(body_bytes_)},
              {"response_bytes", static_cast<int64_t>(outbox_->body_bytes)},
              {"ms", took.count()}});
}

void Session::response_done() {
  log_access();
  const bool keep_alive = outbox_->keep_alive && !closing_ && !core_->draining;
  outbox_.reset();
  release_body();
  hangup_timer_.cancel();
  comment_timer_.cancel();
  if (keep_alive) {
    read_header(core_->limits.idle_timeout);
  } else {
    linger();
  }
}

void Session::refuse(int status, const std::string& message) {
  if (closed_ || writing_) return;
  const Api api = parser_ ? api_of(path_of(parser_->get().target())) : Api::kChat;
  const HttpResponse response = error_response(Error{Code::kInvalid, message}, api, status);
  sending_ = whole_response(response, {}, false, false);
  if (core_->limits.access_log) {
    log::event(log::Level::kInfo, "refused",
               {{"remote", remote_}, {"status", int64_t{status}}, {"reason", message}});
  }
  writing_ = true;
  stream_.expires_after(core_->limits.write_timeout);
  asio::async_write(
      stream_, asio::buffer(sending_),
      [self = shared_from_this()](error_code error, size_t) { self->on_written(error); });
}

// Closing with unread bytes would reset the connection, and the client might lose the response:
// say that no more comes and read away what still arrives, for a short while.
void Session::linger() {
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  buffer_.consume(buffer_.size());
  stream_.expires_after(kLinger);
  discard();
}

void Session::discard() {
  stream_.async_read_some(buffer_.prepare(size_t{64} << 10),
                          [self = shared_from_this()](error_code error, size_t) {
                            if (error || self->closed_) {
                              self->close();
                            } else {
                              self->discard();
                            }
                          });
}

}  // namespace cedra::server

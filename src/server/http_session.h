// One connection of the HTTP server. Internal to http_server.cpp and http_session.cpp.
//
// All of Session runs on the I/O thread. Outbox is what other threads share with it: its mutex is
// held for an append, never for I/O.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "server/http_server.h"

namespace cedra::server {

class Session;

// Lives as long as any session or exchange refers to it, so a late write finds a valid executor.
struct IoCore {
  boost::asio::io_context io{1};
  HttpLimits limits;
  HttpServer::Handler handler;
  std::atomic<int64_t> connections{0};
  std::set<Session*> sessions;                           // I/O thread only
  std::unordered_map<std::string, int64_t> per_address;  // connections; I/O thread only
  std::string id_base;                                   // of request ids: random, one per process
  uint64_t next_id = 0;                                  // I/O thread only
  bool draining = false;                                 // I/O thread only
  size_t body_bytes = 0;  // of all requests under way; I/O thread only
};

// The response of one request on its way out.
struct Outbox {
  std::mutex mutex;
  std::string pending;    // bytes to send, in order
  bool started = false;   // status line queued
  bool events = false;    // an event stream
  bool finished = false;  // nothing more will be appended
  bool gone = false;      // the client left, or was too slow
  bool too_slow = false;
  bool scheduled = false;        // a flush is posted
  bool chunked = false;          // HTTP/1.1: chunked framing for events
  bool keep_alive = false;       // of this response
  bool head_only = false;        // HEAD: the body's length, but not the body
  std::string headers;           // lines that the response gets besides its own
  int status = 0;                // of the response, once it is decided
  size_t body_bytes = 0;         // of the response, so far
  std::string keep_alive_event;  // sent when an event stream was silent for a while
  std::function<void()> on_gone;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<IoCore> core);
  ~Session();

  void start();
  // Closes if idle; otherwise after the response under way.
  void drain();
  void close();
  bool busy() const { return outbox_ != nullptr; }
  // Sends what the outbox holds, if nothing is being sent.
  void flush();
  // A canned response for what never becomes a request; the connection ends after it.
  void refuse(int status, const std::string& message);
  const std::string& remote() const { return remote_; }

 private:
  void read_header(std::chrono::milliseconds timeout);
  void read_failed(boost::system::error_code error);
  void on_header(boost::system::error_code error);
  void read_body();
  void read_more_body();
  // Counts what has arrived of the body; false if all bodies together are too much.
  bool count_body();
  void release_body();
  void on_body(boost::system::error_code error);
  void dispatch();
  void watch();
  void on_readable();
  void poll_hangup();
  void arm_comment();
  void client_gone();
  void on_written(boost::system::error_code error);
  void log_access();
  void response_done();
  void linger();
  void discard();

  std::shared_ptr<IoCore> core_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::shared_ptr<Outbox> outbox_;  // set while a request is worked on
  std::string sending_;
  bool writing_ = false;
  bool watching_ = false;  // an async_wait for readability is pending
  bool closing_ = false;   // close after the current write
  bool closed_ = false;
  boost::asio::steady_timer hangup_timer_;
  boost::asio::steady_timer comment_timer_;
  size_t body_bytes_ = 0;  // this session's part of IoCore::body_bytes
  std::string remote_;     // the client's address
  // Of the request under way, for the log.
  std::string id_, method_, path_;
  std::chrono::steady_clock::time_point started_;
  bool quiet_ = true;  // nothing sent since the comment timer was armed
};

std::string status_text(int status);

}  // namespace cedra::server

// HTTP as the routes see it: a request, and an exchange through which exactly one response goes
// back. No socket and no library type here, so routes can be tested without either.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cedra::server {

struct HttpRequest {
  std::string method;  // "GET", "POST", ...
  std::string path;    // target without the query
  std::string body;
  std::string authorization;  // header values, "" if absent
  std::string api_key;        // x-api-key
  std::string origin{};       // of the web page that asks, if one does
  std::string host{};
  std::string id{};      // the client's x-request-id, or one made here
  std::string remote{};  // address of the client
  std::string if_none_match{};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// One response. Thread-safe: the engine's thread writes while the I/O thread sends. Dropping an
// exchange without a response sends a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // A header of the response to come, whichever way it goes.
  virtual void add_header(std::string_view name, std::string_view value) = 0;

  // The whole response at once.
  virtual void respond(HttpResponse response) = 0;

  // Or a stream of server-sent events: head, pieces (whole events), end. `keep_alive` is sent while
  // nothing else is.
  virtual void start_events(std::string_view keep_alive) = 0;
  // Queues a piece; never blocks. False: the client is gone or reads too slowly; stop.
  virtual bool write(std::string_view events) = 0;
  virtual void finish() = 0;

  virtual bool gone() const = 0;
  // Called at most once, on the I/O thread (or right here if it is so already), when the client
  // hangs up before the response is complete. A half-closed connection counts as gone.
  virtual void on_gone(std::function<void()> callback) = 0;
};

}  // namespace cedra::server

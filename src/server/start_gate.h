// What answers while the model is still being loaded: the server listens from the first second, so
// that a taken port is found before the loading and health checks see what goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "server/http.h"
#include "server/service.h"

namespace cedra::server {

class StartGate {
 public:
  // Any thread. Passed on once the gate is open; until then everything is told to come back.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // How far loading is, for the answers meanwhile.
  void progress(std::string_view stage, int64_t percent);
  // `service` outlives all calls of handle().
  void open(Service& service) { service_.store(&service, std::memory_order_release); }

 private:
  std::atomic<Service*> service_{nullptr};
  std::mutex mutex_;
  std::string stage_ = "starting";
  int64_t percent_ = 0;
};

}  // namespace cedra::server

#include "server/start_gate.h"

#include "server/error_body.h"
#include "server/json_writer.h"
#include "server/routes.h"

namespace cedra::server {

void StartGate::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (Service* service = service_.load(std::memory_order_acquire)) {
    service->handle(std::move(request), std::move(exchange));
    return;
  }
  std::string stage;
  int64_t percent = 0;
  {
    const std::lock_guard lock(mutex_);
    stage = stage_;
    percent = percent_;
  }
  const std::string_view path = without_prefixes(request.path);
  if (path != "/health" && path != "/ping") {
    exchange->respond(error_response(
        Error{Code::kUnavailable,
              fmt::format("the model is still being loaded ({} {} %); try again later", stage,
                          percent)},
        api_of(path)));
    return;
  }
  HttpResponse response;
  response.status = 503;
  JsonWriter json(response.body);
  json.begin_object().key("status").string("loading").key("stage").string(stage);
  json.key("percent").integer(percent).end_object();
  response.headers.emplace_back("Retry-After", "1");
  exchange->respond(std::move(response));
}

void StartGate::progress(std::string_view stage, int64_t percent) {
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  percent_ = percent;
}

}  // namespace cedra::server

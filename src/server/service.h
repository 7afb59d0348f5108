// The routes: what each path does, between HTTP, the text code and the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "server/http.h"
#include "server/json_writer.h"
#include "server/metrics.h"
#include "server/plan.h"
#include "server/rate_limit.h"
#include "server/response_store.h"
#include "text/tokenizer.h"

namespace cedra::server {

struct ServiceOptions {
  std::vector<std::string> model_names{"deepseek-flash"};  // first is the main one
  std::string version;
  std::vector<std::string> api_keys;               // any of them will do; empty: none needed
  size_t response_store_bytes = size_t{64} << 20;  // of responses kept for previous_response_id
  std::vector<std::string> allowed_origins;        // of web pages besides our own; "*": all
  int64_t requests_per_minute = 0;                 // of one key or address; 0: any number
  bool log_prompts = false;                        // bodies of requests, too
  RequestLimits limits;
  ImageOptions images;
  bool strict_image_placeholder = false;  // text that spells it is a 400
  bool default_thinking = true;
  ReasoningNames reasoning_names;
  engine::SamplingParams defaults;  // temperature, top_p, top_k where a request says nothing
  // Where ids, seeds and times come from; absent: the operating system.
  std::function<uint64_t()> random;
  std::function<int64_t()> now;  // seconds since 1970
};

class Service {
 public:
  // `engine` and `tokenizer` outlive the service.
  Service(engine::Engine& engine, const text::Tokenizer& tokenizer, ServiceOptions options);
  ~Service();

  // Before the first request: whether all that the options want is there.
  Result<> check() const { return images_->check(); }

  // Any thread. Requests with a body are worked on by worker threads of the service, since long
  // prompts take time to encode: one for those with images, which take longer, one for the others.
  // The rest is answered at once.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  // The same on this thread.
  void answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
              std::chrono::steady_clock::time_point arrival);
  // From now on /health says 503 and new work is refused.
  void drain() { draining_.store(true, std::memory_order_relaxed); }

 private:
  struct Job {
    HttpRequest request;
    std::shared_ptr<Exchange> exchange;
    std::chrono::steady_clock::time_point arrival;
  };
  struct Lane {
    std::deque<Job> jobs;
    std::thread worker;
  };
  void work(Lane& lane);
  // False: the request has been answered.
  bool admit(const HttpRequest& request, Api api, const std::shared_ptr<Exchange>& exchange);
  bool within_rate(const HttpRequest& request, size_t owner, Api api,
                   const std::shared_ptr<Exchange>& exchange);
  void reply(const std::shared_ptr<Exchange>& exchange, HttpResponse response);
  void fail(const std::shared_ptr<Exchange>& exchange, const Error& error, Api api = Api::kChat);
  void respond(const HttpRequest& request, size_t owner, const std::shared_ptr<Exchange>& exchange,
               std::chrono::steady_clock::time_point arrival);
  void kept_response(std::string_view id, size_t owner, const std::shared_ptr<Exchange>& exchange);
  void delete_response(std::string_view id, size_t owner,
                       const std::shared_ptr<Exchange>& exchange);
  void generate(Api api, Result<Plan> plan, const std::shared_ptr<Exchange>& exchange,
                std::chrono::steady_clock::time_point arrival);
  void tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void count_tokens(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  std::string models_json() const;
  void write_model(JsonWriter& json, const std::string& name) const;
  void model(std::string_view name, const std::shared_ptr<Exchange>& exchange);
  // Which of the keys the request has; 0 if none is needed, nullopt if it has none of them.
  std::optional<size_t> owner_of(const HttpRequest& request) const;
  void log_ignored(Api api, const std::vector<std::string>& names);

  engine::Engine* engine_;
  const text::Tokenizer* tokenizer_;
  ServiceOptions options_;
  std::unique_ptr<ImageInput> images_;
  std::unique_ptr<decode::GrammarCache> grammars_;
  ModelContext model_;
  Metrics metrics_;
  RateLimit rate_;
  std::shared_ptr<ResponseStore> store_;
  int64_t started_ = 0;
  std::atomic<bool> draining_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  Lane text_lane_;
  Lane image_lane_;
  bool quit_ = false;
  std::set<std::string> logged_;  // ignored fields that were named in the log; under mutex_
};

}  // namespace cedra::server

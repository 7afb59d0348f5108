// What each route does. The table of routes is in routes.h.
#include "server/service.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/ascii.h"
#include "base/log.h"
#include "server/error_body.h"
#include "server/generation.h"
#include "server/openapi.h"
#include "server/origin.h"
#include "server/routes.h"
#include "server/web_page.h"

namespace cedra::server {
namespace {

// Compares in time that depends on the lengths only.
bool same_secret(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(expected[i % expected.size()]);
  }
  return difference == 0;
}

std::function<uint64_t()> system_random() {
  return [device = std::make_shared<std::random_device>()] {
    return (static_cast<uint64_t>((*device)()) << 32) | (*device)();
  };
}

int64_t system_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr std::string_view kKeptResponses = "/responses/";

HttpResponse json_response(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

}  // namespace

Service::Service(engine::Engine& engine, const text::Tokenizer& tokenizer, ServiceOptions options)
    : engine_(&engine),
      tokenizer_(&tokenizer),
      options_(std::move(options)),
      rate_(options_.requests_per_minute) {
  if (!options_.random) options_.random = system_random();
  options_.random = [random = std::move(options_.random), lock = std::make_shared<std::mutex>()] {
    const std::lock_guard guard(*lock);
    return random();
  };
  if (!options_.now) options_.now = system_seconds;
  // A vocabulary that no grammar can work with is no reason not to serve the rest.
  if (auto vocabulary = decode::Vocabulary::create(tokenizer)) {
    grammars_ =
        std::make_unique<decode::GrammarCache>(*std::move(vocabulary), engine.info().grammar_bytes);
    model_.grammars = grammars_.get();
  }
  model_.tokenizer = tokenizer_;
  model_.info = engine.info();
  images_ = std::make_unique<ImageInput>(options_.images, model_.info);
  model_.images = images_.get();
  model_.strict_image_placeholder = options_.strict_image_placeholder;
  model_.names = options_.model_names;
  model_.limits = options_.limits;
  model_.default_thinking = options_.default_thinking;
  model_.reasoning_names = options_.reasoning_names;
  model_.defaults = options_.defaults;
  store_ = std::make_shared<ResponseStore>(options_.response_store_bytes);
  started_ = options_.now();
  for (Lane* lane : {&text_lane_, &image_lane_}) {
    lane->worker = std::thread([this, lane] { work(*lane); });
  }
}

Service::~Service() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  text_lane_.worker.join();
  image_lane_.worker.join();
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const auto arrival = std::chrono::steady_clock::now();
  if (request.method != "POST") {
    answer(request, exchange, arrival);
    return;
  }
  if (options_.log_prompts) {
    log::event(log::Level::kInfo, "body", {{"id", request.id}, {"body", request.body}});
  }
  // Every kind of image part has the word in its type; text that has it only takes the longer way.
  const bool images = request.body.find("image") != std::string::npos;
  const std::lock_guard lock(mutex_);
  if (quit_) return;
  Lane& lane = images ? image_lane_ : text_lane_;
  lane.jobs.push_back({std::move(request), std::move(exchange), arrival});
  changed_.notify_all();
}

void Service::work(Lane& lane) {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return quit_ || !lane.jobs.empty(); });
      if (quit_) return;
      job = std::move(lane.jobs.front());
      lane.jobs.pop_front();
    }
    if (!job.exchange->gone()) answer(job.request, job.exchange, job.arrival);
  }
}

void Service::answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                     std::chrono::steady_clock::time_point arrival) {
  if (std::optional<HttpResponse> page = web_page(request)) {
    reply(exchange, *std::move(page));
    return;
  }
  const std::string_view path = without_prefixes(request.path);
  const Api api = api_of(path);
  if (!admit(request, api, exchange)) return;
  std::string allowed;
  const RouteRow* row = find_route(request.method, path, allowed);
  if (row == nullptr) {
    Error error{Code::kNotFound, fmt::format("no such route: {} {}", request.method.substr(0, 20),
                                             request.path.substr(0, 200))};
    HttpResponse response = error_response(error, api, allowed.empty() ? 404 : 405);
    if (!allowed.empty()) response.headers.emplace_back("Allow", allowed);
    reply(exchange, std::move(response));
    return;
  }
  const std::optional<size_t> owner = owner_of(request);
  if (!row->open && !owner) {
    HttpResponse response = error_response(
        Error{Code::kInvalid,
              "missing or wrong API key; send it as \"Authorization: Bearer KEY\" or x-api-key"},
        api, 401);
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    reply(exchange, std::move(response));
    return;
  }
  if (row->method == "POST" && !within_rate(request, *owner, api, exchange)) return;
  switch (row->route) {
    case Route::kHealth:
    case Route::kPing:
      if (draining_.load(std::memory_order_relaxed)) {
        fail(exchange, Error{Code::kUnavailable, "the server is shutting down"});
      } else {
        reply(exchange, json_response(R"({"status":"ok"})"));
      }
      break;
    case Route::kVersion: {
      std::string body;
      JsonWriter(body).begin_object().key("version").string(options_.version).end_object();
      reply(exchange, json_response(std::move(body)));
      break;
    }
    case Route::kMetrics: {
      HttpResponse response;
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      response.body = prometheus_text(metrics_, engine_->stats(), options_.model_names.front());
      reply(exchange, std::move(response));
      break;
    }
    case Route::kOpenApi:
      reply(exchange, json_response(std::string(openapi_json())));
      break;
    case Route::kModels:
      reply(exchange, json_response(models_json()));
      break;
    case Route::kModel:
      model(path.substr(std::string_view("/models/").size()), exchange);
      break;
    case Route::kChat:
      generate(Api::kChat, plan_chat(request.body, model_), exchange, arrival);
      break;
    case Route::kCompletions:
      generate(Api::kCompletions, plan_completion(request.body, model_), exchange, arrival);
      break;
    case Route::kResponses:
      respond(request, owner.value_or(0), exchange, arrival);
      break;
    case Route::kKeptResponse:
      kept_response(path.substr(kKeptResponses.size()), *owner, exchange);
      break;
    case Route::kDeleteResponse:
      delete_response(path.substr(kKeptResponses.size()), *owner, exchange);
      break;
    case Route::kMessages:
      generate(Api::kMessages, plan_messages(request.body, model_), exchange, arrival);
      break;
    case Route::kCountTokens:
      count_tokens(request, exchange);
      break;
    case Route::kTokenize:
      tokenize(request, exchange);
      break;
    case Route::kDetokenize:
      detokenize(request, exchange);
      break;
  }
}

// Web pages: a browser sends their requests whatever they are, so those of foreign pages are
// refused before anything is done, and only allowed ones may read the answer.
bool Service::admit(const HttpRequest& request, Api api,
                    const std::shared_ptr<Exchange>& exchange) {
  if (!request.origin.empty()) {
    const OriginRule rule = origin_rule(request.origin, request.host, options_.allowed_origins,
                                        !options_.api_keys.empty());
    if (rule == OriginRule::kForeign) {
      reply(exchange,
            error_response(Error{Code::kInvalid, fmt::format("pages of {} may not use this server; "
                                                             "--allowed-origins lets them",
                                                             request.origin.substr(0, 200))},
                           api, 403));
      return false;
    }
    if (rule == OriginRule::kListed) {
      exchange->add_header("Access-Control-Allow-Origin", request.origin);
      exchange->add_header("Vary", "Origin");
      exchange->add_header("Access-Control-Expose-Headers", "x-request-id, retry-after");
    }
  }
  if (request.method != "OPTIONS") return true;
  HttpResponse response;
  constexpr const char* kMethods = "GET, HEAD, POST, DELETE, OPTIONS";
  response.headers = {{"Allow", kMethods},
                      {"Access-Control-Allow-Methods", kMethods},
                      {"Access-Control-Allow-Headers",
                       "authorization, content-type, x-api-key, x-request-id, anthropic-version, "
                       "anthropic-beta"},
                      {"Access-Control-Max-Age", "600"}};
  reply(exchange, std::move(response));
  return false;
}

bool Service::within_rate(const HttpRequest& request, size_t owner, Api api,
                          const std::shared_ptr<Exchange>& exchange) {
  const std::string who = options_.api_keys.empty() ? request.remote : fmt::format("key {}", owner);
  const std::chrono::milliseconds wait = rate_.take(who, std::chrono::steady_clock::now());
  if (wait.count() == 0) return true;
  HttpResponse response = error_response(
      Error{Code::kExhausted,
            fmt::format("more than {} requests per minute", options_.requests_per_minute)},
      api);
  response.headers = {{"Retry-After", std::to_string((wait.count() + 999) / 1000)}};
  reply(exchange, std::move(response));
  return false;
}

void Service::reply(const std::shared_ptr<Exchange>& exchange, HttpResponse response) {
  if (response.status >= 500) {
    metrics_.server_errors.fetch_add(1, std::memory_order_relaxed);
  } else if (response.status >= 400) {
    metrics_.client_errors.fetch_add(1, std::memory_order_relaxed);
  }
  exchange->respond(std::move(response));
}

void Service::fail(const std::shared_ptr<Exchange>& exchange, const Error& error, Api api) {
  reply(exchange, error_response(error, api));
}

void Service::generate(Api api, Result<Plan> plan, const std::shared_ptr<Exchange>& exchange,
                       std::chrono::steady_clock::time_point arrival) {
  if (!plan) {
    fail(exchange, plan.error(), api);
    return;
  }
  if (draining_.load(std::memory_order_relaxed)) {
    fail(exchange, Error{Code::kUnavailable, "the server is shutting down"}, api);
    return;
  }
  log_ignored(api, plan->ignored);
  ResponseIdentity identity;
  const uint64_t high = options_.random();
  const uint64_t low = options_.random();
  identity.id = fmt::format("{}{:016x}{:016x}", id_prefix(api), high, low);
  identity.created = options_.now();
  identity.call_id_base = fmt::format("{:016x}", options_.random());
  if (!plan->sampling.seed) plan->sampling.seed = options_.random() >> 1;
  std::make_shared<Generation>(*engine_, *tokenizer_, metrics_, *std::move(plan),
                               std::move(identity), exchange, arrival)
      ->run();
}

void Service::respond(const HttpRequest& request, size_t owner,
                      const std::shared_ptr<Exchange>& exchange,
                      std::chrono::steady_clock::time_point arrival) {
  Result<Plan> plan = plan_responses(
      request.body, model_,
      [store = store_, owner](std::string_view id) { return store->get(id, owner); });
  if (plan && plan->responses.store) {
    // Called once, at the end of the answer.
    plan->keep = [store = store_, owner, history = std::move(plan->history)](
                     const std::string& id, text::Message answer, std::string body) mutable {
      history.push_back(std::move(answer));
      store->put(id, owner, std::move(history), std::move(body));
    };
  }
  generate(Api::kResponses, std::move(plan), exchange, arrival);
}

void Service::kept_response(std::string_view id, size_t owner,
                            const std::shared_ptr<Exchange>& exchange) {
  Result<std::string> body = store_->body(id, owner);
  if (!body) {
    fail(exchange, body.error(), Api::kResponses);
    return;
  }
  reply(exchange, json_response(*std::move(body)));
}

void Service::delete_response(std::string_view id, size_t owner,
                              const std::shared_ptr<Exchange>& exchange) {
  if (const Result<> erased = store_->erase(id, owner); !erased) {
    fail(exchange, erased.error(), Api::kResponses);
    return;
  }
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("id").string(id).key("object").string("response");
  json.key("deleted").boolean(true).end_object();
  reply(exchange, json_response(std::move(body)));
}

// Once per field, so that a client's habits do not fill the log.
void Service::log_ignored(Api api, const std::vector<std::string>& names) {
  constexpr size_t kMost = 256;
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names) {
    if (logged_.size() >= kMost) return;
    if (!logged_.insert(fmt::format("{}{}", id_prefix(api), name)).second) continue;
    log::info("requests for {} carry \"{}\", which means nothing here and is ignored",
              route_name(api), name);
  }
}

void Service::tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Result<TokenizePlan> plan = plan_tokenize(request.body, model_);
  if (!plan) {
    fail(exchange, plan.error());
    return;
  }
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("count").integer(static_cast<int64_t>(plan->ids.size()));
  json.key("max_model_len").integer(model_.info.context_length).key("tokens").begin_array();
  for (const int32_t id : plan->ids) json.integer(id);
  json.end_array();
  if (plan->with_strings) {
    json.key("token_strs").begin_array();
    for (const int32_t id : plan->ids) json.string(tokenizer_->token_string(id));
    json.end_array();
  }
  json.end_object();
  reply(exchange, json_response(std::move(body)));
}

void Service::count_tokens(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Result<int64_t> count = plan_count(request.body, model_);
  if (!count) {
    fail(exchange, count.error(), Api::kMessages);
    return;
  }
  std::string body;
  JsonWriter(body).begin_object().key("input_tokens").integer(*count).end_object();
  reply(exchange, json_response(std::move(body)));
}

void Service::detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const Result<std::vector<int32_t>> ids = plan_detokenize(request.body, model_);
  if (!ids) {
    fail(exchange, ids.error());
    return;
  }
  std::string body;
  JsonWriter(body).begin_object().key("prompt").string(tokenizer_->decode(*ids)).end_object();
  reply(exchange, json_response(std::move(body)));
}

void Service::write_model(JsonWriter& json, const std::string& name) const {
  // OpenAI's members, Anthropic's, and the two names clients use for the context.
  json.begin_object().key("id").string(name).key("object").string("model");
  json.key("created").integer(started_).key("owned_by").string("cedra");
  json.key("root").string(options_.model_names.front()).key("max_model_len");
  json.integer(model_.info.context_length).key("context_length");
  json.integer(model_.info.context_length).key("type").string("model");
  json.key("display_name").string(name).key("created_at");
  json.string(fmt::format("{:%FT%TZ}", fmt::gmtime(static_cast<std::time_t>(started_))));
  json.end_object();
}

void Service::model(std::string_view name, const std::shared_ptr<Exchange>& exchange) {
  const auto& names = options_.model_names;
  if (std::ranges::find(names, name) == names.end()) {
    fail(exchange, Error{Code::kNotFound, fmt::format("model \"{}\" does not exist here; served is "
                                                      "\"{}\"",
                                                      name.substr(0, 200), names.front())});
    return;
  }
  std::string body;
  JsonWriter json(body);
  write_model(json, std::string(name));
  reply(exchange, json_response(std::move(body)));
}

std::string Service::models_json() const {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const std::string& name : options_.model_names) {
    write_model(json, name);
  }
  json.end_array().key("first_id").string(options_.model_names.front());
  json.key("last_id").string(options_.model_names.back()).key("has_more").boolean(false);
  json.end_object();
  return body;
}

std::optional<size_t> Service::owner_of(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return 0;
  static constexpr std::string_view kBearer = "bearer ";
  std::string_view given = request.authorization;
  if (starts_with_nocase(given, kBearer)) {
    given.remove_prefix(kBearer.size());
  } else {
    given = request.api_key;
  }
  std::optional<size_t> owner;
  for (size_t i = 0; i < options_.api_keys.size(); ++i) {  // all of them, whichever it is
    if (same_secret(given, options_.api_keys[i])) owner = i;
  }
  return owner;
}

}  // namespace cedra::server

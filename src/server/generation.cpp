// See generation.h for threads and locks.
#include "server/generation.h"

#include <algorithm>

#include "server/error_body.h"

namespace cedra::server {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class ChoiceSink final : public engine::Sink {
 public:
  ChoiceSink(std::shared_ptr<Generation> generation, size_t choice)
      : generation_(std::move(generation)), choice_(choice) {}

  void on_prefill(int64_t, int64_t) override { generation_->on_prefill(choice_); }
  void on_prompt_logprobs(std::span<const engine::Token> tokens) override {
    generation_->on_prompt_logprobs(choice_, tokens);
  }
  bool on_token(const engine::Token& token) override {
    return generation_->on_token(choice_, token);
  }
  void on_finish(const engine::Finish& finish) override { generation_->on_finish(choice_, finish); }

 private:
  std::shared_ptr<Generation> generation_;
  size_t choice_;
};

}  // namespace

Generation::Generation(engine::Engine& engine, const text::Tokenizer& tokenizer, Metrics& metrics,
                       Plan plan, ResponseIdentity identity, std::shared_ptr<Exchange> exchange,
                       Clock::time_point arrival)
    : engine_(&engine),
      metrics_(&metrics),
      plan_(std::move(plan)),
      identity_(std::move(identity)),
      exchange_(std::move(exchange)),
      arrival_(arrival),
      times_(plan_.choices()) {
  for (size_t i = 0; i < plan_.choices(); ++i) {
    choices_.push_back(Choice::make(plan_, tokenizer, identity_, i));
  }
}

void Generation::run() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& choice : choices_) choice->begin(events_);
  }
  for (size_t i = 0; i < plan_.choices(); ++i) {
    if (exchange_->gone()) break;
    engine::Request request;
    request.prompt = plan_.prompts[i / static_cast<size_t>(plan_.n)];
    request.images = plan_.images;
    request.sampling = plan_.sampling;
    request.sampling.seed = plan_.sampling.seed.value_or(0) + i;
    request.priority = plan_.priority;
    request.cache_salt = plan_.cache_salt;
    const Result<engine::RequestId> id =
        engine_->submit(std::move(request), std::make_shared<ChoiceSink>(shared_from_this(), i));
    if (!id) {
      cancel();
      if (id.error().code == Code::kExhausted || id.error().code == Code::kUnavailable) {
        metrics_->refused.fetch_add(1, std::memory_order_relaxed);
      }
      exchange_->respond(error_response(id.error(), plan_.api));
      return;
    }
    const std::lock_guard lock(mutex_);
    ids_.push_back(*id);
  }
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->metrics_->disconnects.fetch_add(1, std::memory_order_relaxed);
      self->cancel();
    }
  });
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return;
    admitted_ = true;
    failed = error_.has_value();
    // Whether a failure comes before the stream or within it is decided by what was generated, not
    // by which thread was faster.
    const bool spoke = std::ranges::any_of(
        times_, [](const Times& times) { return times.first_token != Clock::time_point(); });
    if (plan_.stream && (!failed || spoke)) {
      started_ = true;
      exchange_->start_events(keep_alive_event(plan_.api));
      deliver_locked();
    }
    complete_locked();
  }
  if (failed) stop_choices();  // those submitted after the one that failed
}

void Generation::cancel() {
  {
    const std::lock_guard lock(mutex_);
    dead_ = true;
  }
  stop_choices();
}

void Generation::stop_choices() {
  std::vector<engine::RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  for (const engine::RequestId id : ids) engine_->cancel(id);
}

void Generation::on_prefill(size_t choice) {
  const std::lock_guard lock(mutex_);
  Times& times = times_[choice];
  if (times.scheduled != Clock::time_point()) return;
  times.scheduled = Clock::now();
  metrics_->queue.observe(seconds_between(arrival_, times.scheduled));
}

bool Generation::on_token(size_t choice, const engine::Token& token) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (dead_) return true;  // being cancelled: that is how it shall end, not as complete
  Times& times = times_[choice];
  if (times.first_token == Clock::time_point()) {
    times.first_token = now;
    metrics_->time_to_first_token.observe(seconds_between(arrival_, now));
    metrics_->prefill.observe(seconds_between(times.scheduled, now));
  } else {
    metrics_->inter_token.observe(seconds_between(times.last_token, now));
  }
  times.last_token = now;
  const bool more = choices_[choice]->token(token, events_);
  deliver_locked();
  return more || dead_;
}

void Generation::on_prompt_logprobs(size_t choice, std::span<const engine::Token> tokens) {
  const std::lock_guard lock(mutex_);
  choices_[choice]->prompt_logprobs(tokens, events_);
  deliver_locked();
}

void Generation::on_finish(size_t choice, const engine::Finish& finish) {
  count_finish(finish.reason);
  const Clock::time_point now = Clock::now();
  metrics_->end_to_end.observe(seconds_between(arrival_, now));
  metrics_->prompt_tokens.observe(static_cast<double>(finish.usage.prompt_tokens));
  metrics_->generated_tokens.observe(static_cast<double>(finish.usage.completion_tokens));
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    if (times_[choice].first_token != Clock::time_point()) {
      metrics_->decode.observe(seconds_between(times_[choice].first_token, now));
    }
    ++finished_;
    if (!plan_.prompt_only) usage_.completion_tokens += finish.usage.completion_tokens;
    usage_.drafts.drafted += finish.usage.drafts.drafted;
    usage_.drafts.verified += finish.usage.drafts.verified;
    usage_.drafts.accepted += finish.usage.drafts.accepted;
    usage_.drafts.blocks += finish.usage.drafts.blocks;
    if (choice % static_cast<size_t>(plan_.n) == 0) {
      usage_.prompt_tokens += finish.usage.prompt_tokens;
      usage_.cached_tokens += finish.usage.cached_tokens;
    }
    if (dead_ || error_) return;
    if (std::optional<Error> error = failure(finish)) {
      error_ = std::move(error);
      failed_choice_ = choice;
      failed = true;
    } else {
      choices_[choice]->end(finish, events_);
      deliver_locked();
    }
    usage_.reasoning_tokens += choices_[choice]->reasoning_tokens();
    complete_locked();
  }
  // An answer with a hole is no answer: the other choices need not go on. What the client is told
  // may still be run()'s business.
  if (failed) stop_choices();
}

// What the client is told instead of an answer, if it shall be.
std::optional<Error> Generation::failure(const engine::Finish& finish) const {
  if (finish.reason == engine::FinishReason::kError) {
    return finish.error.value_or(Error{Code::kInternal, "the request failed"});
  }
  // These routes have no name for an answer that the server broke off.
  const bool nameless = plan_.api == Api::kMessages || plan_.api == Api::kResponses;
  if (finish.reason == engine::FinishReason::kCancelled && nameless) {
    return Error{Code::kUnavailable, "the server is shutting down and ended the request early"};
  }
  return std::nullopt;
}

void Generation::count_finish(engine::FinishReason reason) {
  std::atomic<uint64_t>* counter = nullptr;
  switch (reason) {
    case engine::FinishReason::kStop:
      counter = &metrics_->finished_stop;
      break;
    case engine::FinishReason::kLength:
      counter = &metrics_->finished_length;
      break;
    case engine::FinishReason::kCancelled:
      counter = &metrics_->finished_aborted;
      break;
    case engine::FinishReason::kError:
      counter = &metrics_->finished_error;
      break;
  }
  counter->fetch_add(1, std::memory_order_relaxed);
}

// Hands rendered events to the stream. Before admission they wait: the status is not decided yet.
void Generation::deliver_locked() {
  if (!plan_.stream || !admitted_ || events_.empty()) return;
  if (!exchange_->write(events_)) dead_ = true;
  events_.clear();
}

void Generation::complete_locked() {
  if (!admitted_ || dead_ || (finished_ < choices_.size() && !error_)) return;
  dead_ = true;
  if (!started_) {
    HttpResponse response;
    if (error_) {
      response = error_response(*error_, plan_.api);
    } else {
      response.body = render_response(plan_, identity_, choices_, usage_);
    }
    exchange_->respond(std::move(response));
    return;
  }
  std::string last;
  if (error_) {
    choices_[failed_choice_]->fail(*error_, last);
  } else {
    append_stream_end(last, plan_, identity_, usage_);
  }
  exchange_->write(last);
  exchange_->finish();
}

}  // namespace cedra::server

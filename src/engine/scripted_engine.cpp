// The mutex guards the queue, flags and counters. A running request belongs to the thread alone;
// its sink is always called without the lock.
#include "engine/scripted_engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "engine/request_checks.h"

namespace cedra::engine {
namespace {

using Clock = std::chrono::steady_clock;

struct Job {
  RequestId id = 0;
  Request request;
  std::shared_ptr<Sink> sink;
  Script script;
  int64_t prefilled = 0;
  int64_t generated = 0;
};

// Log probabilities that a client can check: the chosen token -0.5, alternatives a step lower each.
Token make_token(int32_t id, int top_logprobs, int64_t vocab_size) {
  Token token;
  token.id = id;
  if (top_logprobs < 0) return token;
  token.logprob = -0.5f;
  for (int i = 0; i < top_logprobs && i < vocab_size; ++i) {
    token.top.push_back(
        {static_cast<int32_t>((id + i) % vocab_size), -0.5f - static_cast<float>(i)});
  }
  return token;
}

}  // namespace

struct ScriptedEngine::Impl {
  ScriptedOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Job>> queue;
  std::set<RequestId> cancelled;  // asked for, not yet seen by the thread
  Stats totals;
  RequestId next_id = 1;
  int64_t open = 0;  // submitted and not yet finished
  bool draining = false;
  bool cancel_all = false;
  bool quit = false;
  std::vector<std::unique_ptr<Job>> running;  // thread only
  std::thread thread;

  void finish(Job& job, FinishReason reason, std::optional<int32_t> stop = {},
              std::optional<Error> error = {}) {
    Finish finish;
    finish.reason = reason;
    finish.stop_token = stop;
    const int64_t completion = job.generated + (stop ? 1 : 0);
    finish.usage = {static_cast<int64_t>(job.request.prompt.size()), 0, completion};
    finish.error = std::move(error);
    {
      // Whoever on_finish() wakes sees this request counted and its place free.
      const std::lock_guard lock(mutex);
      ++(reason == FinishReason::kCancelled ? totals.cancelled : totals.finished);
      totals.running -=
          std::ranges::count(running, &job, [](const auto& one) { return one.get(); });
    }
    job.sink->on_finish(finish);
    job.sink.reset();
    const std::lock_guard lock(mutex);
    --open;
  }

  // One chunk or one token. True: the job is over and its sink has been told.
  bool step(Job& job) {
    const auto prompt = static_cast<int64_t>(job.request.prompt.size());
    const SamplingParams& sampling = job.request.sampling;
    if (job.request.deadline && Clock::now() > *job.request.deadline) {
      finish(job, FinishReason::kCancelled);
      return true;
    }
    if (job.prefilled < prompt) {
      const int64_t rows = std::min(options.prefill_chunk, prompt - job.prefilled);
      job.prefilled += rows;
      {
        const std::lock_guard lock(mutex);
        totals.prompt_tokens += rows;
      }
      job.sink->on_prefill(job.prefilled, prompt);
      if (job.prefilled == prompt && sampling.prompt_logprobs >= 0) {
        std::vector<Token> tokens;
        for (const int32_t id : job.request.prompt) {
          tokens.push_back(make_token(id, sampling.prompt_logprobs, options.info.vocab_size));
        }
        job.sink->on_prompt_logprobs(tokens);
      }
      return false;
    }
    const int32_t eos = options.info.eos_token_id;
    const auto at = static_cast<size_t>(job.generated);
    const std::vector<int32_t>& tokens = job.script.tokens;
    if (at >= tokens.size() && job.script.error) {
      finish(job, FinishReason::kError, {}, job.script.error);
      return true;
    }
    int32_t id = at < tokens.size() ? tokens[at] : eos;
    const bool masked = job.generated < sampling.min_tokens;
    const bool is_eos = id == eos && !sampling.ignore_eos;
    const bool is_stop = is_eos || std::count(sampling.stop_token_ids.begin(),
                                              sampling.stop_token_ids.end(), id) > 0;
    if (is_stop && !masked) {
      finish(job, FinishReason::kStop, id);
      return true;
    }
    if (is_stop) id = job.request.prompt.back();  // any other token will do
    ++job.generated;
    {
      const std::lock_guard lock(mutex);
      ++totals.generated_tokens;
    }
    const bool more =
        job.sink->on_token(make_token(id, sampling.top_logprobs, options.info.vocab_size));
    if (!more) {
      finish(job, FinishReason::kStop);
      return true;
    }
    if (job.generated >= sampling.max_tokens) {
      finish(job, FinishReason::kLength);
      return true;
    }
    return false;
  }

  // Ends what was asked to end, takes in what fits. False: time to leave.
  bool admit() {
    std::vector<std::unique_ptr<Job>> ended;
    {
      std::unique_lock lock(mutex);
      changed.wait(
          lock, [&] { return quit || !queue.empty() || !running.empty() || !cancelled.empty(); });
      const auto take = [&](auto& jobs) {
        for (auto& job : jobs) {
          if (cancel_all || cancelled.contains(job->id)) ended.push_back(std::move(job));
        }
        std::erase(jobs, nullptr);
      };
      take(queue);
      take(running);
      cancelled.clear();
      const bool leave = quit && queue.empty() && running.empty() && ended.empty();
      while (static_cast<int64_t>(running.size()) < options.info.max_num_seqs && !queue.empty()) {
        const auto first = std::min_element(queue.begin(), queue.end(), [](auto& a, auto& b) {
          return a->request.priority < b->request.priority;
        });
        running.push_back(std::move(*first));
        queue.erase(first);
      }
      totals.running = static_cast<int64_t>(running.size());
      totals.waiting = static_cast<int64_t>(queue.size());
      if (leave) return false;
    }
    for (const auto& job : ended) finish(*job, FinishReason::kCancelled);
    if (!ended.empty()) changed.notify_all();
    return true;
  }

  void loop() {
    while (admit()) {
      if (running.empty()) {
        changed.notify_all();
        continue;
      }
      const bool prefill = std::any_of(running.begin(), running.end(), [](const auto& job) {
        return job->prefilled < static_cast<int64_t>(job->request.prompt.size());
      });
      const auto delay = prefill ? options.prefill_delay : options.token_delay;
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      for (auto& job : running) {
        if (step(*job)) job.reset();
      }
      std::erase(running, nullptr);
      {
        const std::lock_guard lock(mutex);
        ++totals.steps;
        totals.running = static_cast<int64_t>(running.size());
      }
      changed.notify_all();
    }
  }
};

ScriptedEngine::ScriptedEngine(ScriptedOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->thread = std::thread([this] { impl_->loop(); });
}

ScriptedEngine::~ScriptedEngine() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->draining = impl_->cancel_all = impl_->quit = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

const Info& ScriptedEngine::info() const { return impl_->options.info; }

Result<RequestId> ScriptedEngine::submit(Request request, std::shared_ptr<Sink> sink) {
  CEDRA_TRY(check_request(request, info()));
  auto job = std::make_unique<Job>();
  job->script = impl_->options.script(request);
  job->request = std::move(request);
  job->sink = std::move(sink);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->draining) return err(Code::kUnavailable, "the server is shutting down");
  // Free slots count as room: a queued request moves into one at the next step.
  const int64_t room = info().max_queue + info().max_num_seqs - impl_->totals.running;
  if (static_cast<int64_t>(impl_->queue.size()) >= room) {
    return err(Code::kExhausted, "all {} slots are in use and {} requests wait already; try later",
               info().max_num_seqs, impl_->queue.size());
  }
  job->id = impl_->next_id++;
  const RequestId id = job->id;
  ++impl_->open;
  impl_->queue.push_back(std::move(job));
  impl_->totals.waiting = static_cast<int64_t>(impl_->queue.size());
  impl_->changed.notify_all();
  return id;
}

void ScriptedEngine::cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.insert(id);
  impl_->changed.notify_all();
}

Stats ScriptedEngine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->totals;
}

void ScriptedEngine::drain(std::chrono::milliseconds grace) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  const auto idle = [&] { return impl_->open == 0; };
  if (impl_->changed.wait_for(lock, grace, idle)) return;
  impl_->cancel_all = true;
  impl_->changed.notify_all();
  impl_->changed.wait(lock, idle);
}

}  // namespace cedra::engine

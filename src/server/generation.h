// One request on its way through the engine: submits its choices, turns their tokens into the
// response, cancels them when the client leaves.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/choice.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/plan.h"

namespace cedra::server {

// Lives as long as the engine or its exchange refers to it. on_* run on the engine's thread, run()
// and cancel() on others; the mutex guards everything that changes, and no call into the engine is
// made under it.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(engine::Engine& engine, const text::Tokenizer& tokenizer, Metrics& metrics, Plan plan,
             ResponseIdentity identity, std::shared_ptr<Exchange> exchange,
             std::chrono::steady_clock::time_point arrival);

  // Submits all choices. All or none are admitted: on a refusal the others are cancelled and the
  // error is the response. Headers of a stream go out only after this succeeded.
  void run();
  void cancel();

  void on_prefill(size_t choice);
  bool on_token(size_t choice, const engine::Token& token);
  void on_prompt_logprobs(size_t choice, std::span<const engine::Token> tokens);
  void on_finish(size_t choice, const engine::Finish& finish);

 private:
  void stop_choices();  // in the engine; what has been written or will be stays as it is
  void count_finish(engine::FinishReason reason);
  std::optional<Error> failure(const engine::Finish& finish) const;
  void deliver_locked();
  void complete_locked();

  engine::Engine* engine_;
  Metrics* metrics_;
  const Plan plan_;
  const ResponseIdentity identity_;
  const std::shared_ptr<Exchange> exchange_;
  const std::chrono::steady_clock::time_point arrival_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Choice>> choices_;
  struct Times {  // the epoch: not yet
    std::chrono::steady_clock::time_point scheduled, first_token, last_token;
  };
  std::vector<Times> times_;  // per choice
  std::vector<engine::RequestId> ids_;
  std::string events_;  // rendered, not yet written
  ResponseUsage usage_;
  size_t finished_ = 0;
  bool admitted_ = false;  // all choices are in
  bool started_ = false;   // the stream's head is written
  bool dead_ = false;      // refused, or the client is gone: nothing more to write
  std::optional<Error> error_;
  size_t failed_choice_ = 0;
};

}  // namespace cedra::server

// An engine without a model: every request gets the tokens of a fixed script, at a chosen pace. For
// trying the server and its clients where no checkpoint is at hand, and for their tests.
//
// One thread runs all admitted requests round robin: a prefill chunk or one token of each per step,
// like the real scheduler. Queue bound, cancellation within one step, deadlines and drain are real.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace cedra::engine {

// What one request gets.
struct Script {
  Script() = default;
  Script(std::vector<int32_t> ids) : tokens(std::move(ids)) {}  // NOLINT: a list is a script
  std::vector<int32_t> tokens;  // ends with a stop token or by running out, which counts as EOS
  std::optional<Error> error;   // after them, instead: the request fails
};

struct ScriptedOptions {
  Info info;
  std::chrono::microseconds token_delay{0};    // before each decode step
  std::chrono::microseconds prefill_delay{0};  // before each prefill chunk
  int64_t prefill_chunk = 16;                  // prompt tokens per chunk
  std::function<Script(const Request&)> script;
};

class ScriptedEngine final : public Engine {
 public:
  explicit ScriptedEngine(ScriptedOptions options);
  ~ScriptedEngine() override;

  const Info& info() const override;
  Result<RequestId> submit(Request request, std::shared_ptr<Sink> sink) override;
  void cancel(RequestId id) override;
  Stats stats() const override;
  void drain(std::chrono::milliseconds grace) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cedra::engine

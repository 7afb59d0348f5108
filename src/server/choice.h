// One choice of a response: tokens in, events of the stream or the finished message out (spec
// chat.md 3.8, 4.4). Pure text work, used on the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/json_writer.h"
#include "server/plan.h"
#include "text/tokenizer.h"

namespace cedra::server {

// What is the same in every chunk of a response.
struct ResponseIdentity {
  std::string id;            // "chatcmpl-...", "cmpl-...", "msg_..." or "resp_..."
  int64_t created = 0;       // seconds since 1970
  std::string call_id_base;  // of tool calls: unique per response
};

class Choice {
 public:
  // `plan` and `tokenizer` outlive the choice.
  static std::unique_ptr<Choice> make(const Plan& plan, const text::Tokenizer& tokenizer,
                                      const ResponseIdentity& identity, size_t index);
  virtual ~Choice() = default;

  // Before all else: the stream's first event. The functions below append whole events to `out` if
  // the plan streams and collect the message if not.
  virtual void begin(std::string& out) = 0;
  // False: the text is complete, no more tokens are wanted.
  virtual bool token(const engine::Token& token, std::string& out) = 0;
  virtual void end(const engine::Finish& finish, std::string& out) = 0;
  // Instead of end(): what tells a stream's reader that the request failed.
  virtual void fail(const Error& error, std::string& out);
  // Before the first token, if they are wanted.
  virtual void prompt_logprobs(std::span<const engine::Token> /*tokens*/, std::string& /*out*/) {}
  // Not streamed: the finished choice object of a completion, or the whole body of the routes that
  // have one choice only (messages, responses).
  virtual void render(JsonWriter& json) const = 0;

  // Tokens up to and including the end of thinking.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  // Something the client should know about this answer, or "".
  virtual std::string_view hint() const { return {}; }

 protected:
  int64_t reasoning_tokens_ = 0;
};

// Counts over all choices; a prompt with several choices counts once.
struct ResponseUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  engine::DraftUsage drafts = {};
};

void write_usage(JsonWriter& json, const ResponseUsage& usage, bool chat);
// What comes after the last choice's end: with include_usage an event with usage and no choices,
// and [DONE]; nothing on the routes that have no such thing.
void append_stream_end(std::string& out, const Plan& plan, const ResponseIdentity& identity,
                       const ResponseUsage& usage);
// What a silent stream is kept alive with.
std::string_view keep_alive_event(Api api);
// The whole body of a response that is not streamed.
std::string render_response(const Plan& plan, const ResponseIdentity& identity,
                            std::span<const std::unique_ptr<Choice>> choices,
                            const ResponseUsage& usage);

}  // namespace cedra::server

// Internal to the choices of chat completions, messages and responses: tokens through the decoder
// and the output parser, log probabilities held back with their text, how the answer ended. The
// routes differ in how they spell the parser's events.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/choice_kinds.h"
#include "server/token_logprobs.h"
#include "text/output_parser.h"

namespace cedra::server {

class ParsedChoice : public Choice {
 public:
  bool token(const engine::Token& token, std::string& out) final;
  void end(const engine::Finish& finish, std::string& out) final;
  std::string_view hint() const final { return hint_; }

 protected:
  // `id_prefix`: of tool calls.
  ParsedChoice(const Plan& plan, const text::Tokenizer& tokenizer, const ResponseIdentity& identity,
               size_t index, std::string_view id_prefix);

  // What the parser made of the text so far, in order.
  virtual void take(const std::vector<text::OutputEvent>& events, std::string& out) = 0;
  // After the last take(); finish_ and the rest below are set.
  virtual void ended(const engine::Finish& finish, std::string& out) = 0;
  // Moves out the log probabilities of an event's text.
  void release(const text::OutputEvent& event, std::vector<LogprobEntry>& out);
  // The client's own stop string that ended the text, or "".
  std::string_view matched_stop() const { return parser_.matched_stop(); }

  const Plan* plan_;
  const text::Tokenizer* tokenizer_;
  size_t index_;
  std::vector<int32_t> token_ids_;  // if wanted; the owner may clear it as it sends them
  text::FinishReason finish_ = text::FinishReason::kStop;
  std::optional<int32_t> stop_token_;  // listed by the client

 private:
  text::IncrementalDecoder decoder_;
  text::OutputParser parser_;
  HeldLogprobs held_;
  bool content_seen_ = false;
  std::string_view hint_;
};

}  // namespace cedra::server

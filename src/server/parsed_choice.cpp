#include "server/parsed_choice.h"

namespace cedra::server {
namespace {

using text::OutputEvent;

constexpr std::string_view kNoAnswerHint =
    "max_tokens ended the answer while the model was still thinking, so content is empty; raise "
    "max_tokens, or turn thinking off with \"thinking\": {\"type\": \"disabled\"}";

text::ParserOptions parser_options(const Plan& plan, const ResponseIdentity& identity, size_t index,
                                   std::string_view id_prefix) {
  text::ParserOptions options = plan.parser;
  const std::string base = fmt::format("{}{}_{}", id_prefix, identity.call_id_base,
                                       plan.choices() > 1 ? std::to_string(index) + "_" : "");
  options.make_id = [base](int call) { return base + std::to_string(call); };
  return options;
}

text::OutputEnd output_end(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kLength:
      return text::OutputEnd::kLength;
    case engine::FinishReason::kCancelled:
    case engine::FinishReason::kError:
      return text::OutputEnd::kAborted;
    case engine::FinishReason::kStop:
      break;
  }
  return text::OutputEnd::kEos;
}

}  // namespace

ParsedChoice::ParsedChoice(const Plan& plan, const text::Tokenizer& tokenizer,
                           const ResponseIdentity& identity, size_t index,
                           std::string_view id_prefix)
    : plan_(&plan),
      tokenizer_(&tokenizer),
      index_(index),
      decoder_(tokenizer, true),
      parser_(parser_options(plan, identity, index, id_prefix)) {}

bool ParsedChoice::token(const engine::Token& token, std::string& out) {
  const bool reasoning = parser_.in_reasoning();
  const bool call = parser_.in_call();
  if (reasoning) ++reasoning_tokens_;
  const std::string text = decoder_.push(token.id);
  if (plan_->logprobs && !call) held_.add(token, text);
  if (plan_->return_token_ids) token_ids_.push_back(token.id);
  take(parser_.push(text), out);
  // What is still held was the markup between two parts.
  if (parser_.in_reasoning() != reasoning || parser_.in_call() != call) held_.clear();
  return !parser_.done();
}

void ParsedChoice::end(const engine::Finish& finish, std::string& out) {
  if (const std::string rest = decoder_.finish(); !rest.empty()) take(parser_.push(rest), out);
  take(parser_.finish(output_end(finish.reason)), out);
  finish_ = parser_.finish_reason();
  stop_token_ = client_stop_token(*plan_, finish);
  if (finish_ == text::FinishReason::kLength && plan_->thinking && !content_seen_ &&
      parser_.calls() == 0) {
    hint_ = kNoAnswerHint;
  }
  ended(finish, out);
}

void ParsedChoice::release(const OutputEvent& event, std::vector<LogprobEntry>& out) {
  const bool shown =
      event.kind == OutputEvent::Kind::kReasoning || event.kind == OutputEvent::Kind::kContent;
  if (event.kind == OutputEvent::Kind::kContent) content_seen_ = true;
  if (shown && plan_->logprobs) held_.shown(event.text.size(), out);
}

}  // namespace cedra::server

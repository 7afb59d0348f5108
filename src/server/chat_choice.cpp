// Chat completions: reasoning, content and tool calls through the output parser.
#include "server/choice_kinds.h"
#include "server/token_logprobs.h"
#include "text/output_parser.h"

namespace cedra::server {
namespace {

using text::OutputEvent;

constexpr std::string_view kNoAnswerHint =
    "max_tokens ended the answer while the model was still thinking, so content is empty; raise "
    "max_tokens, or turn thinking off with \"thinking\": {\"type\": \"disabled\"}";

class ChatChoice final : public Choice {
 public:
  ChatChoice(const Plan& plan, const text::Tokenizer& tokenizer, const ResponseIdentity& identity,
             size_t index)
      : plan_(&plan),
        tokenizer_(&tokenizer),
        decoder_(tokenizer, true),
        parser_(parser_options(plan, identity, index)),
        head_(event_head(plan, identity, index)),
        index_(index) {}

  void begin(std::string& out) override {
    if (!plan_->stream) return;
    open_delta(out).append(plan_->thinking
                               ? R"({"role":"assistant","content":null,"reasoning_content":""})"
                               : R"({"role":"assistant","content":""})");
    close_event(out, {}, false, {}, plan_->return_token_ids && index_ == 0);
  }

  bool token(const engine::Token& token, std::string& out) override {
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

  void end(const engine::Finish& finish, std::string& out) override {
    if (const std::string rest = decoder_.finish(); !rest.empty()) take(parser_.push(rest), out);
    take(parser_.finish(output_end(finish)), out);
    finish_ = text::finish_name(parser_.finish_reason());
    stop_token_ = client_stop_token(*plan_, finish);
    if (finish_ == "length" && message_.content.empty() && !content_seen_ && plan_->thinking &&
        message_.calls.empty() && parser_.calls() == 0) {
      hint_ = kNoAnswerHint;
    }
    if (!plan_->stream) return;
    open_delta(out).append("{}");
    close_event(out, {}, false, finish_, false);
  }

  void render(JsonWriter& json) const override {
    json.begin_object().key("index").integer(static_cast<int64_t>(index_));
    json.key("message").begin_object().key("role").string("assistant").key("content");
    if (message_.content.empty() && !message_.calls.empty()) {
      json.null();
    } else {
      json.string(message_.content);
    }
    if (plan_->thinking) json.key("reasoning_content").string(message_.reasoning);
    if (!message_.calls.empty()) {
      json.key("tool_calls").begin_array();
      for (const text::ParsedCall& call : message_.calls) {
        json.begin_object().key("id").string(call.id).key("type").string("function");
        json.key("function").begin_object().key("name").string(call.name);
        json.key("arguments").string(call.arguments).end_object().end_object();
      }
      json.end_array();
    }
    json.end_object().key("logprobs");
    write_logprobs(json, content_logprobs_, reasoning_logprobs_);
    json.key("finish_reason").string(finish_);
    write_stop_reason(json);
    if (plan_->return_token_ids) write_token_ids(json, token_ids_);
    json.end_object();
  }

  std::string_view hint() const override { return hint_; }

 private:
  static text::ParserOptions parser_options(const Plan& plan, const ResponseIdentity& identity,
                                            size_t index) {
    text::ParserOptions options = plan.parser;
    const std::string base = "call_" + identity.call_id_base + "_" +
                             (plan.choices() > 1 ? std::to_string(index) + "_" : "");
    options.make_id = [base](int call) { return base + std::to_string(call); };
    return options;
  }

  static text::OutputEnd output_end(const engine::Finish& finish) {
    switch (finish.reason) {
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

  void take(const std::vector<OutputEvent>& events, std::string& out) {
    if (!plan_->stream) {
      for (const OutputEvent& event : events) release(event, stored(event));
      message_.add(events);
      return;
    }
    for (const OutputEvent& event : events) {
      std::vector<LogprobEntry> entries;
      release(event, entries);
      write_event(event, entries, out);
    }
  }

  std::vector<LogprobEntry>& stored(const OutputEvent& event) {
    return event.kind == OutputEvent::Kind::kReasoning ? reasoning_logprobs_ : content_logprobs_;
  }

  void release(const OutputEvent& event, std::vector<LogprobEntry>& out) {
    const bool shown =
        event.kind == OutputEvent::Kind::kReasoning || event.kind == OutputEvent::Kind::kContent;
    if (event.kind == OutputEvent::Kind::kContent) content_seen_ = true;
    if (shown && plan_->logprobs) held_.shown(event.text.size(), out);
  }

  void write_event(const OutputEvent& event, const std::vector<LogprobEntry>& entries,
                   std::string& out) {
    if (event.kind == OutputEvent::Kind::kCallEnd) return;
    JsonWriter json(open_delta(out));
    json.begin_object();
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        json.key("reasoning_content").string(event.text);
        break;
      case OutputEvent::Kind::kContent:
        json.key("content").string(event.text);
        break;
      case OutputEvent::Kind::kCallStart:
        json.key("tool_calls").begin_array().begin_object().key("index").integer(event.call);
        json.key("id").string(event.id).key("type").string("function");
        json.key("function").begin_object().key("name").string(event.text);
        json.key("arguments").string("").end_object().end_object().end_array();
        break;
      case OutputEvent::Kind::kArguments:
        json.key("tool_calls").begin_array().begin_object().key("index").integer(event.call);
        json.key("function").begin_object().key("arguments").string(event.text);
        json.end_object().end_object().end_array();
        break;
      case OutputEvent::Kind::kCallEnd:
        break;
    }
    json.end_object();
    close_event(out, entries, event.kind == OutputEvent::Kind::kReasoning, {}, false);
  }

  std::string& open_delta(std::string& out) { return out.append(head_).append(",\"delta\":"); }

  // Ends the event that open_delta() began: logprobs, finish reason, brackets.
  void close_event(std::string& out, const std::vector<LogprobEntry>& entries, bool reasoning,
                   std::string_view finish, bool prompt_ids) {
    static const std::vector<LogprobEntry> kNone;
    out += ",\"logprobs\":";
    JsonWriter json(out);
    if (entries.empty()) {
      json.null();
    } else {
      write_logprobs(json, reasoning ? kNone : entries, reasoning ? entries : kNone);
    }
    json.key("finish_reason");
    if (finish.empty()) {
      json.null();
    } else {
      json.string(finish);
      write_stop_reason(json);
    }
    if (plan_->return_token_ids && !token_ids_.empty()) {
      write_token_ids(json, token_ids_);
      token_ids_.clear();
    }
    json.end_object().end_array();
    if (prompt_ids) {
      json.key("prompt_token_ids").begin_array();
      for (const int32_t id : plan_->prompts.front()) json.integer(id);
      json.end_array();
    }
    if (!finish.empty()) write_warnings(json, *plan_, hint_);
    if (plan_->include_usage) json.key("usage").null();
    json.end_object();
    out += "\n\n";
  }

  void write_logprobs(JsonWriter& json, const std::vector<LogprobEntry>& content,
                      const std::vector<LogprobEntry>& reasoning) const {
    if (!plan_->logprobs) {
      json.null();
      return;
    }
    json.begin_object().key("content");
    write_chat_logprobs(json, *tokenizer_, content);
    if (plan_->thinking) {
      json.key("reasoning_content");
      write_chat_logprobs(json, *tokenizer_, reasoning);
    }
    json.end_object();
  }

  // What ended the text, if it was the client's own stop string or token.
  void write_stop_reason(JsonWriter& json) const {
    if (!parser_.matched_stop().empty()) {
      json.key("stop_reason").string(parser_.matched_stop());
    } else if (stop_token_) {
      json.key("stop_reason").integer(*stop_token_);
    }
  }

  static void write_token_ids(JsonWriter& json, const std::vector<int32_t>& ids) {
    json.key("token_ids").begin_array();
    for (const int32_t id : ids) json.integer(id);
    json.end_array();
  }

  const Plan* plan_;
  const text::Tokenizer* tokenizer_;
  text::IncrementalDecoder decoder_;
  text::OutputParser parser_;
  std::string head_;
  size_t index_;
  HeldLogprobs held_;
  std::vector<int32_t> token_ids_;  // stream: since the last event
  bool content_seen_ = false;
  std::string_view finish_;
  std::optional<int32_t> stop_token_;
  std::string_view hint_;
  // Not streamed:
  text::ParsedMessage message_;
  std::vector<LogprobEntry> content_logprobs_;
  std::vector<LogprobEntry> reasoning_logprobs_;
};

}  // namespace

std::unique_ptr<Choice> make_chat_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                         const ResponseIdentity& identity, size_t index) {
  return std::make_unique<ChatChoice>(plan, tokenizer, identity, index);
}

}  // namespace cedra::server

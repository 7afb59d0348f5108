// Chat completions: reasoning, content and tool calls through the output parser.
#include "server/parsed_choice.h"

namespace cedra::server {
namespace {

using text::OutputEvent;

class ChatChoice final : public ParsedChoice {
 public:
  ChatChoice(const Plan& plan, const text::Tokenizer& tokenizer, const ResponseIdentity& identity,
             size_t index)
      : ParsedChoice(plan, tokenizer, identity, index, "call_"),
        head_(event_head(plan, identity, index)) {}

  void begin(std::string& out) override {
    if (!plan_->stream) return;
    JsonWriter json(open_delta(out));
    json.begin_object().key("role").string("assistant").key("content");
    if (plan_->thinking) {
      write_reasoning(json.null(), "");
    } else {
      json.string("");
    }
    json.end_object();
    close_delta(out, {}, false, {}, plan_->return_token_ids && index_ == 0);
  }

  void render(JsonWriter& json) const override {
    json.begin_object().key("index").integer(static_cast<int64_t>(index_));
    json.key("message").begin_object().key("role").string("assistant").key("content");
    if (message_.content.empty() && !message_.calls.empty()) {
      json.null();
    } else {
      json.string(message_.content);
    }
    if (plan_->thinking) write_reasoning(json, message_.reasoning);
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
    json.key("finish_reason").string(text::finish_name(finish_));
    write_stop_reason(json);
    if (plan_->return_token_ids) write_ids(json, "token_ids", token_ids_);
    json.end_object();
  }

 private:
  void take(const std::vector<OutputEvent>& events, std::string& out) override {
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

  void ended(const engine::Finish&, std::string& out) override {
    if (!plan_->stream) return;
    open_delta(out).append("{}");
    close_delta(out, {}, false, text::finish_name(finish_), false);
  }

  std::vector<LogprobEntry>& stored(const OutputEvent& event) {
    return event.kind == OutputEvent::Kind::kReasoning ? reasoning_logprobs_ : content_logprobs_;
  }

  void write_event(const OutputEvent& event, const std::vector<LogprobEntry>& entries,
                   std::string& out) {
    if (event.kind == OutputEvent::Kind::kCallEnd) return;
    JsonWriter json(open_delta(out));
    json.begin_object();
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        write_reasoning(json, event.text);
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
    close_delta(out, entries, event.kind == OutputEvent::Kind::kReasoning, {}, false);
  }

  std::string& open_delta(std::string& out) { return out.append(head_).append(",\"delta\":"); }

  // Ends the event that open_delta() began: logprobs, finish reason, brackets.
  void close_delta(std::string& out, const std::vector<LogprobEntry>& entries, bool reasoning,
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
      write_ids(json, "token_ids", token_ids_);
      token_ids_.clear();
    }
    json.end_object().end_array();
    if (prompt_ids) write_ids(json, "prompt_token_ids", plan_->prompts.front());
    close_event(json, out, *plan_, !finish.empty(), hint());
  }

  // Under the names that were asked for: what newer clients call "reasoning".
  void write_reasoning(JsonWriter& json, std::string_view text) const {
    if (plan_->reasoning_names.content) json.key("reasoning_content").string(text);
    if (plan_->reasoning_names.plain) json.key("reasoning").string(text);
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
    if (!matched_stop().empty()) {
      json.key("stop_reason").string(matched_stop());
    } else if (stop_token_) {
      json.key("stop_reason").integer(*stop_token_);
    }
  }

  std::string head_;
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

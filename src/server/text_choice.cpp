// Completions: the model's text as it is, cut at stop strings.
#include "decode/stop_strings.h"
#include "server/choice_kinds.h"
#include "server/token_logprobs.h"

namespace cedra::server {
namespace {

class TextChoice final : public Choice {
 public:
  TextChoice(const Plan& plan, const text::Tokenizer& tokenizer, const ResponseIdentity& identity,
             size_t index)
      : plan_(&plan),
        tokenizer_(&tokenizer),
        decoder_(tokenizer, true),
        stop_(plan.stop),
        head_(event_head(plan, identity, index)),
        index_(index) {}

  void begin(std::string& out) override {
    if (plan_->echo && plan_->sampling.prompt_logprobs < 0) echo({}, out);
  }

  bool token(const engine::Token& token, std::string& out) override {
    if (plan_->prompt_only) return false;
    const std::string text = decoder_.push(token.id);
    if (plan_->sampling.top_logprobs >= 0) held_.add(token, text);
    if (plan_->return_token_ids) token_ids_.push_back(token.id);
    take(stop_.push(text), out);
    return !stop_.matched();
  }

  void end(const engine::Finish& finish, std::string& out) override {
    take(stop_.push(decoder_.finish()), out);
    take(stop_.flush(), out);
    switch (finish.reason) {
      case engine::FinishReason::kStop:
        finish_ = plan_->prompt_only ? "length" : "stop";
        break;
      case engine::FinishReason::kLength:
        finish_ = stop_.matched() ? "stop" : "length";
        break;
      case engine::FinishReason::kCancelled:
      case engine::FinishReason::kError:
        finish_ = "aborted";
        break;
    }
    stop_token_ = client_stop_token(*plan_, finish);
    if (plan_->stream) write_event({}, {}, true, out);
  }

  void prompt_logprobs(std::span<const engine::Token> tokens, std::string& out) override {
    prompt_logprobs_.assign(tokens.begin(), tokens.end());
    if (plan_->echo) echo(tokens, out);
  }

  void render(JsonWriter& json) const override {
    json.begin_object().key("index").integer(static_cast<int64_t>(index_));
    json.key("text").string(text_);
    write_rest(json, logprobs_, true);
    if (plan_->prompt_logprobs) {
      json.key("prompt_logprobs");
      write_prompt_logprobs(json, *tokenizer_, prompt_logprobs_);
    }
    if (plan_->return_token_ids) {
      const auto& prompt = plan_->prompts[index_ / static_cast<size_t>(plan_->n)];
      write_ids(json, "prompt_token_ids", prompt);
      write_ids(json, "token_ids", token_ids_);
    }
    json.end_object();
  }

 private:
  // The prompt as the beginning of the answer; `tokens`: its log probabilities, if wanted.
  void echo(std::span<const engine::Token> tokens, std::string& out) {
    const size_t prompt = index_ / static_cast<size_t>(plan_->n);
    const std::vector<int32_t>& ids = plan_->prompts[prompt];
    text::IncrementalDecoder decoder(*tokenizer_, false);
    std::string text;
    for (size_t i = plan_->echo_from[prompt]; i < ids.size(); ++i) {
      const std::string piece = decoder.push(ids[i]);
      if (!tokens.empty() && plan_->sampling.top_logprobs >= 0) held_.add(tokens[i], piece, i > 0);
      text += piece;
    }
    text += decoder.finish();
    take(text, out);
  }

  void take(const std::string& text, std::string& out) {
    if (text.empty()) return;
    std::vector<LogprobEntry> entries;
    held_.shown(text.size(), entries);
    if (plan_->stream) {
      write_event(text, entries, false, out);
    } else {
      text_ += text;
      logprobs_.insert(logprobs_.end(), entries.begin(), entries.end());
    }
  }

  void write_event(std::string_view text, const std::vector<LogprobEntry>& entries, bool last,
                   std::string& out) {
    out.append(head_).append(",\"text\":");
    JsonWriter json(out);
    json.string(text);
    write_rest(json, entries, last);
    if (plan_->return_token_ids && !token_ids_.empty()) {
      write_ids(json, "token_ids", token_ids_);
      token_ids_.clear();
    }
    json.end_object().end_array();
    close_event(json, out, *plan_, last, {});
  }

  void write_rest(JsonWriter& json, const std::vector<LogprobEntry>& entries, bool last) const {
    json.key("logprobs");
    if (plan_->sampling.top_logprobs < 0 || (plan_->stream && entries.empty())) {
      json.null();
    } else {
      write_completion_logprobs(json, *tokenizer_, entries);
    }
    json.key("finish_reason");
    if (!last) {
      json.null();
      return;
    }
    json.string(finish_);
    if (stop_.matched()) {
      json.key("stop_reason").string(plan_->stop[static_cast<size_t>(stop_.matched_index())]);
    } else if (stop_token_) {
      json.key("stop_reason").integer(*stop_token_);
    }
  }

  const Plan* plan_;
  const text::Tokenizer* tokenizer_;
  text::IncrementalDecoder decoder_;
  decode::StopStrings stop_;
  std::string head_;
  size_t index_;
  HeldLogprobs held_;
  std::vector<int32_t> token_ids_;
  std::string_view finish_;
  std::optional<int32_t> stop_token_;
  std::vector<engine::Token> prompt_logprobs_;
  // Not streamed:
  std::string text_;
  std::vector<LogprobEntry> logprobs_;
};

}  // namespace

std::unique_ptr<Choice> make_text_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                         const ResponseIdentity& identity, size_t index) {
  return std::make_unique<TextChoice>(plan, tokenizer, identity, index);
}

}  // namespace cedra::server

// Anthropic messages: thinking, text and tool_use blocks, one open at a time (spec chat.md 4.6).
#include "server/error_body.h"
#include "server/parsed_choice.h"
#include "text/json_value.h"

namespace cedra::server {
namespace {

using text::OutputEvent;

// Clients send thinking back with its signature and do not look at it; neither do we.
constexpr std::string_view kSignature = "Y2VkcmE=";

class MessagesChoice final : public ParsedChoice {
 public:
  MessagesChoice(const Plan& plan, const text::Tokenizer& tokenizer,
                 const ResponseIdentity& identity)
      : ParsedChoice(plan, tokenizer, identity, 0, "toolu_"), id_(identity.id) {}

  void begin(std::string& out) override {
    if (!plan_->stream) return;
    JsonWriter json = open("message_start", out);
    json.key("message").begin_object();
    write_head(json);
    json.key("content").begin_array().end_array();
    json.key("stop_reason").null().key("stop_sequence").null().key("usage");
    // What is cached is not known yet; the last message_delta says it.
    write_usage(json, {static_cast<int64_t>(plan_->prompts.front().size()), 0, 0});
    json.end_object();
    close(json, out);
  }

  void fail(const Error& error, std::string& out) override {
    out.append("event: error\ndata: ").append(error_json(error, Api::kMessages)).append("\n\n");
  }

  void render(JsonWriter& json) const override {
    json.begin_object();
    write_head(json);
    json.key("content").begin_array();
    if (!message_.reasoning.empty()) {
      json.begin_object().key("type").string("thinking").key("thinking").string(message_.reasoning);
      json.key("signature").string(kSignature).end_object();
    }
    if (!message_.content.empty()) {
      json.begin_object().key("type").string("text").key("text").string(message_.content);
      json.end_object();
    }
    for (const text::ParsedCall& call : message_.calls) write_call(json, call);
    json.end_array();
    write_stop(json);
    json.key("usage");
    write_usage(json, usage_);
    write_warnings(json, *plan_, hint());
    json.end_object();
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kCall };

  void take(const std::vector<OutputEvent>& events, std::string& out) override {
    for (const OutputEvent& event : events) {
      std::vector<LogprobEntry> none;
      release(event, none);
    }
    if (!plan_->stream) {
      message_.add(events);
      return;
    }
    for (const OutputEvent& event : events) write_event(event, out);
  }

  void ended(const engine::Finish& finish, std::string& out) override {
    usage_ = finish.usage;
    if (!plan_->stream) return;
    end_block(out);
    JsonWriter json = open("message_delta", out);
    json.key("delta").begin_object();
    write_stop(json);
    json.end_object().key("usage");
    write_usage(json, usage_);
    write_warnings(json, *plan_, hint());
    close(json, out);
    JsonWriter last = open("message_stop", out);
    close(last, out);
  }

  void write_event(const OutputEvent& event, std::string& out) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        start_block(Block::kThinking, event, out);
        write_delta("thinking_delta", "thinking", event.text, out);
        break;
      case OutputEvent::Kind::kContent:
        start_block(Block::kText, event, out);
        write_delta("text_delta", "text", event.text, out);
        break;
      case OutputEvent::Kind::kCallStart:
        end_block(out);
        start_block(Block::kCall, event, out);
        break;
      case OutputEvent::Kind::kArguments:
        write_delta("input_json_delta", "partial_json", event.text, out);
        break;
      case OutputEvent::Kind::kCallEnd:
        end_block(out);
        break;
    }
  }

  void start_block(Block block, const OutputEvent& event, std::string& out) {
    if (block_ == block) return;
    end_block(out);
    block_ = block;
    JsonWriter json = open("content_block_start", out);
    json.key("index").integer(blocks_).key("content_block").begin_object().key("type");
    if (block == Block::kThinking) {
      json.string("thinking").key("thinking").string("").key("signature").string("");
    } else if (block == Block::kText) {
      json.string("text").key("text").string("");
    } else {
      json.string("tool_use").key("id").string(event.id).key("name").string(event.text);
      json.key("input").begin_object().end_object();
    }
    json.end_object();
    close(json, out);
    if (blocks_ == 0) out += keep_alive_event(Api::kMessages);
  }

  void end_block(std::string& out) {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking) write_delta("signature_delta", "signature", kSignature, out);
    JsonWriter json = open("content_block_stop", out);
    json.key("index").integer(blocks_);
    close(json, out);
    block_ = Block::kNone;
    ++blocks_;
  }

  void write_delta(std::string_view type, std::string_view key, std::string_view text,
                   std::string& out) {
    JsonWriter json = open("content_block_delta", out);
    json.key("index").integer(blocks_).key("delta").begin_object().key("type").string(type);
    json.key(key).string(text).end_object();
    close(json, out);
  }

  // An event up to its own members, and its end.
  static JsonWriter open(std::string_view type, std::string& out) {
    out.append("event: ").append(type).append("\ndata: ");
    JsonWriter json(out);
    json.begin_object().key("type").string(type);
    return json;
  }
  static void close(JsonWriter& json, std::string& out) {
    json.end_object();
    out += "\n\n";
  }

  void write_head(JsonWriter& json) const {
    json.key("id").string(id_).key("type").string("message").key("role").string("assistant");
    json.key("model").string(plan_->model);
  }

  void write_stop(JsonWriter& json) const {
    json.key("stop_reason");
    if (finish_ == text::FinishReason::kToolCalls) {
      json.string("tool_use");
    } else if (finish_ == text::FinishReason::kLength) {
      json.string("max_tokens");
    } else {
      json.string(matched_stop().empty() ? "end_turn" : "stop_sequence");
    }
    json.key("stop_sequence");
    if (matched_stop().empty()) {
      json.null();
    } else {
      json.string(matched_stop());
    }
  }

  // A call that max_tokens cut off is left out: its input would be no JSON.
  static void write_call(JsonWriter& json, const text::ParsedCall& call) {
    const Result<text::JsonValue> input = text::JsonReader().read(call.arguments);
    if (!input || !input->is_object()) return;
    json.begin_object().key("type").string("tool_use").key("id").string(call.id);
    json.key("name").string(call.name).key("input").raw(call.arguments).end_object();
  }

  static void write_usage(JsonWriter& json, const engine::Usage& usage) {
    json.begin_object().key("input_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
    json.key("cache_creation_input_tokens").integer(0);
    json.key("cache_read_input_tokens").integer(usage.cached_tokens);
    json.key("output_tokens").integer(usage.completion_tokens).end_object();
  }

  std::string id_;
  Block block_ = Block::kNone;
  int64_t blocks_ = 0;  // ended so far: the index of the open one
  engine::Usage usage_;
  text::ParsedMessage message_;  // not streamed
};

}  // namespace

std::unique_ptr<Choice> make_messages_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                             const ResponseIdentity& identity) {
  return std::make_unique<MessagesChoice>(plan, tokenizer, identity);
}

}  // namespace cedra::server

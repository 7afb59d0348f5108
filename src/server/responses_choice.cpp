// OpenAI responses: output items one after the other, each event with its number (spec chat.md
// 4.5). Deltas go out at once; the `.done` events repeat the whole.
#include "server/error_body.h"
#include "server/parsed_choice.h"
#include "text/chat_json.h"

namespace cedra::server {
namespace {

using text::OutputEvent;

enum class Item : uint8_t { kNone, kReasoning, kText, kCall };

// An item of the output, open or finished.
struct OutputItem {
  Item kind = Item::kNone;
  std::string id;
  std::string text;     // reasoning, content, or a call's arguments
  std::string call_id;  // calls
  std::string name;     // calls, as the model knows the tool
  const text::ToolDefinition* tool = nullptr;
  std::vector<LogprobEntry> logprobs;  // content
  bool cut = false;                    // max_output_tokens ended it

  bool custom() const { return tool != nullptr && tool->custom; }
};

class ResponsesChoice final : public ParsedChoice {
 public:
  ResponsesChoice(const Plan& plan, const text::Tokenizer& tokenizer,
                  const ResponseIdentity& identity)
      : ParsedChoice(plan, tokenizer, identity, 0, "call_"), identity_(&identity) {}

  void begin(std::string& out) override {
    for (const char* type : {"response.created", "response.in_progress"}) {
      write_response_event(type, "in_progress", nullptr, out);
    }
  }

  void fail(const Error& error, std::string& out) override {
    write_response_event("response.failed", "failed", &error, out);
  }

  void render(JsonWriter& json) const override { write_response(json, status(), nullptr); }

 private:
  void take(const std::vector<OutputEvent>& events, std::string& out) override {
    for (const OutputEvent& event : events) {
      switch (event.kind) {
        case OutputEvent::Kind::kReasoning:
          add_text(Item::kReasoning, event, out);
          break;
        case OutputEvent::Kind::kContent:
          add_text(Item::kText, event, out);
          break;
        case OutputEvent::Kind::kCallStart:
          finish_item(out);
          start_item(Item::kCall, event, out);
          break;
        case OutputEvent::Kind::kArguments:
          items_.back().text += event.text;
          // A free text arrives wrapped in JSON: it is sent when it can be unwrapped.
          if (!items_.back().custom()) {
            write_delta("response.function_call_arguments.delta", event.text, {}, out);
          }
          break;
        case OutputEvent::Kind::kCallEnd:
          finish_item(out);
          break;
      }
    }
  }

  void ended(const engine::Finish& finish, std::string& out) override {
    usage_ = finish.usage;
    complete_ = finish_ != text::FinishReason::kLength;
    if (open_ != Item::kNone) items_.back().cut = !complete_;
    finish_item(out);
    if (plan_->keep) {
      std::string body;
      JsonWriter json(body);
      render(json);
      plan_->keep(identity_->id, message(), std::move(body));
    }
    write_response_event(complete_ ? "response.completed" : "response.incomplete", status(),
                         nullptr, out);
  }

  void add_text(Item kind, const OutputEvent& event, std::string& out) {
    if (open_ != kind) {
      finish_item(out);
      start_item(kind, event, out);
    }
    std::vector<LogprobEntry> entries;
    release(event, entries);
    items_.back().text += event.text;
    write_delta(kind == Item::kText                  ? "response.output_text.delta"
                : plan_->responses.reasoning_summary ? "response.reasoning_summary_text.delta"
                                                     : "response.reasoning_text.delta",
                event.text, entries, out);
    auto& kept = items_.back().logprobs;
    if (kind == Item::kText) kept.insert(kept.end(), entries.begin(), entries.end());
  }

  void start_item(Item kind, const OutputEvent& event, std::string& out) {
    open_ = kind;
    OutputItem item;
    item.kind = kind;
    const std::string number = fmt::format("{}_{}", identity_->call_id_base, items_.size());
    if (kind == Item::kCall) {
      item.call_id = event.id;
      item.name = event.text;
      for (const text::ToolDefinition& tool : plan_->parser.tools) {
        if (tool.name == item.name) item.tool = &tool;
      }
      item.id = (item.custom() ? "ctc_" : "fc_") + number;
    } else {
      item.id = (kind == Item::kText ? "msg_" : "rs_") + number;
    }
    items_.push_back(std::move(item));
    if (!plan_->stream) return;
    write_item_event("response.output_item.added", true, out);
    if (kind != Item::kCall) write_part_event("added", "", out);
  }

  void finish_item(std::string& out) {
    if (open_ == Item::kNone) return;
    const OutputItem& item = items_.back();
    if (plan_->stream && open_ == Item::kCall) {
      write_call_done(item, out);
    } else if (plan_->stream) {
      write_text_done(item, out);
      write_part_event("done", item.text, out);
    }
    open_ = Item::kNone;
    if (plan_->stream) write_item_event("response.output_item.done", false, out);
  }

  void write_call_done(const OutputItem& item, std::string& out) {
    if (item.custom()) {
      const std::string input = custom_input(item);
      write_delta("response.custom_tool_call_input.delta", input, {}, out);
      JsonWriter json = open_item_event("response.custom_tool_call_input.done", out);
      json.key("input").string(input);
      close_event(json, out);
      return;
    }
    JsonWriter json = open_item_event("response.function_call_arguments.done", out);
    json.key("name").string(client_name(item)).key("arguments").string(item.text);
    close_event(json, out);
  }

  void write_text_done(const OutputItem& item, std::string& out) {
    const bool text = item.kind == Item::kText;
    JsonWriter json = open_item_event(text ? "response.output_text.done"
                                      : plan_->responses.reasoning_summary
                                          ? "response.reasoning_summary_text.done"
                                          : "response.reasoning_text.done",
                                      out);
    write_part_index(json);
    json.key("text").string(item.text);
    if (text) write_logprobs(json, item.logprobs);
    close_event(json, out);
  }

  void write_delta(std::string_view type, std::string_view delta,
                   const std::vector<LogprobEntry>& entries, std::string& out) {
    if (!plan_->stream) return;
    JsonWriter json = open_item_event(type, out);
    if (open_ != Item::kCall) write_part_index(json);
    json.key("delta").string(delta);
    if (open_ == Item::kText) write_logprobs(json, entries);
    close_event(json, out);
  }

  // content_part or reasoning_summary_part, added or done.
  void write_part_event(std::string_view what, std::string_view text, std::string& out) {
    const bool summary = open_ == Item::kReasoning && plan_->responses.reasoning_summary;
    JsonWriter json = open_item_event(
        fmt::format("response.{}_part.{}", summary ? "reasoning_summary" : "content", what), out);
    write_part_index(json);
    json.key("part");
    write_part(json, open_, text, what == "done" ? items_.back().logprobs : kNoEntries);
    close_event(json, out);
  }

  void write_part_index(JsonWriter& json) const {
    const bool summary = open_ == Item::kReasoning && plan_->responses.reasoning_summary;
    json.key(summary ? "summary_index" : "content_index").integer(0);
  }

  void write_part(JsonWriter& json, Item kind, std::string_view text,
                  const std::vector<LogprobEntry>& entries) const {
    json.begin_object().key("type");
    if (kind == Item::kText) {
      json.string("output_text").key("annotations").begin_array().end_array();
      write_logprobs(json, entries);
    } else {
      json.string(plan_->responses.reasoning_summary ? "summary_text" : "reasoning_text");
    }
    json.key("text").string(text).end_object();
  }

  void write_logprobs(JsonWriter& json, const std::vector<LogprobEntry>& entries) const {
    json.key("logprobs");
    write_chat_logprobs(json, *tokenizer_, entries);
  }

  void write_item_event(std::string_view type, bool opening, std::string& out) {
    JsonWriter json = open_event(type, out);
    json.key("output_index").integer(std::ssize(items_) - 1).key("item");
    write_item(json, items_.back(), opening);
    close_event(json, out);
  }

  void write_item(JsonWriter& json, const OutputItem& item, bool opening) const {
    json.begin_object().key("id").string(item.id).key("type");
    switch (item.kind) {
      case Item::kReasoning:
        json.string("reasoning");
        write_reasoning(json, item, opening);
        break;
      case Item::kText:
        json.string("message").key("role").string("assistant").key("content").begin_array();
        if (!opening) write_part(json, item.kind, item.text, item.logprobs);
        json.end_array();
        break;
      case Item::kCall:
        json.string(item.custom() ? "custom_tool_call" : "function_call");
        json.key("call_id").string(item.call_id).key("name").string(client_name(item));
        if (item.tool != nullptr && !item.tool->space.empty()) {
          json.key("namespace").string(item.tool->space);
        }
        if (item.custom()) {
          json.key("input").string(opening ? "" : custom_input(item));
        } else {
          json.key("arguments").string(opening ? "" : item.text);
        }
        break;
      case Item::kNone:
        break;
    }
    json.key("status").string(opening ? "in_progress" : item.cut ? "incomplete" : "completed");
    json.end_object();
  }

  void write_reasoning(JsonWriter& json, const OutputItem& item, bool opening) const {
    const bool summary = plan_->responses.reasoning_summary;
    json.key("summary").begin_array();
    if (!opening && summary) write_part(json, item.kind, item.text, kNoEntries);
    json.end_array().key("content").begin_array();
    if (!opening && !summary) write_part(json, item.kind, item.text, kNoEntries);
    json.end_array().key("encrypted_content");
    if (plan_->responses.encrypted_reasoning && !opening) {
      json.string(std::string(text::kReasoningMark) + item.text);
    } else {
      json.null();
    }
  }

  std::string_view client_name(const OutputItem& item) const {
    const bool spaced = item.tool != nullptr && !item.tool->space.empty();
    return spaced ? std::string_view(item.tool->short_name) : std::string_view(item.name);
  }

  static std::string custom_input(const OutputItem& item) {
    return text::custom_tool_input(item.text).value_or(item.text);
  }

  const char* status() const { return complete_ ? "completed" : "incomplete"; }

  void write_response_event(std::string_view type, const char* status, const Error* error,
                            std::string& out) {
    if (!plan_->stream) return;
    JsonWriter json = open_event(type, out);
    json.key("response");
    write_response(json, status, error);
    close_event(json, out);
  }

  void write_response(JsonWriter& json, std::string_view status, const Error* error) const {
    const bool done = status == "completed" || status == "incomplete";
    json.begin_object().key("id").string(identity_->id).key("object").string("response");
    json.key("created_at").integer(identity_->created).key("status").string(status);
    json.key("background").boolean(false).key("error");
    if (error != nullptr) {
      json.begin_object().key("code").string("server_error").key("message").string(error->message);
      json.end_object();
    } else {
      json.null();
    }
    json.key("incomplete_details");
    if (status == "incomplete") {
      json.begin_object().key("reason").string("max_output_tokens").end_object();
    } else {
      json.null();
    }
    json.key("model").string(plan_->model);
    write_echo(json);
    json.key("output").begin_array();
    if (done) {
      for (const OutputItem& item : items_) write_item(json, item, false);
    }
    json.end_array().key("usage");
    if (done) {
      write_usage(json);
    } else {
      json.null();
    }
    write_warnings(json, *plan_, done ? hint() : std::string_view());
    json.end_object();
  }

  // What the request said, or what counts where it said nothing.
  void write_echo(JsonWriter& json) const {
    static constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"previous_response_id", "null"},
        {"reasoning", R"({"effort":null,"summary":null})"},
        {"store", "true"},
        {"text", R"({"format":{"type":"text"}})"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"}};
    for (const auto& [key, fallback] : kDefaults) {
      std::string_view value = fallback;
      for (const auto& [name, said] : plan_->responses.echo) {
        if (name == key) value = said;
      }
      json.key(key).raw(value);
    }
    json.key("temperature").number(static_cast<float>(plan_->sampling.temperature));
    json.key("top_p").number(static_cast<float>(plan_->sampling.top_p));
    json.key("top_logprobs").integer(std::max(plan_->sampling.top_logprobs, 0));
    json.key("truncation").string("disabled");
  }

  void write_usage(JsonWriter& json) const {
    json.begin_object().key("input_tokens").integer(usage_.prompt_tokens);
    json.key("input_tokens_details").begin_object().key("cached_tokens");
    json.integer(usage_.cached_tokens).end_object();
    json.key("output_tokens").integer(usage_.completion_tokens);
    json.key("output_tokens_details").begin_object().key("reasoning_tokens");
    json.integer(reasoning_tokens()).end_object();
    json.key("total_tokens").integer(usage_.prompt_tokens + usage_.completion_tokens).end_object();
  }

  // The answer as the next request's history has it.
  text::Message message() const {
    text::Message out;
    out.role = text::Role::kAssistant;
    for (const OutputItem& item : items_) {
      if (item.kind == Item::kReasoning) {
        out.reasoning += item.text;
      } else if (item.kind == Item::kText) {
        out.content.push_back({text::ContentPart::Kind::kText, item.text});
      } else {
        out.tool_calls.push_back({item.call_id, item.name, item.text});
      }
    }
    return out;
  }

  JsonWriter open_event(std::string_view type, std::string& out) {
    out.append("event: ").append(type).append("\ndata: ");
    JsonWriter json(out);
    json.begin_object().key("type").string(type).key("sequence_number").integer(sequence_++);
    return json;
  }
  JsonWriter open_item_event(std::string_view type, std::string& out) {
    JsonWriter json = open_event(type, out);
    json.key("item_id").string(items_.back().id);
    json.key("output_index").integer(std::ssize(items_) - 1);
    return json;
  }
  static void close_event(JsonWriter& json, std::string& out) {
    json.end_object();
    out += "\n\n";
  }

  static inline const std::vector<LogprobEntry> kNoEntries;

  const ResponseIdentity* identity_;
  std::vector<OutputItem> items_;
  Item open_ = Item::kNone;
  int64_t sequence_ = 0;
  bool complete_ = true;
  engine::Usage usage_;
};

}  // namespace

std::unique_ptr<Choice> make_responses_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                              const ResponseIdentity& identity) {
  return std::make_unique<ResponsesChoice>(plan, tokenizer, identity);
}

}  // namespace cedra::server

// Bodies and usage. The kinds of choices are in chat_choice.cpp, text_choice.cpp,
// messages_choice.cpp and responses_choice.cpp.
#include "server/choice.h"

#include <algorithm>

#include "server/choice_kinds.h"
#include "server/error_body.h"

namespace cedra::server {

std::unique_ptr<Choice> Choice::make(const Plan& plan, const text::Tokenizer& tokenizer,
                                     const ResponseIdentity& identity, size_t index) {
  switch (plan.api) {
    case Api::kCompletions:
      return make_text_choice(plan, tokenizer, identity, index);
    case Api::kMessages:
      return make_messages_choice(plan, tokenizer, identity);
    case Api::kResponses:
      return make_responses_choice(plan, tokenizer, identity);
    case Api::kChat:
      break;
  }
  return make_chat_choice(plan, tokenizer, identity, index);
}

void Choice::fail(const Error& error, std::string& out) {
  out.append("data: ").append(error_json(error)).append("\n\n");
}

void write_head(JsonWriter& json, const Plan& plan, const ResponseIdentity& identity) {
  const bool chat = plan.api == Api::kChat;
  const char* object = !chat         ? "text_completion"
                       : plan.stream ? "chat.completion.chunk"
                                     : "chat.completion";
  json.key("id").string(identity.id).key("object").string(object);
  json.key("created").integer(identity.created).key("model").string(plan.model);
}

std::string event_head(const Plan& plan, const ResponseIdentity& identity, size_t index) {
  std::string out = "data: ";
  JsonWriter json(out);
  json.begin_object();
  write_head(json, plan, identity);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(static_cast<int64_t>(index));
  return out;
}

void write_usage(JsonWriter& json, const ResponseUsage& usage, bool chat) {
  json.begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens).end_object();
  if (chat) {
    json.key("completion_tokens_details").begin_object();
    json.key("reasoning_tokens").integer(usage.reasoning_tokens).end_object();
  }
  json.key("prompt_cache_hit_tokens").integer(usage.cached_tokens);
  json.key("prompt_cache_miss_tokens").integer(usage.prompt_tokens - usage.cached_tokens);
  if (usage.drafts.drafted > 0) {
    json.key("draft_tokens_details").begin_object();
    json.key("drafted_tokens").integer(usage.drafts.drafted);
    json.key("verified_tokens").integer(usage.drafts.verified);
    json.key("accepted_tokens").integer(usage.drafts.accepted);
    json.key("verified_blocks").integer(usage.drafts.blocks).end_object();
  }
  json.end_object();
}

void append_stream_end(std::string& out, const Plan& plan, const ResponseIdentity& identity,
                       const ResponseUsage& usage) {
  if (plan.api != Api::kChat && plan.api != Api::kCompletions) return;
  if (plan.include_usage) {
    out += "data: ";
    JsonWriter json(out);
    json.begin_object();
    write_head(json, plan, identity);
    json.key("choices").begin_array().end_array().key("usage");
    write_usage(json, usage, plan.api == Api::kChat);
    json.end_object();
    out += "\n\n";
  }
  out += "data: [DONE]\n\n";
}

std::string_view keep_alive_event(Api api) {
  if (api == Api::kMessages) return "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  return ": keep-alive\n\n";
}

void write_ids(JsonWriter& json, std::string_view name, const std::vector<int32_t>& ids) {
  json.key(name).begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

void close_event(JsonWriter& json, std::string& out, const Plan& plan, bool last,
                 std::string_view hint) {
  if (last) write_warnings(json, plan, hint);
  if (plan.include_usage) json.key("usage").null();
  json.end_object();
  out += "\n\n";
}

std::optional<int32_t> client_stop_token(const Plan& plan, const engine::Finish& finish) {
  const std::vector<int32_t>& ids = plan.sampling.stop_token_ids;
  const bool listed =
      finish.stop_token && std::find(ids.begin(), ids.end(), *finish.stop_token) != ids.end();
  return listed ? finish.stop_token : std::nullopt;
}

void write_warnings(JsonWriter& json, const Plan& plan, std::string_view hint) {
  if (plan.warnings.empty() && hint.empty()) return;
  json.key("warnings").begin_array();
  for (const std::string& warning : plan.warnings) json.string(warning);
  if (!hint.empty()) json.string(hint);
  json.end_array();
}

std::string render_response(const Plan& plan, const ResponseIdentity& identity,
                            std::span<const std::unique_ptr<Choice>> choices,
                            const ResponseUsage& usage) {
  std::string out;
  JsonWriter json(out);
  if (plan.api == Api::kMessages || plan.api == Api::kResponses) {
    choices.front()->render(json);
    return out;
  }
  json.begin_object();
  write_head(json, plan, identity);
  json.key("choices").begin_array();
  std::string_view hint;
  for (const auto& choice : choices) {
    choice->render(json);
    if (hint.empty()) hint = choice->hint();
  }
  json.end_array().key("usage");
  write_usage(json, usage, plan.api == Api::kChat);
  if (plan.return_token_ids && plan.api == Api::kChat) {
    write_ids(json, "prompt_token_ids", plan.prompts.front());
  }
  write_warnings(json, plan, hint);
  json.end_object();
  return out;
}

}  // namespace cedra::server

// Bodies and usage. The two kinds of choices are in chat_choice.cpp and text_choice.cpp.
#include "server/choice.h"

#include <algorithm>

#include "server/choice_kinds.h"

namespace cedra::server {

std::unique_ptr<Choice> Choice::make(const Plan& plan, const text::Tokenizer& tokenizer,
                                     const ResponseIdentity& identity, size_t index) {
  if (plan.chat) return make_chat_choice(plan, tokenizer, identity, index);
  return make_text_choice(plan, tokenizer, identity, index);
}

void write_head(JsonWriter& json, const Plan& plan, const ResponseIdentity& identity) {
  const char* object = !plan.chat    ? "text_completion"
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
  json.end_object();
}

void append_usage_event(std::string& out, const Plan& plan, const ResponseIdentity& identity,
                        const ResponseUsage& usage) {
  out += "data: ";
  JsonWriter json(out);
  json.begin_object();
  write_head(json, plan, identity);
  json.key("choices").begin_array().end_array().key("usage");
  write_usage(json, usage, plan.chat);
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
  json.begin_object();
  write_head(json, plan, identity);
  json.key("choices").begin_array();
  std::string_view hint;
  for (const auto& choice : choices) {
    choice->render(json);
    if (hint.empty()) hint = choice->hint();
  }
  json.end_array().key("usage");
  write_usage(json, usage, plan.chat);
  if (plan.return_token_ids && plan.chat) {
    json.key("prompt_token_ids").begin_array();
    for (const int32_t id : plan.prompts.front()) json.integer(id);
    json.end_array();
  }
  write_warnings(json, plan, hint);
  json.end_object();
  return out;
}

}  // namespace cedra::server

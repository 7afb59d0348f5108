// Defaults and clipping are here; the fields' own rules are checked where they are read.
#include "server/plan.h"

#include <algorithm>
#include <iterator>

#include "server/error_body.h"
#include "server/structured_output.h"
#include "text/special_tokens.h"

namespace cedra::server {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // what OpenAI's route has

Result<std::string> model_name(const std::string& asked, const ModelContext& model) {
  if (asked.empty()) return model.names.front();
  if (std::find(model.names.begin(), model.names.end(), asked) != model.names.end()) return asked;
  return err(Code::kNotFound, "model \"{}\" does not exist here; served is \"{}\"",
             asked.substr(0, 200), model.names.front());
}

// `fallback`: max_tokens where the request has none; 0 = the rest of the context.
Result<engine::SamplingParams> sampling_of(const text::RequestFields& fields, int64_t fallback,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const ModelContext& model) {
  const engine::Info& info = model.info;
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const int64_t room = info.context_length - static_cast<int64_t>(longest);
  if (room < 1) {
    return err(
        Code::kTooLarge,
        "{}: {} tokens > {} maximum; the maximum context length is {} tokens, of which at least "
        "one is needed for the answer",
        kPromptTooLong, longest, info.context_length - 1, info.context_length);
  }
  engine::SamplingParams out;
  const engine::SamplingParams& defaults = model.defaults;
  out.temperature = fields.temperature.value_or(defaults.temperature);
  out.top_p = fields.top_p.value_or(defaults.top_p);
  out.top_k = std::max<int64_t>(fields.top_k.value_or(defaults.top_k), 0);  // -1 is off, too
  out.min_p = fields.min_p.value_or(0);
  out.repetition_penalty = fields.repetition_penalty.value_or(1);
  out.frequency_penalty = fields.frequency_penalty.value_or(0);
  out.presence_penalty = fields.presence_penalty.value_or(0);
  if (fields.seed) out.seed = static_cast<uint64_t>(*fields.seed);
  for (const auto& [id, bias] : fields.logit_bias) {
    out.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  out.stop_token_ids = fields.stop_token_ids;
  // 0: of the prompt alone; the engine makes one token in any case.
  const int64_t wanted =
      std::max<int64_t>(fields.max_tokens.value_or(fallback > 0 ? fallback : room), 1);
  out.max_tokens = std::min(wanted, room);
  out.min_tokens = fields.min_tokens.value_or(0);
  if (out.min_tokens > wanted) {
    return err(Code::kInvalid, "min_tokens is {}, more than max_tokens ({})", out.min_tokens,
               wanted);
  }
  out.min_tokens = std::min(out.min_tokens, out.max_tokens);
  out.ignore_eos = fields.ignore_eos;
  return out;
}

Result<EncodedPrompt> encode_prompt(const text::Prompt& prompt, const ModelContext& model) {
  return model.images->encode(prompt, *model.tokenizer);
}

Result<> check_ids(const std::vector<int32_t>& ids, const char* name, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id >= vocab_size) {
      return err(Code::kInvalid, "{}: token id {} is outside the vocabulary (0 to {})", name, id,
                 vocab_size - 1);
    }
  }
  return {};
}

text::RequestRules request_rules(const ModelContext& model) {
  text::RequestRules rules;
  rules.efforts = text::effort_table(model.names.front());
  rules.default_thinking = model.default_thinking;
  rules.strict_image_placeholder = model.strict_image_placeholder;
  return rules;
}

// What the routes that take a conversation have in common.
Result<Plan> plan_conversation(const text::ParsedRequest& request, Api api,
                               const ModelContext& model) {
  const text::RequestFields& fields = request.fields;
  CEDRA_TRY(check_fields(fields, 1, model.limits));
  Plan plan;
  plan.api = api;
  CEDRA_ASSIGN(plan.model, model_name(fields.model, model));
  CEDRA_ASSIGN(const text::Prompt prompt, text::encode_chat(request.conversation, request.options));
  CEDRA_ASSIGN(EncodedPrompt encoded, encode_prompt(prompt, model));
  plan.prompts.push_back(std::move(encoded.ids));
  plan.images = std::move(encoded.images);
  CEDRA_ASSIGN(plan.sampling, sampling_of(fields, 0, plan.prompts, model));
  CEDRA_ASSIGN(plan.sampling.grammar, answer_grammar(request, prompt, model.grammars));
  plan.stream = fields.stream;
  plan.thinking = request.options.thinking;
  plan.priority = static_cast<int>(std::clamp<int64_t>(fields.priority, -1'000'000, 1'000'000));
  plan.cache_salt = fields.cache_salt;
  plan.parser.start = prompt.start;
  plan.parser.tools = prompt.tools;
  plan.parser.stop = fields.stop;
  plan.parser.max_calls = fields.parallel_tool_calls ? 0 : 1;
  plan.ignored = request.ignored;
  plan.warnings = request.warnings;
  plan.warnings.insert(plan.warnings.end(), prompt.warnings.begin(), prompt.warnings.end());
  return plan;
}

}  // namespace

Result<Plan> plan_chat(std::string_view body, const ModelContext& model) {
  CEDRA_ASSIGN(const text::ParsedRequest request,
               text::parse_request(text::Route::kChatCompletions, body, request_rules(model)));
  CEDRA_ASSIGN(Plan plan, plan_conversation(request, Api::kChat, model));
  const text::RequestFields& fields = request.fields;
  plan.logprobs = fields.logprobs;
  if (fields.logprobs) plan.sampling.top_logprobs = static_cast<int>(fields.top_logprobs);
  plan.include_usage = fields.include_usage.value_or(false);
  plan.return_token_ids = fields.return_token_ids;
  plan.n = fields.n;
  plan.reasoning_names = model.reasoning_names;
  return plan;
}

Result<Plan> plan_messages(std::string_view body, const ModelContext& model) {
  CEDRA_ASSIGN(const text::ParsedRequest request,
               text::parse_request(text::Route::kMessages, body, request_rules(model)));
  return plan_conversation(request, Api::kMessages, model);
}

Result<Plan> plan_responses(std::string_view body, const ModelContext& model,
                            text::PreviousResponse previous) {
  text::RequestRules rules = request_rules(model);
  rules.previous_response = std::move(previous);
  CEDRA_ASSIGN(text::ParsedRequest request,
               text::parse_request(text::Route::kResponses, body, rules));
  CEDRA_ASSIGN(Plan plan, plan_conversation(request, Api::kResponses, model));
  plan.logprobs = request.fields.logprobs;
  if (plan.logprobs) plan.sampling.top_logprobs = static_cast<int>(request.fields.top_logprobs);
  plan.responses = std::move(request.responses);
  if (plan.responses.store) {
    auto& messages = request.conversation.messages;
    const auto own = static_cast<ptrdiff_t>(plan.responses.instructions);
    plan.history.assign(std::make_move_iterator(messages.begin() + own),
                        std::make_move_iterator(messages.end()));
  }
  return plan;
}

Result<Plan> plan_completion(std::string_view body, const ModelContext& model) {
  CEDRA_ASSIGN(const CompletionRequest request, parse_completion(body, model.limits));
  const text::RequestFields& fields = request.fields;
  Plan plan;
  plan.api = Api::kCompletions;
  CEDRA_ASSIGN(plan.model, model_name(fields.model, model));
  for (const CompletionPrompt& prompt : request.prompts) {
    std::vector<int32_t> ids = prompt.ids;
    if (!prompt.is_ids) {
      const text::Prompt encoded =
          request.suffix ? text::fim_prompt(prompt.text, *request.suffix)
                         : text::completion_prompt(prompt.text, request.add_special_tokens);
      ids = model.tokenizer->encode(std::span<const text::Segment>(encoded.segments));
    }
    if (ids.empty()) return err(Code::kInvalid, "prompt is empty");
    const bool bos_added =
        !prompt.is_ids && request.add_special_tokens && !prompt.text.starts_with(text::kBosText);
    plan.echo_from.push_back(bos_added ? 1 : 0);
    CEDRA_TRY(check_ids(ids, "prompt", model.info.vocab_size));
    plan.prompts.push_back(std::move(ids));
  }
  CEDRA_ASSIGN(plan.sampling, sampling_of(fields, kDefaultCompletionTokens, plan.prompts, model));
  CEDRA_ASSIGN(plan.sampling.grammar, completion_grammar(request.structured, model.grammars));
  plan.sampling.top_logprobs = request.logprobs;
  plan.echo = request.echo;
  plan.prompt_logprobs = request.prompt_logprobs >= 0;
  plan.prompt_only = fields.max_tokens == 0;
  // Who wants the prompt back and log probabilities wants the prompt's as well.
  plan.sampling.prompt_logprobs =
      request.echo ? std::max(request.prompt_logprobs, request.logprobs) : request.prompt_logprobs;
  plan.ignored = request.ignored;
  plan.stream = fields.stream;
  plan.include_usage = fields.include_usage.value_or(false);
  plan.return_token_ids = fields.return_token_ids;
  plan.n = fields.n;
  plan.priority = static_cast<int>(fields.priority);
  plan.cache_salt = fields.cache_salt;
  plan.stop = fields.stop;
  return plan;
}

Result<TokenizePlan> plan_tokenize(std::string_view body, const ModelContext& model) {
  CEDRA_ASSIGN(const TokenizeRequest request, parse_tokenize(body));
  TokenizePlan out;
  out.with_strings = request.return_token_strs;
  if (request.prompt) {
    const text::Prompt prompt =
        text::completion_prompt(*request.prompt, request.add_special_tokens);
    out.ids = model.tokenizer->encode(std::span<const text::Segment>(prompt.segments));
    return out;
  }
  CEDRA_ASSIGN(const text::ParsedRequest chat,
               text::parse_request(text::Route::kChatCompletions, body, request_rules(model)));
  CEDRA_ASSIGN(const text::Prompt prompt, text::encode_chat(chat.conversation, chat.options));
  CEDRA_ASSIGN(EncodedPrompt encoded, encode_prompt(prompt, model));
  out.ids = std::move(encoded.ids);
  return out;
}

Result<int64_t> plan_count(std::string_view body, const ModelContext& model) {
  text::RequestRules rules = request_rules(model);
  rules.count_only = true;
  CEDRA_ASSIGN(const text::ParsedRequest request,
               text::parse_request(text::Route::kMessages, body, rules));
  CEDRA_TRY(model_name(request.fields.model, model));
  CEDRA_ASSIGN(const text::Prompt prompt, text::encode_chat(request.conversation, request.options));
  CEDRA_ASSIGN(const EncodedPrompt encoded, encode_prompt(prompt, model));
  return static_cast<int64_t>(encoded.ids.size());
}

Result<std::vector<int32_t>> plan_detokenize(std::string_view body, const ModelContext& model) {
  CEDRA_ASSIGN(std::vector<int32_t> ids, parse_detokenize(body));
  CEDRA_TRY(check_ids(ids, "tokens", model.info.vocab_size));
  return ids;
}

}  // namespace cedra::server

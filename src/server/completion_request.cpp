// Field by field; null counts as absent, unknown fields are ignored.
#include "server/completion_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/json_value.h"

namespace cedra::server {
namespace {

using text::JsonValue;

// Reads typed fields of one object; the first wrong one is the error.
class Fields {
 public:
  explicit Fields(const JsonValue& object) : object_(&object) {}

  const JsonValue* find(std::string_view name) const {
    const JsonValue* value = object_->find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  Result<> boolean(std::string_view name, bool& out) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_bool()) return wrong(name, "a boolean", *value);
    out = value->as_bool();
    return {};
  }

  Result<> text(std::string_view name, std::optional<std::string>& out) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) return wrong(name, "a string", *value);
    out = value->text();
    return {};
  }

  Result<> integer(std::string_view name, int64_t low, int64_t high,
                   std::optional<int64_t>& out) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_integer()) return wrong(name, "an integer", *value);
    const std::optional<int64_t> number = value->as_int64();
    if (!number || *number < low || *number > high) {
      return err(Code::kInvalid, "{} must be between {} and {}, got {}", name, low, high,
                 value->text().substr(0, 40));
    }
    out = number;
    return {};
  }

  Result<> number(std::string_view name, double low, double high,
                  std::optional<double>& out) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_number()) return wrong(name, "a number", *value);
    const double number = value->as_double().value_or(std::nan(""));
    if (!(number >= low && number <= high)) {
      return err(Code::kInvalid, "{} must be between {} and {}, got {}", name, low, high,
                 value->text().substr(0, 40));
    }
    out = number;
    return {};
  }

  static std::unexpected<Error> wrong(std::string_view name, std::string_view wanted,
                                      const JsonValue& value) {
    return err(Code::kInvalid, "{} must be {}, got {}", name, wanted, value.kind_name());
  }

 private:
  const JsonValue* object_;
};

Result<JsonValue> read_object(std::string_view body) {
  text::JsonReader reader;
  CEDRA_ASSIGN(JsonValue value, reader.read(body));
  if (!value.is_object()) {
    return err(Code::kInvalid, "the body must be a JSON object, got {}", value.kind_name());
  }
  return value;
}

Result<> check_count(std::string_view name, size_t count, size_t most) {
  if (count <= most) return {};
  return err(Code::kInvalid, "{} may have at most {} entries, got {}", name, most, count);
}

Result<int32_t> token_id(std::string_view name, const JsonValue& value) {
  const std::optional<int64_t> id = value.is_integer() ? value.as_int64() : std::nullopt;
  if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
    return err(
        Code::kInvalid, "{} must hold token ids (integers from 0), got {}", name,
        value.is_number() ? std::string_view(value.text()).substr(0, 40) : value.kind_name());
  }
  return static_cast<int32_t>(*id);
}

Result<std::vector<int32_t>> token_ids(std::string_view name, const JsonValue& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.items().size());
  for (const JsonValue& item : list.items()) {
    CEDRA_ASSIGN(const int32_t id, token_id(name, item));
    ids.push_back(id);
  }
  return ids;
}

// "text", ["text", ...], [1, 2, ...] or [[1, 2, ...], ...].
Result<std::vector<CompletionPrompt>> read_prompts(const JsonValue* value) {
  if (value == nullptr) return err(Code::kInvalid, "prompt is missing");
  std::vector<CompletionPrompt> prompts;
  if (value->is_string()) {
    prompts.push_back({value->text(), {}, false});
    return prompts;
  }
  if (!value->is_array()) {
    return Fields::wrong("prompt", "a string, a list of strings, or token ids", *value);
  }
  if (value->items().empty()) return err(Code::kInvalid, "prompt is an empty list");
  if (value->items().front().is_number()) {
    CEDRA_ASSIGN(std::vector<int32_t> ids, token_ids("prompt", *value));
    prompts.push_back({{}, std::move(ids), true});
    return prompts;
  }
  for (const JsonValue& item : value->items()) {
    if (item.is_string()) {
      prompts.push_back({item.text(), {}, false});
    } else if (item.is_array()) {
      CEDRA_ASSIGN(std::vector<int32_t> ids, token_ids("prompt", item));
      prompts.push_back({{}, std::move(ids), true});
    } else {
      return Fields::wrong("prompt", "a string, a list of strings, or token ids", item);
    }
  }
  return prompts;
}

Result<std::vector<std::string>> read_stop(const JsonValue* value, const RequestLimits& limits) {
  std::vector<std::string> stop;
  if (value == nullptr) return stop;
  if (value->is_string()) {
    stop.push_back(value->text());
  } else if (value->is_array()) {
    if (value->items().size() > limits.max_stop_strings) {
      return err(Code::kInvalid, "stop may hold at most {} strings, got {}",
                 limits.max_stop_strings, value->items().size());
    }
    for (const JsonValue& item : value->items()) {
      if (!item.is_string()) return Fields::wrong("stop", "a string or a list of strings", item);
      stop.push_back(item.text());
    }
  } else {
    return Fields::wrong("stop", "a string or a list of strings", *value);
  }
  for (const std::string& text : stop) {
    if (text.empty()) return err(Code::kInvalid, "stop must not hold an empty string");
  }
  return stop;
}

Result<std::vector<std::pair<int32_t, double>>> read_logit_bias(const JsonValue* value) {
  std::vector<std::pair<int32_t, double>> out;
  if (value == nullptr) return out;
  if (!value->is_object()) {
    return Fields::wrong("logit_bias", "an object from token ids to numbers", *value);
  }
  CEDRA_TRY(check_count("logit_bias", value->members().size(), text::kMaxLogitBias));
  for (const auto& [key, bias] : value->members()) {
    int32_t id = 0;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0) {
      return err(Code::kInvalid, "logit_bias: \"{}\" is not a token id", key.substr(0, 40));
    }
    const double number = bias.as_double().value_or(std::nan(""));
    if (!(number >= -100 && number <= 100)) {
      return err(Code::kInvalid, "logit_bias of token {} must be a number from -100 to 100", id);
    }
    out.emplace_back(id, number);
  }
  return out;
}

// `least_tokens`: 0 where the prompt alone may be what is wanted.
Result<> read_sampling(const Fields& in, int64_t least_tokens, text::RequestFields& out) {
  CEDRA_TRY(in.number("temperature", 0, 2, out.temperature));
  CEDRA_TRY(in.number("top_p", 0, 1, out.top_p));
  if (out.top_p && *out.top_p == 0) {
    return err(Code::kInvalid, "top_p must be above 0 and at most 1, got 0");
  }
  CEDRA_TRY(in.number("presence_penalty", -2, 2, out.presence_penalty));
  CEDRA_TRY(in.number("frequency_penalty", -2, 2, out.frequency_penalty));
  CEDRA_TRY(in.number("repetition_penalty", 1e-3, 100, out.repetition_penalty));
  CEDRA_TRY(in.number("min_p", 0, 1, out.min_p));
  constexpr int64_t kMany = int64_t{1} << 31;
  CEDRA_TRY(in.integer("top_k", -1, kMany, out.top_k));
  CEDRA_TRY(in.integer("min_tokens", 0, kMany, out.min_tokens));
  CEDRA_TRY(in.integer("max_tokens", least_tokens, kMany, out.max_tokens));
  CEDRA_TRY(in.integer("seed", 0, std::numeric_limits<int64_t>::max(), out.seed));
  CEDRA_TRY(in.boolean("ignore_eos", out.ignore_eos));
  if (const JsonValue* ids = in.find("stop_token_ids")) {
    if (!ids->is_array()) return Fields::wrong("stop_token_ids", "a list of token ids", *ids);
    CEDRA_TRY(check_count("stop_token_ids", ids->items().size(), text::kMaxStopTokenIds));
    CEDRA_ASSIGN(out.stop_token_ids, token_ids("stop_token_ids", *ids));
  }
  CEDRA_ASSIGN(out.logit_bias, read_logit_bias(in.find("logit_bias")));
  return {};
}

}  // namespace

Result<> check_fields(const text::RequestFields& fields, size_t prompts,
                      const RequestLimits& limits) {
  if (fields.n < 1 || fields.n > limits.max_choices) {
    return err(Code::kInvalid, "n must be between 1 and {}, got {}", limits.max_choices, fields.n);
  }
  if (static_cast<int64_t>(prompts) > limits.max_choices / fields.n) {
    return err(Code::kInvalid, "{} prompts with n = {} ask for more than {} choices", prompts,
               fields.n, limits.max_choices);
  }
  if (fields.top_logprobs < 0 || fields.top_logprobs > limits.max_logprobs) {
    return err(Code::kInvalid, "top_logprobs must be between 0 and {}, got {}", limits.max_logprobs,
               fields.top_logprobs);
  }
  if (fields.stop.size() > limits.max_stop_strings) {
    return err(Code::kInvalid, "stop may hold at most {} strings, got {}", limits.max_stop_strings,
               fields.stop.size());
  }
  for (const std::string& stop : fields.stop) {
    if (stop.size() > limits.max_stop_bytes) {
      return err(Code::kInvalid, "a stop string may have at most {} bytes, got {}",
                 limits.max_stop_bytes, stop.size());
    }
  }
  return {};
}

bool is_known_completion_field(std::string_view name) {
  static constexpr std::string_view kNames[] = {"model",
                                                "prompt",
                                                "suffix",
                                                "add_special_tokens",
                                                "echo",
                                                "stream",
                                                "stream_options",
                                                "return_token_ids",
                                                "n",
                                                "best_of",
                                                "logprobs",
                                                "prompt_logprobs",
                                                "priority",
                                                "cache_salt",
                                                "stop",
                                                "temperature",
                                                "top_p",
                                                "top_k",
                                                "min_p",
                                                "presence_penalty",
                                                "seed",
                                                "min_tokens",
                                                "max_tokens",
                                                "frequency_penalty",
                                                "ignore_eos",
                                                "stop_token_ids",
                                                "logit_bias",
                                                "repetition_penalty",
                                                "response_format"};
  return std::ranges::find(kNames, name) != std::end(kNames) || text::is_structured_field(name);
}

Result<CompletionRequest> parse_completion(std::string_view body, const RequestLimits& limits) {
  CEDRA_ASSIGN(const JsonValue object, read_object(body));
  const Fields in(object);
  CompletionRequest out;
  for (const auto& [name, value] : object.members()) {
    constexpr size_t kMost = 32;
    constexpr size_t kLongest = 40;
    if (!value.is_null() && !is_known_completion_field(name) && out.ignored.size() < kMost) {
      out.ignored.push_back(name.substr(0, kLongest));
    }
  }
  std::optional<std::string> model, salt;
  CEDRA_TRY(in.text("model", model));
  out.fields.model = model.value_or("");
  CEDRA_ASSIGN(out.prompts, read_prompts(in.find("prompt")));
  CEDRA_TRY(in.text("suffix", out.suffix));
  CEDRA_TRY(in.boolean("add_special_tokens", out.add_special_tokens));
  CEDRA_TRY(in.boolean("echo", out.echo));
  CEDRA_TRY(in.boolean("stream", out.fields.stream));
  CEDRA_TRY(in.boolean("return_token_ids", out.fields.return_token_ids));
  if (const JsonValue* options = in.find("stream_options")) {
    if (!options->is_object()) return Fields::wrong("stream_options", "an object", *options);
    if (!out.fields.stream) {
      return err(Code::kInvalid, "stream_options is only allowed when stream is true");
    }
    bool include_usage = false;
    CEDRA_TRY(Fields(*options).boolean("include_usage", include_usage));
    out.fields.include_usage = include_usage;
  }
  std::optional<int64_t> n, best_of, logprobs, prompt_logprobs, priority;
  CEDRA_TRY(in.integer("n", 1, limits.max_choices, n));
  out.fields.n = n.value_or(1);
  CEDRA_TRY(in.integer("best_of", 1, limits.max_choices, best_of));
  if (best_of && *best_of != out.fields.n && *best_of > 1) {
    return err(Code::kUnsupported,
               "best_of is not supported; ask for n choices and pick one yourself");
  }
  CEDRA_TRY(in.integer("logprobs", 0, limits.max_logprobs, logprobs));
  CEDRA_TRY(in.integer("prompt_logprobs", 0, limits.max_logprobs, prompt_logprobs));
  CEDRA_TRY(in.integer("priority", std::numeric_limits<int32_t>::min(),
                       std::numeric_limits<int32_t>::max(), priority));
  out.logprobs = static_cast<int>(logprobs.value_or(-1));
  out.prompt_logprobs = static_cast<int>(prompt_logprobs.value_or(-1));
  out.fields.priority = priority.value_or(0);
  CEDRA_TRY(in.text("cache_salt", salt));
  out.fields.cache_salt = salt.value_or("");
  CEDRA_ASSIGN(out.fields.stop, read_stop(in.find("stop"), limits));
  CEDRA_TRY(read_sampling(in, out.echo ? 0 : 1, out.fields));
  CEDRA_ASSIGN(out.structured, text::parse_structured_fields(object));
  if (const JsonValue* format = in.find("response_format")) {
    CEDRA_ASSIGN(text::StructuredFields asked,
                 text::parse_response_format(*format, "response_format"));
    const auto none = text::StructuredFields::Kind::kNone;
    if (asked.kind != none && out.structured.kind != none) {
      return err(Code::kInvalid, "response_format and {} exclude each other", out.structured.where);
    }
    if (asked.kind != none) out.structured = std::move(asked);
  }
  CEDRA_TRY(check_fields(out.fields, out.prompts.size(), limits));
  if (out.echo && out.suffix) {
    return err(Code::kInvalid, "echo and suffix exclude each other: the prompt is a template then");
  }
  if (out.prompt_logprobs >= 0 && out.fields.stream) {
    return err(Code::kInvalid, "prompt_logprobs cannot be streamed; set stream to false");
  }
  if (out.suffix && (out.prompts.size() != 1 || out.prompts.front().is_ids)) {
    return err(Code::kInvalid, "suffix needs exactly one prompt, and that as text");
  }
  return out;
}

Result<TokenizeRequest> parse_tokenize(std::string_view body) {
  CEDRA_ASSIGN(const JsonValue object, read_object(body));
  const Fields in(object);
  TokenizeRequest out;
  CEDRA_TRY(in.text("prompt", out.prompt));
  CEDRA_TRY(in.boolean("add_special_tokens", out.add_special_tokens));
  CEDRA_TRY(in.boolean("return_token_strs", out.return_token_strs));
  if (out.prompt && in.find("messages") != nullptr) {
    return err(Code::kInvalid, "give either prompt or messages, not both");
  }
  if (!out.prompt && in.find("messages") == nullptr) {
    return err(Code::kInvalid, "prompt or messages is missing");
  }
  return out;
}

Result<std::vector<int32_t>> parse_detokenize(std::string_view body) {
  CEDRA_ASSIGN(const JsonValue object, read_object(body));
  const JsonValue* tokens = object.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    return err(Code::kInvalid, "tokens must be a list of token ids");
  }
  return token_ids("tokens", *tokens);
}

}  // namespace cedra::server

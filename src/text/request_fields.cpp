// The fields of a request that steer generation (spec chat.md 4.2): types, ranges, error texts.
#include <algorithm>
#include <limits>

#include "text/request_parts.h"

namespace cedra::text::detail {
namespace {

constexpr int64_t kMaxStops = 16;
constexpr int64_t kMaxChoices = 128;
constexpr int64_t kMaxTopLogprobs = 20;
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

Result<> get_number(const JsonValue& body, std::string_view key, double low, double high,
                    bool low_open, std::optional<double>& out) {
  const JsonValue* value = present(body, key);
  if (value == nullptr) return {};
  const auto number = value->as_double();
  if (!number) return err(Code::kInvalid, "{} must be a number, got {}", key, value->kind_name());
  if (!(*number <= high) || !(low_open ? *number > low : *number >= low)) {
    return err(Code::kInvalid, "{} must be in {}{}, {}]", key, low_open ? '(' : '[', low, high);
  }
  out = *number;
  return {};
}

Result<> get_integer(const JsonValue& body, std::string_view key, int64_t low, int64_t high,
                     std::optional<int64_t>& out) {
  const JsonValue* value = present(body, key);
  if (value == nullptr) return {};
  const auto number = value->as_int64();
  if (!number && !value->is_integer()) {
    return err(Code::kInvalid, "{} must be an integer, got {}", key, value->kind_name());
  }
  if (!number || *number < low || *number > high) {
    return err(Code::kInvalid, "{} must be in [{}, {}]", key, low, high);
  }
  out = *number;
  return {};
}

Result<> get_max_tokens(const JsonValue& body, std::string_view key, std::optional<int64_t>& out) {
  const JsonValue* value = present(body, key);
  if (value == nullptr) return {};
  const auto number = value->as_int64();
  if (!number) {
    return err(Code::kInvalid, "{} must be an integer of 64 bits, got {}", key, value->kind_name());
  }
  if (*number <= 0) return err(Code::kInvalid, "{} must be greater than zero", key);
  out = *number;
  return {};
}

Result<> get_stop(const JsonValue& body, std::string_view key, std::vector<std::string>& out) {
  const JsonValue* value = present(body, key);
  if (value == nullptr) return {};
  if (value->is_string()) {
    out = {value->text()};
  } else if (value->is_array()) {
    if (std::ssize(value->items()) > kMaxStops) {
      return err(Code::kInvalid, "ChatCompletionStopSequences string array too long: {}",
                 value->items().size());
    }
    for (const JsonValue& item : value->items()) {
      if (!item.is_string()) {
        return err(Code::kInvalid, "{} must hold strings, got {}", key, item.kind_name());
      }
      out.push_back(item.text());
    }
  } else {
    return err(Code::kInvalid, "{} must be a string or a list of strings, got {}", key,
               value->kind_name());
  }
  for (const std::string& stop : out) {
    if (stop.empty()) return err(Code::kInvalid, "{} must not hold an empty string", key);
  }
  return {};
}

Result<> get_token_ids(const JsonValue& body, std::vector<int32_t>& out) {
  const JsonValue* value = present(body, "stop_token_ids");
  if (value == nullptr) return {};
  if (!value->is_array()) {
    return err(Code::kInvalid, "stop_token_ids must be a list of integers, got {}",
               value->kind_name());
  }
  CEDRA_TRY(check_count("stop_token_ids", value->items().size(), kMaxStopTokenIds));
  for (const JsonValue& item : value->items()) {
    const auto id = item.as_int64();
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      return err(Code::kInvalid, "stop_token_ids must hold token ids");
    }
    out.push_back(static_cast<int32_t>(*id));
  }
  return {};
}

Result<> get_logit_bias(const JsonValue& body, std::vector<std::pair<int32_t, double>>& out) {
  const JsonValue* value = present(body, "logit_bias");
  if (value == nullptr) return {};
  if (!value->is_object()) {
    return err(Code::kInvalid, "logit_bias must map token ids to numbers, got {}",
               value->kind_name());
  }
  CEDRA_TRY(check_count("logit_bias", value->members().size(), kMaxLogitBias));
  for (const auto& [key, bias] : value->members()) {
    const auto id = JsonValue::number(key).as_int64();
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      return err(Code::kInvalid, "logit_bias: '{}' is no token id", key.substr(0, 40));
    }
    const auto number = bias.as_double();
    if (!number || *number < -100 || *number > 100) {
      return err(Code::kInvalid, "logit_bias.{} must be a number in [-100, 100]", key);
    }
    out.emplace_back(static_cast<int32_t>(*id), *number);
  }
  return {};
}

Result<> get_stream(const JsonValue& body, RequestFields& out) {
  CEDRA_ASSIGN(out.stream, get_bool(body, "stream", false));
  const JsonValue* options = present(body, "stream_options");
  if (options == nullptr) return {};
  if (!options->is_object()) {
    return err(Code::kInvalid, "stream_options must be an object, got {}", options->kind_name());
  }
  if (!out.stream) {
    return err(Code::kInvalid, "stream_options should be set along with stream = true");
  }
  if (present(*options, "include_usage") != nullptr) {
    CEDRA_ASSIGN(const bool include, get_bool(*options, "include_usage", false));
    out.include_usage = include;
  }
  return {};
}

}  // namespace

const JsonValue* present(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<const JsonValue*> get_object(const JsonValue& object, std::string_view key) {
  const JsonValue* value = present(object, key);
  if (value != nullptr && !value->is_object()) {
    return err(Code::kInvalid, "{} must be an object, got {}", key, value->kind_name());
  }
  return value;
}

Result<bool> get_bool(const JsonValue& object, std::string_view key, bool fallback) {
  const JsonValue* value = present(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) {
    return err(Code::kInvalid, "{} must be a boolean, got {}", key, value->kind_name());
  }
  return value->as_bool();
}

Result<std::string> get_string(const JsonValue& object, std::string_view key,
                               std::string_view where) {
  const JsonValue* value = present(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) {
    return err(Code::kInvalid, "{}{}{} must be a string, got {}", where, where.empty() ? "" : ".",
               key, value->kind_name());
  }
  return value->text();
}

std::vector<std::string> ignored_fields(Route route, const JsonValue& body) {
  constexpr size_t kMost = 32;
  constexpr size_t kLongest = 40;
  std::vector<std::string> out;
  for (const auto& [name, value] : body.members()) {
    if (value.is_null() || is_known_field(route, name)) continue;
    if (out.size() < kMost) out.push_back(name.substr(0, kLongest));
  }
  return out;
}

Result<RequestFields> parse_fields(Route route, const JsonValue& body) {
  RequestFields out;
  CEDRA_ASSIGN(out.model, get_string(body, "model", ""));
  CEDRA_TRY(get_stream(body, out));
  if (route == Route::kResponses) {
    CEDRA_TRY(get_max_tokens(body, "max_output_tokens", out.max_tokens));
  } else {
    CEDRA_TRY(get_max_tokens(body, "max_tokens", out.max_tokens));
  }
  if (route == Route::kChatCompletions) {
    CEDRA_TRY(get_max_tokens(body, "max_completion_tokens", out.max_tokens));
  }
  CEDRA_TRY(get_number(body, "temperature", 0, 2, false, out.temperature));
  CEDRA_TRY(get_number(body, "top_p", 0, 1, true, out.top_p));
  CEDRA_TRY(get_number(body, "presence_penalty", -2, 2, false, out.presence_penalty));
  CEDRA_TRY(get_number(body, "frequency_penalty", -2, 2, false, out.frequency_penalty));
  CEDRA_TRY(get_number(body, "repetition_penalty", 0, 10, true, out.repetition_penalty));
  CEDRA_TRY(get_number(body, "min_p", 0, 1, false, out.min_p));
  CEDRA_TRY(get_integer(body, "top_k", -1, kAny, out.top_k));
  CEDRA_TRY(get_integer(body, "min_tokens", 0, kAny, out.min_tokens));
  CEDRA_TRY(get_integer(body, "seed", 0, kAny, out.seed));
  std::optional<int64_t> n;
  CEDRA_TRY(get_integer(body, "n", 1, kMaxChoices, n));
  out.n = n.value_or(1);
  std::optional<int64_t> priority;
  CEDRA_TRY(get_integer(body, "priority", -kAny, kAny, priority));
  out.priority = priority.value_or(0);
  CEDRA_TRY(get_stop(body, route == Route::kMessages ? "stop_sequences" : "stop", out.stop));
  CEDRA_TRY(get_token_ids(body, out.stop_token_ids));
  CEDRA_TRY(get_logit_bias(body, out.logit_bias));
  if (const JsonValue* best = present(body, "best_of")) {
    if (best->as_int64() != std::optional<int64_t>(1)) {
      return err(Code::kUnsupported,
                 "best_of is not supported; ask for n choices and pick one yourself");
    }
  }
  CEDRA_ASSIGN(out.logprobs, get_bool(body, "logprobs", false));
  std::optional<int64_t> top;
  CEDRA_TRY(get_integer(body, "top_logprobs", 0, kMaxTopLogprobs, top));
  out.top_logprobs = top.value_or(0);
  CEDRA_ASSIGN(out.parallel_tool_calls, get_bool(body, "parallel_tool_calls", true));
  CEDRA_ASSIGN(out.return_token_ids, get_bool(body, "return_token_ids", false));
  CEDRA_ASSIGN(out.ignore_eos, get_bool(body, "ignore_eos", false));
  CEDRA_ASSIGN(out.cache_salt, get_string(body, "cache_salt", ""));
  return out;
}

}  // namespace cedra::text::detail

namespace cedra::text {
namespace {

constexpr std::string_view kEveryRoute[] = {"model",
                                            "stream",
                                            "stream_options",
                                            "temperature",
                                            "top_p",
                                            "top_k",
                                            "min_p",
                                            "min_tokens",
                                            "presence_penalty",
                                            "frequency_penalty",
                                            "ignore_eos",
                                            "seed",
                                            "priority",
                                            "repetition_penalty",
                                            "stop_token_ids",
                                            "logit_bias",
                                            "cache_salt",
                                            "tools",
                                            "tool_choice",
                                            "thinking",
                                            "best_of",
                                            "chat_template_kwargs"};
constexpr std::string_view kChatOnly[] = {"messages",
                                          "max_tokens",
                                          "max_completion_tokens",
                                          "n",
                                          "stop",
                                          "logprobs",
                                          "top_logprobs",
                                          "parallel_tool_calls",
                                          "response_format",
                                          "reasoning_effort",
                                          "return_token_ids",
                                          "add_generation_prompt",
                                          "include_reasoning",
                                          "continue_final_message"};
constexpr std::string_view kMessagesOnly[] = {"messages", "max_tokens",    "stop_sequences",
                                              "system",   "output_config", "output_format"};
constexpr std::string_view kResponsesOnly[] = {
    "input",   "instructions", "max_output_tokens",    "stop",         "logprobs",
    "text",    "reasoning",    "previous_response_id", "conversation", "parallel_tool_calls",
    "store",   "include",      "top_logprobs",         "background",   "prompt",
    "metadata"};

}  // namespace

bool is_known_field(Route route, std::string_view name) {
  const auto has = [name](const auto& names) {
    return std::ranges::find(names, name) != std::end(names);
  };
  if (has(kEveryRoute)) return true;
  switch (route) {
    case Route::kChatCompletions:
      return has(kChatOnly) || is_structured_field(name);
    case Route::kMessages:
      return has(kMessagesOnly);
    case Route::kResponses:
      break;
  }
  return has(kResponsesOnly);
}

}  // namespace cedra::text

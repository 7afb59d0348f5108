#include "engine/speculative_config.h"

#include "text/json_value.h"

namespace cedra::engine {
namespace {

constexpr text::JsonLimits kLimits{.depth = 4, .bytes = 64 << 10, .values = 64};

template <class T>
Result<> choose(std::string_view key, const text::JsonValue& value, std::string_view first,
                T first_value, std::string_view second, T second_value, T& out) {
  if (value.is_string() && value.text() == first) {
    out = first_value;
    return {};
  }
  if (value.is_string() && value.text() == second) {
    out = second_value;
    return {};
  }
  return err(Code::kInvalid, "speculative-config: {} must be \"{}\" or \"{}\", got {}", key, first,
             second, text::python_json(value).substr(0, 60));
}

Result<> take(std::string_view key, const text::JsonValue& value, SpeculativeConfig& out) {
  if (key == "method") {
    if (value.is_string() && value.text() == "dspark") return {};
    return err(Code::kInvalid, "speculative-config: method must be \"dspark\", got {}",
               text::python_json(value).substr(0, 60));
  }
  if (key == "num_speculative_tokens") {
    const auto number = value.as_int64();
    if (!number || *number < 1 || *number > kMaxSpeculativeTokens) {
      return err(Code::kInvalid,
                 "speculative-config: num_speculative_tokens must be an integer from 1 to {}, got "
                 "{}",
                 kMaxSpeculativeTokens, text::python_json(value).substr(0, 60));
    }
    out.num_speculative_tokens = *number;
    return {};
  }
  if (key == "draft_sample_method") {
    return choose(key, value, "greedy", DraftSampling::kGreedy, "probabilistic",
                  DraftSampling::kProbabilistic, out.draft_sample_method);
  }
  if (key == "rejection_sample_method") {
    return choose(key, value, "standard", RejectionMethod::kStandard, "block",
                  RejectionMethod::kBlock, out.rejection_sample_method);
  }
  if (key == "enable_adaptive_verification") {
    if (!value.is_bool()) {
      return err(Code::kInvalid,
                 "speculative-config: enable_adaptive_verification must be true or false, got {}",
                 text::python_json(value).substr(0, 60));
    }
    out.enable_adaptive_verification = value.as_bool();
    return {};
  }
  return err(Code::kInvalid,
             "speculative-config: unknown key \"{}\"; known are method, num_speculative_tokens, "
             "draft_sample_method, rejection_sample_method, enable_adaptive_verification",
             key.substr(0, 60));
}

}  // namespace

Result<SpeculativeConfig> parse_speculative_config(std::string_view json) {
  const Result<text::JsonValue> parsed = text::JsonReader(kLimits).read(json);
  if (!parsed) return err(Code::kInvalid, "speculative-config: {}", parsed.error().message);
  if (!parsed->is_object()) {
    return err(Code::kInvalid,
               "speculative-config must be a JSON object like {{\"method\":\"dspark\"}}, got {}",
               parsed->kind_name());
  }
  if (parsed->find("method") == nullptr) {
    return err(Code::kInvalid, "speculative-config: method is missing; it must be \"dspark\"");
  }
  SpeculativeConfig out;
  out.num_speculative_tokens = kTrainedBlock;
  for (const auto& [key, value] : parsed->members()) CEDRA_TRY(take(key, value, out));
  return out;
}

}  // namespace cedra::engine

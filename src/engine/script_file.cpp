// Field by field, strictly: a typing error in a script must not look like a model's behaviour.
#include "engine/script_file.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <sstream>

#include "text/json_value.h"
#include "text/special_tokens.h"

namespace cedra::engine {
namespace {

using text::JsonValue;

constexpr int64_t kMaxDelayMs = 600'000;
constexpr int64_t kMaxCount = 1 << 24;

Result<int64_t> integer(const JsonValue& value, const std::string& where, int64_t low,
                        int64_t high) {
  const std::optional<int64_t> number = value.is_integer() ? value.as_int64() : std::nullopt;
  if (!number || *number < low || *number > high) {
    return err(Code::kInvalid, "{} must be an integer from {} to {}", where, low, high);
  }
  return *number;
}

Result<std::string> text_value(const JsonValue& value, const std::string& where) {
  if (!value.is_string()) {
    return err(Code::kInvalid, "{} must be a string, got {}", where, value.kind_name());
  }
  return value.text();
}

// "text" or ["text", ...].
Result<std::vector<std::string>> texts(const JsonValue& value, const std::string& where) {
  std::vector<std::string> out;
  if (!value.is_array()) {
    CEDRA_ASSIGN(std::string one, text_value(value, where));
    out.push_back(std::move(one));
    return out;
  }
  for (const JsonValue& item : value.items()) {
    CEDRA_ASSIGN(std::string one, text_value(item, where));
    out.push_back(std::move(one));
  }
  return out;
}

Result<ScriptRule> parse_rule(const JsonValue& value, const std::string& where) {
  if (!value.is_object()) {
    return err(Code::kInvalid, "{} must be an object, got {}", where, value.kind_name());
  }
  ScriptRule out;
  bool has_text = false;
  for (const auto& [key, member] : value.members()) {
    const std::string path = where + "." + key;
    if (key == "when") {
      CEDRA_ASSIGN(out.when, texts(member, path));
    } else if (key == "unless") {
      CEDRA_ASSIGN(out.unless, texts(member, path));
    } else if (key == "request") {
      CEDRA_ASSIGN(out.request, integer(member, path, 1, kMaxCount));
    } else if (key == "text") {
      CEDRA_ASSIGN(out.text, text_value(member, path));
      has_text = true;
    } else if (key == "error") {
      CEDRA_ASSIGN(out.error, text_value(member, path));
    } else {
      return err(Code::kInvalid, "{}: unknown; known are when, unless, request, text, error", path);
    }
  }
  if (!has_text && !out.error) return err(Code::kInvalid, "{}.text is missing", where);
  return out;
}

Result<> parse_member(const std::string& key, const JsonValue& value, ScriptFile& out) {
  if (key == "answers") {
    if (!value.is_array()) {
      return err(Code::kInvalid, "answers must be a list, got {}", value.kind_name());
    }
    for (size_t i = 0; i < value.items().size(); ++i) {
      CEDRA_ASSIGN(ScriptRule rule, parse_rule(value.items()[i], fmt::format("answers.{}", i)));
      out.answers.push_back(std::move(rule));
    }
    return {};
  }
  if (key == "token_delay_ms" || key == "prefill_delay_ms") {
    CEDRA_ASSIGN(const int64_t delay, integer(value, key, 0, kMaxDelayMs));
    (key == "token_delay_ms" ? out.token_delay : out.prefill_delay) =
        std::chrono::milliseconds(delay);
    return {};
  }
  const std::pair<std::string_view, int64_t*> counts[] = {{"prefill_chunk", &out.prefill_chunk},
                                                          {"context_length", &out.context_length},
                                                          {"max_num_seqs", &out.max_num_seqs},
                                                          {"max_queue", &out.max_queue}};
  for (const auto& [name, target] : counts) {
    if (key != name) continue;
    CEDRA_ASSIGN(*target, integer(value, key, 1, kMaxCount));
    return {};
  }
  return err(Code::kInvalid, "{}: no such setting of a script", key.substr(0, 40));
}

bool fits(const ScriptRule& rule, const std::string& prompt, int64_t number) {
  const auto stands = [&](const std::string& part) {
    return prompt.find(part) != std::string::npos;
  };
  if (rule.request && *rule.request != number) return false;
  return std::ranges::all_of(rule.when, stands) && std::ranges::none_of(rule.unless, stands);
}

}  // namespace

Result<ScriptFile> parse_script_file(std::string_view json) {
  text::JsonReader reader;
  CEDRA_ASSIGN(const JsonValue value, reader.read(json));
  if (!value.is_object()) {
    return err(Code::kInvalid, "a script must be a JSON object, got {}", value.kind_name());
  }
  ScriptFile out;
  for (const auto& [key, member] : value.members()) CEDRA_TRY(parse_member(key, member, out));
  if (out.answers.empty()) return err(Code::kInvalid, "answers: at least one is needed");
  return out;
}

Result<ScriptFile> read_script_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in || !bytes) return err(Code::kNotFound, "{}: cannot be read", path.string());
  Result<ScriptFile> file = parse_script_file(bytes.str());
  if (!file) return wrap(file.error(), path.string());
  return file;
}

Result<ScriptedOptions> script_options(ScriptFile file, const text::Tokenizer& tokenizer) {
  CEDRA_ASSIGN(const text::SpecialTokens special, text::SpecialTokens::find(tokenizer));
  ScriptedOptions out;
  out.info.context_length = file.context_length;
  out.info.vocab_size = tokenizer.size();
  out.info.eos_token_id = special.eos;
  out.info.isa = "script";
  out.info.max_num_seqs = file.max_num_seqs;
  out.info.max_queue = file.max_queue;
  out.token_delay = file.token_delay;
  out.prefill_delay = file.prefill_delay;
  out.prefill_chunk = file.prefill_chunk;
  out.script = [rules = std::move(file.answers), &tokenizer,
                count = std::make_shared<std::atomic<int64_t>>(0)](const Request& request) {
    const int64_t number = count->fetch_add(1) + 1;
    const std::string prompt = tokenizer.decode(request.prompt);
    for (const ScriptRule& rule : rules) {
      if (!fits(rule, prompt, number)) continue;
      Script script(tokenizer.encode(rule.text));
      if (rule.error) script.error = Error{Code::kInternal, *rule.error};
      return script;
    }
    Script none;
    none.error =
        Error{Code::kInternal, fmt::format("the script has no answer for request {}", number)};
    return none;
  };
  return out;
}

}  // namespace cedra::engine

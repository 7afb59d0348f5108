#include "checkpoint/generation_config.h"

#include <simdjson.h>

#include <algorithm>

#include "base/mapped_file.h"

namespace cedra {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr int64_t kMaxBytes = int64_t{1} << 20;
constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxEosTokens = 64;

std::unexpected<Error> wrong(std::string_view key, element found, std::string_view expected) {
  return err(Code::kInvalid, "{} is {}, must be {}", key, simdjson::minify(found).substr(0, 80),
             expected);
}

Result<> read_number(std::string_view key, element value, double low, double high,
                     std::string_view expected, double& out) {
  double number = 0;
  if (value.type() == element_type::NULL_VALUE) return {};
  if (value.get_double().get(number) != simdjson::SUCCESS || !(number >= low && number <= high)) {
    return wrong(key, value, expected);
  }
  out = number;
  return {};
}

Result<> add_token(element value, const Config& config, std::vector<int64_t>& out) {
  int64_t id = -1;
  if (value.type() != element_type::INT64 || value.get_int64().get(id) != simdjson::SUCCESS ||
      id < 0 || id >= config.text.vocab_size) {
    return wrong("eos_token_id", value,
                 fmt::format("a token id below vocab_size {}", config.text.vocab_size));
  }
  out.push_back(id);
  return {};
}

Result<> read_eos(element value, const Config& config, std::vector<int64_t>& out) {
  if (value.type() == element_type::NULL_VALUE) return {};
  if (value.type() != element_type::ARRAY) return add_token(value, config, out);
  const simdjson::dom::array list = value.get_array().value_unsafe();
  if (list.size() > kMaxEosTokens) {
    return err(Code::kInvalid, "eos_token_id has {} entries, at most {} are supported", list.size(),
               kMaxEosTokens);
  }
  for (const element item : list) CEDRA_TRY(add_token(item, config, out));
  return {};
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json, const Config& config) {
  simdjson::dom::parser parser;
  if (parser.allocate(std::max<size_t>(json.size(), 64), kMaxDepth) != simdjson::SUCCESS) {
    return err(Code::kExhausted, "no memory to parse {} bytes", json.size());
  }
  const simdjson::padded_string padded(json);
  element root;
  if (const auto error = parser.parse(padded).get(root)) {
    return err(Code::kCorrupt, "not JSON of at most {} levels: {}", kMaxDepth,
               simdjson::error_message(error));
  }
  if (root.type() != element_type::OBJECT) return err(Code::kCorrupt, "not a JSON object");

  GenerationConfig result;
  bool greedy = false;
  const simdjson::dom::object object = root.get_object().value_unsafe();
  for (const auto field : object) {
    if (field.key == "temperature") {
      CEDRA_TRY(read_number(field.key, field.value, 0, 100, "a number from 0 to 100",
                            result.temperature));
    } else if (field.key == "top_p") {
      CEDRA_TRY(read_number(field.key, field.value, 1e-9, 1, "a number above 0, at most 1",
                            result.top_p));
    } else if (field.key == "top_k" && field.value.type() != element_type::NULL_VALUE) {
      if (field.value.type() != element_type::INT64 ||
          int64_t{field.value.get_int64().value_unsafe()} < 0) {
        return wrong("top_k", field.value, "an integer of at least 0");
      }
      result.top_k = field.value.get_int64().value_unsafe();
    } else if (field.key == "do_sample") {
      if (field.value.type() != element_type::BOOL) {
        return wrong("do_sample", field.value, "true or false");
      }
      greedy = !field.value.get_bool().value_unsafe();
    } else if (field.key == "eos_token_id") {
      CEDRA_TRY(read_eos(field.value, config, result.eos_token_ids));
    }
  }
  if (greedy) result.temperature = 0;
  if (result.eos_token_ids.empty()) result.eos_token_ids = {config.eos_token_id};
  return result;
}

Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const Config& config) {
  const std::filesystem::path path = folder / "generation_config.json";
  const auto text = read_file(path, kMaxBytes);
  if (!text && text.error().code == Code::kNotFound) {
    GenerationConfig defaults;
    defaults.eos_token_ids = {config.eos_token_id};
    return defaults;
  }
  if (!text) return std::unexpected(text.error());
  auto result = parse_generation_config(*text, config);
  if (!result) return wrap(result.error(), path.string());
  return result;
}

}  // namespace cedra

// Reading with simdjson: its on-demand values become ours one by one, so that numbers keep their
// spelling and depth and count stay bounded.
#include "text/json_value.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>

namespace cedra::text {
namespace {

namespace ondemand = simdjson::ondemand;

// Objects of more members look their keys up in a hash table while they are read.
constexpr size_t kLinearMembers = 8;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// JSON's grammar: -? (0 | [1-9] digits) [. digits] [e [+-] digits]
bool is_number_literal(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at > begin;
  };
  if (at < text.size() && text[at] == '-') ++at;
  if (at < text.size() && text[at] == '0') {
    ++at;
  } else if (!digits()) {
    return false;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

std::unexpected<Error> bad_json(simdjson::error_code error) {
  return err(Code::kInvalid, "not valid JSON: {}", simdjson::error_message(error));
}

// The overwrite rule of Python's dict: first place, last value.
class MemberList {
 public:
  void add(std::string_view key, JsonValue value) {
    if (JsonValue* old = find(key)) {
      *old = std::move(value);
      return;
    }
    members_.emplace_back(std::string(key), std::move(value));
    if (members_.size() > kLinearMembers) {
      if (index_.empty()) {
        for (size_t i = 0; i + 1 < members_.size(); ++i) index_.emplace(members_[i].first, i);
      }
      index_.emplace(members_.back().first, members_.size() - 1);
    }
  }
  std::vector<JsonValue::Member> take() { return std::move(members_); }

 private:
  JsonValue* find(std::string_view key) {
    if (members_.size() <= kLinearMembers) {
      for (auto& member : members_) {
        if (member.first == key) return &member.second;
      }
      return nullptr;
    }
    const auto found = index_.find(std::string(key));
    return found == index_.end() ? nullptr : &members_[found->second].second;
  }

  std::vector<JsonValue::Member> members_;
  std::unordered_map<std::string, size_t> index_;
};

// What a text may still use up.
struct Budget {
  int depth = 0;
  size_t values = 0;
};

Result<JsonValue> convert(ondemand::value value, Budget& budget);

Result<JsonValue> convert_array(ondemand::array array, Budget& budget) {
  std::vector<JsonValue> items;
  for (auto element : array) {
    ondemand::value item;
    if (auto error = element.get(item)) return bad_json(error);
    CEDRA_ASSIGN(auto converted, convert(item, budget));
    items.push_back(std::move(converted));
  }
  return JsonValue::array(std::move(items));
}

Result<JsonValue> convert_object(ondemand::object object, Budget& budget) {
  MemberList members;
  for (auto entry : object) {
    ondemand::field field;
    if (auto error = std::move(entry).get(field)) return bad_json(error);
    std::string_view key;
    if (auto error = field.unescaped_key().get(key)) return bad_json(error);
    CEDRA_ASSIGN(auto converted, convert(field.value(), budget));
    members.add(key, std::move(converted));
  }
  return JsonValue::object(members.take());
}

Result<JsonValue> convert(ondemand::value value, Budget& budget) {
  if (budget.values == 0) return err(Code::kTooLarge, "JSON has too many values");
  --budget.values;
  ondemand::json_type type{};
  if (auto error = value.type().get(type)) return bad_json(error);
  switch (type) {
    case ondemand::json_type::array: {
      if (budget.depth == 0) return err(Code::kTooLarge, "JSON is nested too deeply");
      ondemand::array array;
      if (auto error = value.get_array().get(array)) return bad_json(error);
      --budget.depth;
      auto converted = convert_array(array, budget);
      ++budget.depth;
      return converted;
    }
    case ondemand::json_type::object: {
      if (budget.depth == 0) return err(Code::kTooLarge, "JSON is nested too deeply");
      ondemand::object object;
      if (auto error = value.get_object().get(object)) return bad_json(error);
      --budget.depth;
      auto converted = convert_object(object, budget);
      ++budget.depth;
      return converted;
    }
    case ondemand::json_type::string: {
      std::string_view text;
      if (auto error = value.get_string().get(text)) return bad_json(error);
      return JsonValue::string(std::string(text));
    }
    case ondemand::json_type::boolean: {
      bool flag = false;
      if (auto error = value.get_bool().get(flag)) return bad_json(error);
      return JsonValue::boolean(flag);
    }
    case ondemand::json_type::number: {
      const std::string_view literal = trimmed(value.raw_json_token());
      if (!is_number_literal(literal)) {
        return err(Code::kInvalid, "not valid JSON: '{}' is no number", literal.substr(0, 40));
      }
      return JsonValue::number(std::string(literal));
    }
    case ondemand::json_type::null: {
      const std::string_view literal = trimmed(value.raw_json_token());
      if (literal != "null") {
        return err(Code::kInvalid, "not valid JSON: '{}' is no value", literal.substr(0, 40));
      }
      return JsonValue();
    }
  }
  return err(Code::kInvalid, "not valid JSON: unknown value");
}

}  // namespace

JsonValue JsonValue::boolean(bool value) {
  JsonValue out;
  out.kind_ = Kind::kBool;
  out.bool_ = value;
  return out;
}

JsonValue JsonValue::number(std::string literal) {
  JsonValue out;
  out.kind_ = Kind::kNumber;
  out.text_ = std::move(literal);
  return out;
}

JsonValue JsonValue::string(std::string value) {
  JsonValue out;
  out.kind_ = Kind::kString;
  out.text_ = std::move(value);
  return out;
}

JsonValue JsonValue::array(std::vector<JsonValue> items) {
  JsonValue out;
  out.kind_ = Kind::kArray;
  out.items_ = std::move(items);
  return out;
}

JsonValue JsonValue::object(std::vector<Member> members) {
  JsonValue out;
  out.kind_ = Kind::kObject;
  out.members_ = std::move(members);
  return out;
}

bool JsonValue::is_integer() const {
  return is_number() && text_.find_first_of(".eE") == std::string::npos;
}

std::optional<int64_t> JsonValue::as_int64() const {
  if (!is_integer()) return std::nullopt;
  int64_t value = 0;
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> JsonValue::as_double() const {
  if (!is_number()) return std::nullopt;
  double value = 0;
  const auto [stop, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error == std::errc()) return value;
  // Out of range either way: strtod tells an overflow from an underflow.
  return std::strtod(text_.c_str(), nullptr);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const Member& member : members_) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

JsonValue* JsonValue::find(std::string_view key) {
  return const_cast<JsonValue*>(std::as_const(*this).find(key));
}

std::string_view JsonValue::kind_name() const {
  switch (kind_) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kNumber:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "nothing";
}

struct JsonReader::Impl {
  explicit Impl(JsonLimits given) : limits(given) {}

  JsonLimits limits;
  ondemand::parser parser;
  // simdjson reads past the end: the copy has its padding, and is kept for the next text.
  std::string padded;
};

JsonReader::JsonReader(JsonLimits limits) : impl_(std::make_unique<Impl>(limits)) {}
JsonReader::~JsonReader() = default;
JsonReader::JsonReader(JsonReader&&) noexcept = default;
JsonReader& JsonReader::operator=(JsonReader&&) noexcept = default;

Result<JsonValue> JsonReader::read(std::string_view text) {
  Impl& self = *impl_;
  if (text.size() > self.limits.bytes) {
    return err(Code::kTooLarge, "JSON of {} bytes is over the limit of {}", text.size(),
               self.limits.bytes);
  }
  text = trimmed(text);
  if (text.empty()) return err(Code::kInvalid, "not valid JSON: empty text");
  // A lone scalar goes into an array: simdjson checks less behind a scalar document.
  const bool scalar = text.front() != '{' && text.front() != '[';
  self.padded.clear();
  self.padded.reserve(text.size() + 2 + simdjson::SIMDJSON_PADDING);
  if (scalar) self.padded += '[';
  self.padded += text;
  if (scalar) self.padded += ']';
  const simdjson::padded_string_view view(self.padded.data(), self.padded.size(),
                                          self.padded.capacity());

  ondemand::document document;
  if (auto error = self.parser.iterate(view).get(document)) return bad_json(error);
  Budget budget{self.limits.depth - (scalar ? 0 : 1), self.limits.values};
  Result<JsonValue> value;
  if (self.padded.front() == '[') {
    ondemand::array array;
    if (auto error = document.get_array().get(array)) return bad_json(error);
    value = convert_array(array, budget);
  } else {
    ondemand::object object;
    if (auto error = document.get_object().get(object)) return bad_json(error);
    value = convert_object(object, budget);
  }
  if (!value) return value;
  // The location exists only while there are tokens left.
  if (document.current_location().error() == simdjson::SUCCESS) {
    return err(Code::kInvalid, "not valid JSON: text after the value");
  }
  if (!scalar) return value;
  if (value->items().size() != 1) return err(Code::kInvalid, "not valid JSON: not one value");
  return std::move(value->items().front());
}

bool JsonReader::valid(std::string_view text) { return read(text).has_value(); }

}  // namespace cedra::text

// JSON as requests carry it: values in the caller's key order, numbers in the caller's spelling,
// and Python's json.dumps(ensure_ascii=False) as the way back to text (spec chat.md 2.6). Parsing
// is bounded in depth and size, so hostile nesting is an error and not a stack overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace cedra::text {

class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  JsonValue() = default;
  static JsonValue boolean(bool value);
  // `literal` must follow JSON's number grammar; it is kept as it is spelled.
  static JsonValue number(std::string literal);
  static JsonValue string(std::string value);
  static JsonValue array(std::vector<JsonValue> items);
  static JsonValue object(std::vector<Member> members);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_number() const { return kind_ == Kind::kNumber; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  // A number spelled without fraction and exponent.
  bool is_integer() const;

  bool as_bool() const { return bool_; }
  // The string's value, or the number's literal.
  const std::string& text() const { return text_; }
  std::string take_text() { return std::move(text_); }
  // nullopt if this is no integer or lies outside 64 bits.
  std::optional<int64_t> as_int64() const;
  // The nearest double of a number (an infinity where it overflows); nullopt for other kinds.
  std::optional<double> as_double() const;

  const std::vector<JsonValue>& items() const { return items_; }
  std::vector<JsonValue>& items() { return items_; }
  const std::vector<Member>& members() const { return members_; }
  std::vector<Member>& members() { return members_; }
  // The member's value, or nullptr if this is no object or has no such key.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);

  // "null", "a boolean", "a number", ...: for messages.
  std::string_view kind_name() const;

 private:
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  std::string text_;
  std::vector<JsonValue> items_;
  std::vector<Member> members_;
};

struct JsonLimits {
  int depth = 128;
  size_t bytes = size_t{128} << 20;
  // A value takes far more memory than the two bytes that can spell it.
  size_t values = size_t{1} << 21;
};

// Parses texts one after the other and reuses its buffers. A repeated key keeps its first place and
// takes its last value, as in Python. NaN, lone surrogates and invalid UTF-8 are errors.
class JsonReader {
 public:
  explicit JsonReader(JsonLimits limits = {});
  ~JsonReader();
  JsonReader(JsonReader&&) noexcept;
  JsonReader& operator=(JsonReader&&) noexcept;

  // kInvalid for what is not JSON, kTooLarge past a limit.
  Result<JsonValue> read(std::string_view text);
  // Whether the text is one JSON value within the limits.
  bool valid(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Python's json.dumps(value, ensure_ascii=False): ", " and ": ", floats by shortest repr, integers
// as they are.
std::string python_json(const JsonValue& value);
void append_python_json(const JsonValue& value, std::string& out);
// The same for a string, with its quotes; and without them, for a value that arrives in pieces.
void append_json_string(std::string_view text, std::string& out);
void append_json_escaped(std::string_view text, std::string& out);
// Python's repr() of a float, as json.dumps spells it ("1e-05", "1e+16", "1.0", "Infinity").
std::string python_float(double value);

}  // namespace cedra::text

// Appends JSON to a string: the hot path of event streams. Commas are its business, nesting is the
// caller's. Text must be UTF-8; what is not becomes U+FFFD.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace cedra::server {

class JsonWriter {
 public:
  // Appends to `out`, which outlives the writer.
  explicit JsonWriter(std::string& out) : out_(&out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name) {
    string(name);
    out_->push_back(':');
    comma_ = false;
    return *this;
  }
  JsonWriter& string(std::string_view text);
  JsonWriter& null() { return raw("null"); }
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& integer(int64_t value) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    return raw(std::string_view(digits, static_cast<size_t>(end - digits)));
  }
  // Shortest spelling that reads back as the same float; what is not finite as -9999.0.
  JsonWriter& number(float value);
  // A value that is JSON already.
  JsonWriter& raw(std::string_view json) {
    separate();
    out_->append(json);
    comma_ = true;
    return *this;
  }

 private:
  void separate() {
    if (comma_) out_->push_back(',');
  }
  JsonWriter& open(char bracket) {
    separate();
    out_->push_back(bracket);
    comma_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_->push_back(bracket);
    comma_ = true;
    return *this;
  }

  std::string* out_;
  bool comma_ = false;
};

}  // namespace cedra::server

// Python's json.dumps(ensure_ascii=False) over JsonValue.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/json_value.h"

namespace cedra::text {
namespace {

// Python parses a literal with fraction or exponent as float, any other as int; int("-0") is 0.
void append_number(const JsonValue& value, std::string& out) {
  if (!value.is_integer()) {
    out += python_float(value.as_double().value_or(0));
  } else {
    out += value.text() == "-0" ? "0" : value.text();
  }
}

bool needs_escape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  // Shortest digits that read back as the same double: d.ddde+XX.
  char buffer[64];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t mark = text.find('e');
  std::string digits(text.substr(0, mark));
  std::erase(digits, '.');
  std::string_view exponent_text = text.substr(mark + 1);
  if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
  int exponent = 0;
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);

  // float_repr_style 'r': fixed notation for -4 <= exponent < 16.
  if (exponent >= 16 || exponent < -4) {
    out += digits.front();
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) {
      out.append(digits).append(whole - digits.size(), '0').append(".0");
    } else {
      out.append(digits, 0, whole).append(".").append(digits, whole);
    }
  }
  return out;
}

void append_json_escaped(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const auto stop = std::find_if(text.begin(), text.end(), needs_escape);
    const size_t plain = static_cast<size_t>(stop - text.begin());
    out.append(text.substr(0, plain));
    if (plain == text.size()) return;
    switch (const char c = text[plain]) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(plain + 1);
  }
}

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  append_json_escaped(text, out);
  out += '"';
}

void append_python_json(const JsonValue& value, std::string& out) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      out += "null";
      return;
    case JsonValue::Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case JsonValue::Kind::kNumber:
      append_number(value, out);
      return;
    case JsonValue::Kind::kString:
      append_json_string(value.text(), out);
      return;
    case JsonValue::Kind::kArray: {
      out += '[';
      bool first = true;
      for (const JsonValue& item : value.items()) {
        if (!first) out += ", ";
        first = false;
        append_python_json(item, out);
      }
      out += ']';
      return;
    }
    case JsonValue::Kind::kObject: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.members()) {
        if (!first) out += ", ";
        first = false;
        append_json_string(key, out);
        out += ": ";
        append_python_json(item, out);
      }
      out += '}';
      return;
    }
  }
}

std::string python_json(const JsonValue& value) {
  std::string out;
  append_python_json(value, out);
  return out;
}

}  // namespace cedra::text

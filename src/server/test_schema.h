// Test support: values against the schemas of the OpenAPI document. Knows the keywords that the
// document uses, and fails on others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "server/openapi.h"
#include "text/json_value.h"

namespace cedra::server::testing {

class Schemas {
 public:
  static const Schemas& get() {
    static const Schemas schemas;
    return schemas;
  }

  const text::JsonValue& document() const { return document_; }
  const text::JsonValue& named(std::string_view name) const {
    return *document_.find("components")->find("schemas")->find(name);
  }

  // "" if `value` fits, else where and why not.
  std::string check(const text::JsonValue& value, const text::JsonValue& schema,
                    const std::string& where = "$") const {
    if (const text::JsonValue* ref = schema.find("$ref")) {
      return check(value, named(ref->text().substr(ref->text().rfind('/') + 1)), where);
    }
    std::string problem;
    for (const auto& [keyword, rule] : schema.members()) {
      if (problem.empty()) problem = check_keyword(keyword, rule, value, schema, where);
    }
    return problem;
  }

 private:
  using JsonValue = text::JsonValue;

  Schemas() {
    Result<JsonValue> read = text::JsonReader().read(openapi_json());
    EXPECT_TRUE(read.has_value()) << "openapi.json is not JSON";
    if (read) document_ = *std::move(read);
  }

  static bool is_type(const JsonValue& value, std::string_view type) {
    return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
           (type == "string" && value.is_string()) || (type == "boolean" && value.is_bool()) ||
           (type == "null" && value.is_null()) || (type == "number" && value.is_number()) ||
           (type == "integer" && value.is_integer());
  }

  static std::string short_text(const JsonValue& value) {
    return text::python_json(value).substr(0, 200);
  }

  std::string check_keyword(std::string_view keyword, const JsonValue& rule, const JsonValue& value,
                            const JsonValue& schema, const std::string& where) const {
    const auto number = [](const JsonValue& v) { return v.as_double().value_or(0); };
    const auto bad = [&] {
      return where + " breaks " + std::string(keyword) + " " + short_text(rule) + ": " +
             short_text(value);
    };
    if (keyword == "type") {
      bool fits = rule.is_string() && is_type(value, rule.text());
      for (const JsonValue& type : rule.items()) fits |= is_type(value, type.text());
      return fits ? "" : bad();
    }
    if (keyword == "enum") {
      const bool fits = std::ranges::any_of(rule.items(), [&](const JsonValue& one) {
        return text::python_json(one) == text::python_json(value);
      });
      return fits ? "" : bad();
    }
    if (keyword == "anyOf") {
      std::string problems;
      for (const JsonValue& one : rule.items()) {
        const std::string problem = check(value, one, where);
        if (problem.empty()) return "";
        problems += "\n  " + problem;
      }
      return where + " fits none of anyOf:" + problems;
    }
    if (keyword == "minimum")
      return number(value) >= number(rule) || !value.is_number() ? "" : bad();
    if (keyword == "maximum")
      return number(value) <= number(rule) || !value.is_number() ? "" : bad();
    if (keyword == "exclusiveMinimum") {
      return number(value) > number(rule) || !value.is_number() ? "" : bad();
    }
    const auto count = static_cast<int64_t>(value.items().size());
    if (keyword == "minItems") return count >= rule.as_int64() || !value.is_array() ? "" : bad();
    if (keyword == "maxItems") return count <= rule.as_int64() || !value.is_array() ? "" : bad();
    if (keyword == "minLength") return !value.is_string() || !value.text().empty() ? "" : bad();
    if (keyword == "required") {
      for (const JsonValue& name : rule.items()) {
        if (value.is_object() && value.find(name.text()) == nullptr) {
          return where + " lacks " + name.text() + ": " + short_text(value);
        }
      }
      return "";
    }
    if (keyword == "properties") {
      for (const auto& [name, member] : rule.members()) {
        const JsonValue* present = value.find(name);
        if (present == nullptr) continue;
        std::string problem = check(*present, member, where + "." + name);
        if (!problem.empty()) return problem;
      }
      return "";
    }
    if (keyword == "additionalProperties") {
      for (const auto& [name, member] : value.members()) {
        const JsonValue* known = schema.find("properties");
        if (!rule.as_bool() && (known == nullptr || known->find(name) == nullptr)) {
          return where + " has an unknown member " + name;
        }
      }
      return "";
    }
    if (keyword == "items") {
      for (size_t i = 0; i < value.items().size(); ++i) {
        std::string problem = check(value.items()[i], rule, where + "." + std::to_string(i));
        if (!problem.empty()) return problem;
      }
      return "";
    }
    if (keyword == "description" || keyword == "maxProperties") return "";
    return where + ": this check does not know the keyword " + std::string(keyword);
  }

  JsonValue document_;
};

}  // namespace cedra::server::testing

// JSON Schema to grammar rules. Which keywords are understood, and what is made of them, is in
// docs/structured_output.md; any other is an error that names it and where it stands.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decode/grammar_json.h"
#include "decode/grammar_language.h"
#include "text/json_value.h"

namespace cedra::decode {

inline constexpr int kMaxSchemaDepth = 200;  // schemas in schemas, references followed
// JSON values in schemas that are made from allOf, anyOf and $ref with keywords beside them.
inline constexpr int64_t kMaxMergedValues = int64_t{1} << 18;

// Sets of JSON's types.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kNullType = 1, kBooleanType = 2, kIntegerType = 4, kFractionType = 8,
                           kStringType = 16, kArrayType = 32, kObjectType = 64, kAnyType = 127;
inline constexpr JsonTypes kNumberType = kIntegerType | kFractionType;

class SchemaCompiler {
 public:
  // `root`: where "#" points; it outlives the compiler. `where`: what errors call it.
  SchemaCompiler(JsonRules& json, const text::JsonValue& root, std::string where)
      : json_(&json), root_(&root), where_(std::move(where)) {}

  // Errors: kInvalid for a broken schema, kUnsupported for what cannot be held to, both with the
  // keyword and its path; kTooLarge past kMaxSchemaDepth.
  Result<NodeId> compile(NodeId from) { return value(*root_, "#", from, {kAnyType, false}); }

  // How a schema's values are written: as JSON, those of some types only; or, raw, the strings
  // alone, as they are, without quotes and without what would be markup.
  struct Form {
    JsonTypes types = kAnyType;
    bool raw = false;
    auto operator<=>(const Form&) const = default;
  };
  Result<NodeId> value(const text::JsonValue& schema, const std::string& path, NodeId from,
                       Form form);

  struct Property {
    std::string name;
    const text::JsonValue* schema = nullptr;  // nullptr: anything
    std::string path;
    bool required = false;
  };
  // Members that are not listed: their names, and what they hold.
  struct Extra {
    CharDfa names;
    const text::JsonValue* schema = nullptr;
    std::string path;
  };
  struct Object {
    std::vector<Property> properties;  // in their order
    std::vector<Extra> extras;
    bool not_empty = false;
    int64_t most_extras = -1;  // -1: any number
  };
  // What the schema says of objects.
  Result<Object> read_object(const text::JsonValue& schema, const std::string& path);
  // The schema with its references and allOf put in.
  Result<const text::JsonValue*> flatten(const text::JsonValue& schema, const std::string& path);
  Result<> check_keywords(const text::JsonValue& schema, const std::string& path) const;
  const std::string& where() const { return where_; }
  // nullptr: anything.
  Result<NodeId> member(const text::JsonValue* schema, const std::string& path, NodeId from,
                        Form form);

 private:
  // Raises a counter while it lives.
  class Deeper {
   public:
    explicit Deeper(int& depth) : depth_(&depth) { ++*depth_; }
    ~Deeper() { --*depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    int* depth_;
  };
  struct Strings {  // what the schema says of strings
    std::vector<CharNfa> languages;
    int64_t low = 0;
    int64_t high = -1;
  };
  std::unexpected<Error> unsupported(const std::string& path, std::string_view keyword,
                                     std::string_view why = {}) const;
  std::unexpected<Error> invalid(const std::string& path, std::string_view keyword,
                                 std::string_view what) const;
  // Counts work that grows faster than the schema.
  Result<> spend(size_t a, size_t b, const std::string& path);
  std::unexpected<Error> too_deep(const std::string& path) const;

  Result<JsonTypes> types_of(const text::JsonValue& schema, const std::string& path) const;
  Result<std::optional<int64_t>> count(const text::JsonValue& schema, const std::string& path,
                                       std::string_view keyword) const;
  Result<const text::JsonValue*> resolve(const std::string& reference, const std::string& path);

  Result<text::JsonValue> merge(const text::JsonValue& a, const text::JsonValue& b,
                                const std::string& path);
  Result<> merge_keyword(text::JsonValue& a, const std::string& keyword,
                         const text::JsonValue& value, const std::string& path);
  // Whether no value can be valid under both, for all that can be seen.
  Result<bool> exclusive(const text::JsonValue& a, const text::JsonValue& b,
                         const std::string& path, int depth);

  Result<RuleId> rule_of(const text::JsonValue& schema, const std::string& path, Form form);
  Result<NodeId> any(NodeId from, Form form);
  Result<NodeId> plain(const text::JsonValue& schema, const std::string& path, NodeId from,
                       Form form);
  Result<NodeId> alternatives(const text::JsonValue& schema, const std::string& path,
                              const std::string& keyword, NodeId from, Form form);
  Result<NodeId> listed(const text::JsonValue& schema, const std::string& path, NodeId from,
                        Form form);
  Result<NodeId> number(const text::JsonValue& schema, const std::string& path, NodeId from,
                        JsonTypes types);
  Result<Strings> read_strings(const text::JsonValue& schema, const std::string& path) const;
  Result<NodeId> string(const text::JsonValue& schema, const std::string& path, NodeId from,
                        bool raw);
  Result<NodeId> raw_string(const Strings& strings, const std::string& path, NodeId from);
  Result<NodeId> array(const text::JsonValue& schema, const std::string& path, NodeId from);
  Result<NodeId> object(const text::JsonValue& schema, const std::string& path, NodeId from);
  Result<> add_extras(Object& out, const text::JsonValue& schema, const std::string& path);
  Result<> limit_members(Object& out, const text::JsonValue& schema, const std::string& path) const;

  RuleBuilder& builder() { return json_->builder(); }

  JsonRules* json_;
  const text::JsonValue* root_;
  std::string where_;
  int depth_ = 0;
  int64_t merged_values_ = 0;           // in merged_
  std::deque<text::JsonValue> merged_;  // schemas that stand nowhere
  std::map<const text::JsonValue*, const text::JsonValue*> flat_;
  std::map<std::pair<const text::JsonValue*, Form>, RuleId> rules_;
  std::optional<RuleId> free_text_;
};

// "#/properties/a~1b": one step further down.
std::string schema_path(const std::string& path, std::string_view step);

// The texts of a format, or nullopt for one that is not known.
std::optional<std::string_view> format_pattern(std::string_view format);

}  // namespace cedra::decode

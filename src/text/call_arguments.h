// Puts together the JSON text of one call's arguments while its markup arrives (spec chat.md 3.2):
// strings as they come, other values once they are whole, because only then it is known whether
// they are JSON. Internal to the output parser.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "text/chat.h"
#include "text/json_value.h"

namespace cedra::text {

class CallArguments {
 public:
  // `tool` is the declared tool of that name, or nullptr. It must outlive this object.
  explicit CallArguments(const ToolDefinition* tool) : tool_(tool) {}

  enum class Flag { kNone, kString, kJson };  // the tag's string="..." attribute

  // Each adds to `out` the arguments' text that became certain.
  void begin_value(std::string_view key, Flag flag, std::string& out);
  void add_value(std::string_view piece, std::string& out);
  void end_value(std::string& out, JsonReader& reader);
  // Text inside the invoke element but in no parameter.
  void add_body(std::string_view piece);
  // Closes the arguments.
  void finish(std::string& out, JsonReader& reader);
  // The model was cut off: what is there goes out as it is, unfinished.
  void cut_off(std::string& out);

 private:
  enum class Mode { kOutside, kString, kJson, kWrapper, kDropped };
  bool has_property(std::string_view name) const;
  bool may_wrap(std::string_view key) const;
  void add_key(std::string_view key, std::string& out);
  void release_wrapper(std::string& out, JsonReader& reader);
  void add_json(std::string_view raw, std::string& out, JsonReader& reader) const;
  // The object inside wrappers {"arguments": {...}}; nullopt if the text is no JSON object.
  std::optional<std::string> unwrapped(std::string_view text, JsonReader& reader) const;

  const ToolDefinition* tool_;
  Mode mode_ = Mode::kOutside;
  bool opened_ = false;  // the opening brace is out
  std::string key_;
  std::string value_;
  std::string body_;
  std::unordered_set<std::string> keys_;
  // A whole first parameter "arguments" or "input" that the schema lacks: if it stays alone and is
  // an object, it is the arguments.
  struct Wrapper {
    std::string key;
    std::string value;
    bool is_string = false;
  };
  std::optional<Wrapper> wrapper_;
  bool wrapper_is_string_ = false;
};

}  // namespace cedra::text

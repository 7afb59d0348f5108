// The values of one call, and the repairs: wrappers, bodies, cut-off values.
#include "text/call_arguments.h"

#include <algorithm>

namespace cedra::text {
namespace {

bool is_wrapper_name(std::string_view name) { return name == "arguments" || name == "input"; }

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

bool CallArguments::has_property(std::string_view name) const {
  return tool_ != nullptr && std::ranges::any_of(tool_->properties, [&](const ToolProperty& p) {
           return p.name == name;
         });
}

// Only where the schema is known, and does not have the name itself.
bool CallArguments::may_wrap(std::string_view key) const {
  return tool_ != nullptr && is_wrapper_name(key) && !has_property(key);
}

void CallArguments::add_key(std::string_view key, std::string& out) {
  out += opened_ ? ", " : "{";
  opened_ = true;
  append_json_string(key, out);
  out += ": ";
}

void CallArguments::begin_value(std::string_view key, Flag flag, std::string& out) {
  key_ = key;
  value_.clear();
  const bool first = keys_.empty();
  if (!keys_.insert(key_).second) {
    mode_ = Mode::kDropped;  // what is sent cannot be taken back, so the first one stays
    return;
  }
  if (flag == Flag::kNone) {
    const bool is_string =
        tool_ != nullptr && std::ranges::any_of(tool_->properties, [&](const ToolProperty& p) {
          return p.name == key && p.is_string;
        });
    flag = is_string ? Flag::kString : Flag::kJson;
  }
  if (first && may_wrap(key)) {
    mode_ = Mode::kWrapper;
    wrapper_is_string_ = flag == Flag::kString;
  } else if (flag == Flag::kString) {
    mode_ = Mode::kString;
    if (wrapper_) return;  // end_value() brings both, in order
    add_key(key_, out);
    out += '"';
  } else {
    mode_ = Mode::kJson;
  }
}

void CallArguments::add_value(std::string_view piece, std::string& out) {
  if (mode_ == Mode::kDropped || mode_ == Mode::kOutside) return;
  if (mode_ == Mode::kString && !wrapper_) {
    append_json_escaped(piece, out);
  } else {
    value_ += piece;
  }
}

void CallArguments::add_json(std::string_view raw, std::string& out, JsonReader& reader) const {
  if (reader.valid(raw)) {
    out += raw;
  } else {
    append_json_string(raw, out);
  }
}

void CallArguments::release_wrapper(std::string& out, JsonReader& reader) {
  if (!wrapper_) return;
  const Wrapper wrapper = std::move(*wrapper_);
  wrapper_.reset();
  add_key(wrapper.key, out);
  if (wrapper.is_string) {
    append_json_string(wrapper.value, out);
  } else {
    add_json(wrapper.value, out, reader);
  }
}

void CallArguments::end_value(std::string& out, JsonReader& reader) {
  const Mode mode = mode_;
  mode_ = Mode::kOutside;
  switch (mode) {
    case Mode::kWrapper:
      wrapper_ = Wrapper{key_, std::move(value_), wrapper_is_string_};
      break;
    case Mode::kString:
      if (wrapper_) {
        release_wrapper(out, reader);
        add_key(key_, out);
        append_json_string(value_, out);
      } else {
        out += '"';
      }
      break;
    case Mode::kJson:
      release_wrapper(out, reader);
      add_key(key_, out);
      add_json(value_, out, reader);
      break;
    case Mode::kDropped:
    case Mode::kOutside:
      break;
  }
}

void CallArguments::add_body(std::string_view piece) {
  if (!keys_.empty()) return;  // stray text between parameters
  if (body_.empty()) piece.remove_prefix(std::min(piece.find_first_not_of(kSpace), piece.size()));
  body_ += piece;
}

std::optional<std::string> CallArguments::unwrapped(std::string_view text,
                                                    JsonReader& reader) const {
  text = trimmed(text);
  auto value = reader.read(text);
  if (!value || !value->is_object()) return std::nullopt;
  const JsonValue* inner = &*value;
  while (inner->members().size() == 1 && inner->members().front().second.is_object() &&
         may_wrap(inner->members().front().first)) {
    inner = &inner->members().front().second;
  }
  return inner == &*value ? std::string(text) : python_json(*inner);
}

void CallArguments::finish(std::string& out, JsonReader& reader) {
  if (mode_ != Mode::kOutside) end_value(out, reader);
  if (wrapper_) {
    if (auto object = unwrapped(wrapper_->value, reader)) {
      out += *object;
      return;
    }
    release_wrapper(out, reader);
  }
  if (!opened_ && keys_.empty() && !body_.empty()) {
    if (auto object = unwrapped(body_, reader)) {
      out += *object;
      return;
    }
    // As the prompt encoder writes arguments that are no object.
    add_key("arguments", out);
    append_json_string(trimmed(body_), out);
  }
  out += opened_ ? "}" : "{}";
}

void CallArguments::cut_off(std::string& out) {
  const auto add_raw = [&](std::string_view key, std::string_view value, bool is_string) {
    add_key(key, out);
    if (is_string) {
      out += '"';
      append_json_escaped(value, out);
    } else {
      out += value;
    }
  };
  if (wrapper_) {
    add_raw(wrapper_->key, wrapper_->value, wrapper_->is_string);
    if (wrapper_->is_string) out += '"';
    if (mode_ == Mode::kString) add_raw(key_, value_, true);
  }
  if (mode_ == Mode::kJson) add_raw(key_, value_, false);
  if (mode_ == Mode::kWrapper) add_raw(key_, value_, wrapper_is_string_);
  if (!opened_) out += body_;
  wrapper_.reset();
  mode_ = Mode::kOutside;
}

}  // namespace cedra::text

// Strings and the members of objects.
#include <algorithm>

#include "decode/grammar_regex.h"
#include "decode/grammar_schema.h"

namespace cedra::decode {

using text::JsonValue;

namespace {

constexpr int64_t kMaxExtras = 1024;  // of maxProperties without listed properties

// Texts that are valid for sure; less than what the standards allow.
struct Format {
  std::string_view name;
  std::string_view pattern;
};
#define CEDRA_DATE                                                                         \
  "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
  "02-(0[1-9]|1[0-9]|2[0-8]))"
#define CEDRA_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define CEDRA_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define CEDRA_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define CEDRA_HOST CEDRA_LABEL "(\\." CEDRA_LABEL "){0,3}"
constexpr Format kFormats[] = {
    {"date", CEDRA_DATE},
    {"time", CEDRA_TIME},
    {"date-time", CEDRA_DATE "T" CEDRA_TIME},
    {"duration",
     "P([0-9]{1,9}W|[0-9]{1,9}D(T[0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?)?|"
     "T[0-9]{1,9}(H([0-9]{1,9}M([0-9]{1,9}S)?)?|M([0-9]{1,9}S)?|S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email",
     "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30}){0,2}@" CEDRA_LABEL "(\\." CEDRA_LABEL "){1,3}"},
    {"hostname", CEDRA_HOST},
    {"ipv4", CEDRA_BYTE "(\\." CEDRA_BYTE "){3}"},
    {"ipv6", "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"},
    {"uri", "(https?|ftp)://" CEDRA_HOST
            "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]*)*(\\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?"},
};
#undef CEDRA_DATE
#undef CEDRA_TIME
#undef CEDRA_BYTE
#undef CEDRA_LABEL
#undef CEDRA_HOST

bool accepts(const CharDfa& dfa, std::string_view text) {
  int32_t state = 0;
  for (const char32_t c : to_chars(text)) {
    const auto at = std::upper_bound(dfa.class_low.begin(), dfa.class_low.end(), c);
    const auto column = static_cast<size_t>(at - dfa.class_low.begin()) - 1;
    state = dfa.next[static_cast<size_t>(state) * dfa.classes() + column];
    if (state == CharDfa::kNone) return false;
  }
  return dfa.accepting[static_cast<size_t>(state)] != 0;
}

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view format) {
  const auto* known = std::ranges::find(kFormats, format, &Format::name);
  if (known == std::end(kFormats)) return std::nullopt;
  return known->pattern;
}

Result<SchemaCompiler::Strings> SchemaCompiler::read_strings(const JsonValue& schema,
                                                             const std::string& path) const {
  Strings out;
  CEDRA_ASSIGN(const std::optional<int64_t> low, count(schema, path, "minLength"));
  CEDRA_ASSIGN(const std::optional<int64_t> high, count(schema, path, "maxLength"));
  out.low = low.value_or(0);
  out.high = high.value_or(-1);
  const auto add = [&](const char* keyword, std::string_view regex, bool anywhere) -> Result<> {
    Result<CharNfa> nfa = parse_regex(regex, anywhere);
    if (!nfa) {
      return err(nfa.error().code, "{}: \"{}\" at {}: {}", where_, keyword, path.substr(0, 400),
                 nfa.error().message);
    }
    out.languages.push_back(*std::move(nfa));
    return {};
  };
  if (const JsonValue* pattern = schema.find("pattern")) {
    if (!pattern->is_string()) return invalid(path, "pattern", "must be a string");
    CEDRA_TRY(add("pattern", pattern->text(), true));
  }
  if (const JsonValue* format = schema.find("format")) {
    if (!format->is_string()) return invalid(path, "format", "must be a string");
    const std::optional<std::string_view> regex = format_pattern(format->text());
    if (!regex) {
      return unsupported(path, "format", fmt::format("with \"{}\"", format->text().substr(0, 40)));
    }
    CEDRA_TRY(add("format", *regex, false));
  }
  return out;
}

Result<NodeId> SchemaCompiler::string(const JsonValue& schema, const std::string& path, NodeId from,
                                      bool raw) {
  CEDRA_ASSIGN(const Strings strings, read_strings(schema, path));
  if (raw) return raw_string(strings, path, from);
  if (strings.languages.empty()) return json_->string(from, strings.low, strings.high);
  RuleBuilder& out = builder();
  const NodeId begin = out.literal(from, "\"");
  const NodeId end = out.node(begin);
  const auto failed = [&](const Error& error) {
    return err(error.code, "{}: the string at {} {}", where_, path.substr(0, 400), error.message);
  };
  if (strings.languages.size() == 1 && strings.low == 0 && strings.high < 0) {
    const Result<> added = add_regex(out, begin, strings.languages[0], end, json_->spelling());
    if (!added) return failed(added.error());
    return out.literal(end, "\"");
  }
  CharDfa all = CharDfa::length(strings.low, strings.high);
  for (const CharNfa& nfa : strings.languages) {
    const Result<CharDfa> one = determinize(nfa, out);
    if (!one) return failed(one.error());
    Result<CharDfa> both = intersect(*one, all, out);
    if (!both) return failed(both.error());
    all = *std::move(both);
  }
  add_language(out, begin, all, end, json_->spelling());
  return out.literal(end, "\"");
}

Result<NodeId> SchemaCompiler::raw_string(const Strings& strings, const std::string& path,
                                          NodeId from) {
  RuleBuilder& out = builder();
  const NodeId to = out.node(from);
  CharDfa all = CharDfa::avoiding(markup_beginnings());
  if (strings.languages.empty() && strings.low == 0 && strings.high < 0) {
    if (!free_text_) {
      free_text_ = out.rule("text");
      add_language(out, out.start(*free_text_), all, out.end(*free_text_), Spelling::kText);
    }
    out.call(from, *free_text_, to);
    return to;
  }
  std::vector<CharDfa> others{CharDfa::length(strings.low, strings.high)};
  for (const CharNfa& nfa : strings.languages) {
    Result<CharDfa> one = determinize(nfa, out);
    if (one) {
      others.push_back(*std::move(one));
      continue;
    }
    return err(one.error().code, "{}: the string at {} {}", where_, path.substr(0, 400),
               one.error().message);
  }
  for (const CharDfa& other : others) {
    Result<CharDfa> both = intersect(all, other, out);
    if (!both) {
      return err(both.error().code, "{}: the string at {} {}", where_, path.substr(0, 400),
                 both.error().message);
    }
    all = *std::move(both);
  }
  add_language(out, from, all, to, Spelling::kText);
  return to;
}

Result<SchemaCompiler::Object> SchemaCompiler::read_object(const JsonValue& schema,
                                                           const std::string& path) {
  Object out;
  const JsonValue* properties = schema.find("properties");
  const JsonValue* required = schema.find("required");
  if (properties != nullptr && !properties->is_object()) {
    return invalid(path, "properties", "must be an object");
  }
  if (required != nullptr &&
      (!required->is_array() || !std::ranges::all_of(required->items(), &JsonValue::is_string))) {
    return invalid(path, "required", "must be a list of strings");
  }
  const std::string below = schema_path(path, "properties");
  std::map<std::string, size_t, std::less<>> index;
  if (properties != nullptr) {
    for (const auto& [name, sub] : properties->members()) {
      index.emplace(name, out.properties.size());
      out.properties.push_back({name, &sub, schema_path(below, name), false});
    }
  }
  const size_t listed = out.properties.size();
  if (required != nullptr) {
    for (const JsonValue& name : required->items()) {
      const auto [at, fresh] = index.emplace(name.text(), out.properties.size());
      if (fresh) out.properties.push_back({name.text(), nullptr, {}, true});
      out.properties[at->second].required = true;
    }
  }
  CEDRA_TRY(add_extras(out, schema, path));
  // Demanded, but not listed: what the others hold.
  for (size_t i = listed; i < out.properties.size(); ++i) {
    Property& property = out.properties[i];
    const JsonValue* extra = schema.find("additionalProperties");
    property.schema = extra;
    property.path = schema_path(path, "additionalProperties");
    if (extra != nullptr && extra->is_bool()) {
      if (!extra->as_bool()) {
        return invalid(path, "required",
                       fmt::format("demands \"{}\", which is not among the properties, and "
                                   "additionalProperties is false",
                                   property.name.substr(0, 100)));
      }
      property.schema = nullptr;
    }
  }
  CEDRA_TRY(limit_members(out, schema, path));
  return out;
}

// patternProperties and additionalProperties. Where neither says anything, objects with properties
// have no others.
Result<> SchemaCompiler::add_extras(Object& out, const JsonValue& schema, const std::string& path) {
  const JsonValue* patterns = schema.find("patternProperties");
  const JsonValue* additional = schema.find("additionalProperties");
  if (const JsonValue* rest = schema.find("unevaluatedProperties")) {
    const bool no_more = rest->is_bool() && !rest->as_bool();
    if (!no_more || (additional != nullptr && !(additional->is_bool() && !additional->as_bool()))) {
      return unsupported(path, "unevaluatedProperties", "unless false");
    }
    if (additional == nullptr && patterns == nullptr && schema.find("properties") == nullptr) {
      return {};
    }
  }
  const auto failed = [&](const Error& error, const std::string& at) {
    return err(error.code, "{}: the names at {}: {}", where_, at.substr(0, 400), error.message);
  };
  std::vector<std::string> names;
  for (const Property& property : out.properties) names.push_back(property.name);
  std::vector<Extra> matched;
  if (patterns != nullptr && !patterns->is_object()) {
    return invalid(path, "patternProperties", "must be an object");
  }
  for (size_t i = 0; patterns != nullptr && i < patterns->members().size(); ++i) {
    const auto& [pattern, sub] = patterns->members()[i];
    const std::string at = schema_path(schema_path(path, "patternProperties"), pattern);
    const Result<CharNfa> nfa = parse_regex(pattern, true);
    if (!nfa) return failed(nfa.error(), at);
    Result<CharDfa> dfa = determinize(*nfa, builder());
    if (!dfa) return failed(dfa.error(), at);
    for (const std::string& name : names) {
      if (accepts(*dfa, name)) {
        return unsupported(path, "patternProperties",
                           fmt::format("where a pattern also matches \"{}\"", name.substr(0, 100)));
      }
    }
    matched.push_back({*std::move(dfa), &sub, at});
  }
  // A name belongs to one pattern: what several match is left out.
  for (size_t i = 0; i < matched.size(); ++i) {
    Extra extra = matched[i];
    for (size_t k = 0; k < matched.size(); ++k) {
      if (k == i) continue;
      Result<CharDfa> less = intersect(extra.names, matched[k].names, builder(), true);
      if (!less) return failed(less.error(), extra.path);
      extra.names = *std::move(less);
    }
    out.extras.push_back(std::move(extra));
  }
  const bool closed = additional == nullptr
                          ? schema.find("properties") != nullptr || patterns != nullptr
                          : additional->is_bool() && !additional->as_bool();
  if (closed) return {};
  Extra others;
  others.path = schema_path(path, "additionalProperties");
  if (additional != nullptr && !additional->is_bool()) others.schema = additional;
  Result<CharDfa> rest =
      intersect(CharDfa::length(0, -1), CharDfa::literals(names), builder(), true);
  for (size_t i = 0; rest.has_value() && i < matched.size(); ++i) {
    rest = intersect(*rest, matched[i].names, builder(), true);
  }
  if (!rest) return failed(rest.error(), others.path);
  others.names = *std::move(rest);
  out.extras.push_back(std::move(others));
  return {};
}

// minProperties and maxProperties, where it can be told from the lists.
Result<> SchemaCompiler::limit_members(Object& out, const JsonValue& schema,
                                       const std::string& path) const {
  CEDRA_ASSIGN(const std::optional<int64_t> least, count(schema, path, "minProperties"));
  CEDRA_ASSIGN(const std::optional<int64_t> most, count(schema, path, "maxProperties"));
  const auto listed = static_cast<int64_t>(out.properties.size());
  const int64_t required = std::ranges::count(out.properties, true, &Property::required);
  if (least.value_or(0) > required) {
    if (*least == 1) {
      out.not_empty = true;
    } else if (*least == listed) {
      for (Property& property : out.properties) property.required = true;
    } else {
      return unsupported(path, "minProperties",
                         "unless 1, or met by the required properties, or by all listed ones");
    }
  }
  if (most && (!out.extras.empty() || *most < listed)) {
    if (*most < required)
      return invalid(path, "maxProperties", "is below the number of required ones");
    if (listed > required || *most - required > kMaxExtras) {
      return unsupported(path, "maxProperties",
                         fmt::format("beside optional properties, or above {}", kMaxExtras));
    }
    out.most_extras = *most - required;
  }
  return {};
}

}  // namespace cedra::decode

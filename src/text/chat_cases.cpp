// One function per kind of case; each returns "" or what differs.
#include "text/chat_cases.h"

#include <algorithm>
#include <random>

#include "text/chat_json.h"
#include "text/output_parser.h"
#include "text/request_parts.h"

namespace cedra::text {
namespace {

using detail::present;

constexpr size_t kExcerpt = 40;

std::string json_text(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

// The text around a place, cut at character borders.
std::string excerpt(std::string_view text, size_t at) {
  const auto inside = [&](size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  size_t begin = at > kExcerpt ? at - kExcerpt : 0;
  size_t end = std::min(at + kExcerpt, text.size());
  while (inside(begin)) ++begin;
  while (inside(end)) --end;
  return json_text(text.substr(begin, end > begin ? end - begin : 0));
}

std::string_view text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = present(object, key);
  return value == nullptr ? std::string_view() : std::string_view(value->text());
}

bool flag_of(const JsonValue& object, std::string_view key, bool fallback) {
  const JsonValue* value = present(object, key);
  return value == nullptr ? fallback : value->as_bool();
}

std::string compare(std::string_view what, std::string_view expected, std::string_view actual) {
  const std::string difference = first_difference(expected, actual);
  return difference.empty() ? "" : fmt::format("{}: {}", what, difference);
}

std::string_view start_name(ParserStart start) {
  switch (start) {
    case ParserStart::kReasoning:
      return "reasoning";
    case ParserStart::kContent:
      return "content";
    case ParserStart::kCalls:
      return "calls";
  }
  return "";
}

std::string compare_ids(const JsonValue& expected, std::span<const int32_t> actual) {
  for (size_t i = 0; i < std::max(expected.items().size(), actual.size()); ++i) {
    const int64_t want =
        i < expected.items().size() ? expected.items()[i].as_int64().value_or(-2) : -1;
    const int64_t got = i < actual.size() ? actual[i] : -1;
    if (want != got) {
      return fmt::format("ids: at {} expected {}, got {} (-1: none)", i, want, got);
    }
  }
  return "";
}

// What a case says about the ids of its prompt.
std::string check_ids(const JsonValue& test, const Prompt& prompt, const CaseOptions& options) {
  const JsonValue* counts = present(test, "id_counts");
  const JsonValue* row = present(test, "contains_ids");
  if (counts == nullptr && row == nullptr) return "";
  if (options.tokenizer == nullptr) return "ids are compared, but no tokenizer is given";
  const std::vector<int32_t> ids = options.tokenizer->encode(prompt.segments);
  if (counts != nullptr) {
    for (const auto& [token, count] : counts->members()) {
      const auto id = options.tokenizer->added_id(token);
      if (!id) return fmt::format("the tokenizer has no added token {}", json_text(token));
      const auto found = std::ranges::count(ids, *id);
      if (found != count.as_int64().value_or(-1)) {
        return fmt::format("token {}: expected {} times, got {}", json_text(token), count.text(),
                           found);
      }
    }
  }
  if (row != nullptr) {
    std::vector<int32_t> wanted;
    for (const JsonValue& id : row->items()) {
      wanted.push_back(static_cast<int32_t>(id.as_int64().value_or(-1)));
    }
    if (std::ranges::search(ids, wanted).empty()) return "the ids of contains_ids are not in a row";
  }
  return "";
}

std::string check_lists(const JsonValue& test, const Prompt& prompt,
                        const std::vector<std::string>& warnings) {
  if (const JsonValue* expected = present(test, "warnings")) {
    std::string want;
    std::string got;
    for (const JsonValue& text : expected->items()) want.append(text.text()).append("\n");
    for (const std::string& text : warnings) got.append(text).append("\n");
    if (auto text = compare("warnings", want, got); !text.empty()) return text;
  }
  if (const JsonValue* expected = present(test, "images")) {
    std::string want;
    std::string got;
    for (const JsonValue& text : expected->items()) want.append(text.text()).append("\n");
    for (const PromptImage& image : prompt.images) got.append(image.source).append("\n");
    if (auto text = compare("images", want, got); !text.empty()) return text;
  }
  return "";
}

std::string check_prompt(const JsonValue& test, const Prompt& prompt,
                         const std::vector<std::string>& warnings, const CaseOptions& options) {
  if (present(test, "prompt") != nullptr) {
    if (auto text = compare("prompt", text_of(test, "prompt"), prompt.text()); !text.empty()) {
      return text;
    }
  }
  if (present(test, "start") != nullptr) {
    if (auto text = compare("start", text_of(test, "start"), start_name(prompt.start));
        !text.empty()) {
      return text;
    }
  }
  if (auto text = check_lists(test, prompt, warnings); !text.empty()) return text;
  return check_ids(test, prompt, options);
}

Result<std::pair<ParsedRequest, Prompt>> prompt_of(const JsonValue& test, const JsonValue& body) {
  const auto route = route_by_path(text_of(test, "path"));
  if (!route) return err(Code::kNotFound, "no route for path '{}'", text_of(test, "path"));
  RequestRules rules;
  rules.hosted = flag_of(test, "hosted", true);
  CEDRA_ASSIGN(auto request, parse_request(*route, python_json(body), rules));
  CEDRA_ASSIGN(auto prompt, encode_chat(request.conversation, request.options));
  return std::pair(std::move(request), std::move(prompt));
}

std::string check_request(const JsonValue& test, const CaseOptions& options) {
  const auto result = prompt_of(test, *present(test, "body"));
  if (present(test, "status") != nullptr) {
    if (result) return "expected a refusal, got a prompt";
    // Every refusal of the vectors is the caller's fault: HTTP 400.
    const int status = result.error().code == Code::kInvalid ? 400 : 500;
    if (auto text = compare("status", text_of(test, "status"), std::to_string(status));
        !text.empty()) {
      return text;
    }
    return compare("message", text_of(test, "message"), result.error().message);
  }
  if (!result) return "refused: " + result.error().message;
  return check_prompt(test, result->second, result->first.warnings, options);
}

std::string check_same(const JsonValue& test, const JsonValue& bodies, const CaseOptions& options) {
  std::string first;
  for (const JsonValue& body : bodies.items()) {
    const auto result = prompt_of(test, body);
    if (!result) return "refused: " + result.error().message;
    if (first.empty()) first = result->second.text();
    if (auto text = compare("prompt", first, result->second.text()); !text.empty()) return text;
    if (auto text = check_prompt(test, result->second, result->first.warnings, options);
        !text.empty()) {
      return text;
    }
  }
  return "";
}

std::string check_reference(const JsonValue& test, const CaseOptions& options) {
  const auto parsed = parse_reference_case(test);
  const auto prompt = parsed ? encode_chat(parsed->conversation, parsed->options)
                             : Result<Prompt>(std::unexpected(parsed.error()));
  if (present(test, "message") != nullptr) {
    if (prompt) return "expected a refusal, got a prompt";
    return compare("message", text_of(test, "message"), prompt.error().message);
  }
  if (!prompt) return "refused: " + prompt.error().message;
  return check_prompt(test, *prompt, {}, options);
}

// The parser's options from a parse case: tools_declared alone declares one unknown tool.
Result<ParserOptions> parser_options(const JsonValue& test) {
  ParserOptions out;
  out.eos_in_text = flag_of(test, "eos_in_text", true);
  if (flag_of(test, "thinking", false)) out.start = ParserStart::kReasoning;
  if (text_of(test, "start") == "calls") out.start = ParserStart::kCalls;
  if (const JsonValue* tools = present(test, "tools")) {
    CEDRA_ASSIGN(out.tools, parse_tools(*tools));
  } else if (flag_of(test, "tools_declared", false)) {
    out.tools.emplace_back();
  }
  if (const JsonValue* most = present(test, "max_calls")) {
    out.max_calls = static_cast<int>(most->as_int64().value_or(0));
  }
  return out;
}

std::string check_output(const JsonValue& test, const CaseOptions& options) {
  auto parser_settings = parser_options(test);
  if (!parser_settings) return parser_settings.error().message;
  OutputParser parser(std::move(*parser_settings));
  ParsedMessage message;
  for (const std::string_view piece : cut(text_of(test, "text"), options.feed)) {
    message.add(parser.push(piece));
  }
  // The texts say how they ended: with EOS, or by what finish_reason the case names.
  const std::string_view finish = text_of(test, "finish_reason");
  message.add(parser.finish(finish == "length" ? OutputEnd::kLength : OutputEnd::kEos));
  if (auto text = compare("message", python_json(*present(test, "expect")), message_json(message));
      !text.empty()) {
    return text;
  }
  if (const JsonValue* input = present(test, "custom_input")) {
    const std::string arguments = message.calls.empty() ? "" : message.calls.front().arguments;
    const auto raw = custom_tool_input(arguments);
    if (!raw) return "the first call is no free-text call";
    if (auto text = compare("custom_input", input->text(), *raw); !text.empty()) return text;
  }
  return compare("finish_reason", finish, finish_name(parser.finish_reason()));
}

std::string check_tokens(const JsonValue& test, const JsonValue& ids, const CaseOptions& options) {
  if (options.tokenizer == nullptr) return "ids are compared, but no tokenizer is given";
  const std::vector<int32_t> actual = options.tokenizer->encode(text_of(test, "text"));
  return compare_ids(ids, actual);
}

void check_list(const JsonValue& list, const CaseOptions& options, CaseReport& report) {
  for (const JsonValue& test : list.items()) {
    std::string name(text_of(test, "name"));
    if (name.empty()) name = fmt::format("case {}", report.run);
    ++report.run;
    std::string text = check_case(test, options);
    if (!text.empty()) report.differences.push_back({std::move(name), std::move(text)});
  }
}

}  // namespace

std::vector<std::string_view> cut(std::string_view text, const FeedPlan& plan) {
  std::vector<std::string_view> pieces;
  switch (plan.kind) {
    case FeedPlan::Kind::kWhole:
      pieces.push_back(text);
      break;
    case FeedPlan::Kind::kPieces:
      for (size_t at = 0; at < text.size(); at += std::max<size_t>(plan.number, 1)) {
        pieces.push_back(text.substr(at, std::max<size_t>(plan.number, 1)));
      }
      break;
    case FeedPlan::Kind::kTwoParts: {
      const size_t at = std::min(plan.number, text.size());
      pieces.push_back(text.substr(0, at));
      pieces.push_back(text.substr(at));
      break;
    }
    case FeedPlan::Kind::kRandom: {
      std::mt19937_64 random(plan.number);
      for (size_t at = 0; at < text.size();) {
        // Mostly a few bytes, as tokens are; sometimes many.
        const size_t most = random() % 8 == 0 ? 64 : 6;
        const size_t size = 1 + random() % most;
        pieces.push_back(text.substr(at, size));
        at += size;
      }
      break;
    }
  }
  return pieces;
}

std::string first_difference(std::string_view expected, std::string_view actual) {
  if (expected == actual) return "";
  const auto [left, right] = std::ranges::mismatch(expected, actual);
  const size_t at = static_cast<size_t>(left - expected.begin());
  return fmt::format("differs at byte {}\n  expected {}\n  got      {}", at, excerpt(expected, at),
                     excerpt(actual, at));
}

std::string check_case(const JsonValue& test, const CaseOptions& options) {
  if (!test.is_object()) return "a case must be an object";
  if (const JsonValue* bodies = present(test, "bodies")) return check_same(test, *bodies, options);
  if (present(test, "body") != nullptr) return check_request(test, options);
  if (present(test, "messages") != nullptr) return check_reference(test, options);
  if (present(test, "expect") != nullptr) return check_output(test, options);
  if (const JsonValue* ids = present(test, "ids")) return check_tokens(test, *ids, options);
  return "the case has none of the known keys (body, bodies, messages, expect, ids)";
}

Result<CaseReport> check_cases(std::string_view file, const CaseOptions& options) {
  JsonReader reader;
  CEDRA_ASSIGN(const JsonValue value, reader.read(file));
  CaseReport report;
  if (value.is_array()) {
    check_list(value, options, report);
  } else {
    for (const auto& [name, list] : value.members()) {
      if (list.is_array()) check_list(list, options, report);
    }
  }
  if (report.run == 0) return err(Code::kInvalid, "the file holds no cases");
  return report;
}

}  // namespace cedra::text

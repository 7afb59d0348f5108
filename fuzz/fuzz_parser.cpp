// Model text in pieces. The message must be the same as of the whole text; content holds no whole
// tag, calls have names, and arguments of a message that was not cut off are a JSON object.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/json_value.h"
#include "text/markup.h"
#include "text/output_parser.h"

namespace {

namespace text = cedra::text;

void check(bool holds) {
  if (!holds) std::abort();
}

text::ParserOptions options_from(uint8_t byte) {
  text::ParserOptions options;
  options.start = static_cast<text::ParserStart>(byte % 3);
  options.eos_in_text = (byte & 4) != 0;
  if ((byte & 8) != 0) {
    text::ToolDefinition tool;
    tool.name = "f";
    tool.properties = {{"city", true}, {"n", false}};
    options.tools.push_back(tool);
  }
  if ((byte & 16) != 0) options.stop = {"stop", "</"};
  if ((byte & 32) != 0) options.max_calls = 1;
  return options;
}

// A stop string may cut a tag in two.
void check_clean(const text::ParsedMessage& message, const text::ParserOptions& options, bool cut) {
  namespace markup = text::markup;
  const auto holds = [&](std::string_view tag) {
    return message.content.find(tag) != std::string::npos;
  };
  if (options.stop.empty()) {
    check(!holds(markup::kThink) && !holds(markup::kThinkEnd));
    if (!options.tools.empty()) {
      check(!holds(markup::kCallsOpen) && !holds(markup::kCallsClose));
      check(!holds(markup::kInvokeClose) && !holds(markup::kParameterClose));
    }
  }
  text::JsonReader reader;
  for (size_t i = 0; i < message.calls.size(); ++i) {
    check(!message.calls[i].name.empty());
    if (cut && i + 1 == message.calls.size()) continue;
    const std::string& arguments = message.calls[i].arguments;
    const auto value = reader.read(arguments);
    // Bytes that are no UTF-8 cannot come from a decoder; they pass through as they are.
    check(value.has_value() ? value->is_object() : arguments.starts_with("{"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const text::ParserOptions options = options_from(data[0]);
  const auto end = static_cast<text::OutputEnd>(data[1] % 4);
  const size_t step = 1 + data[2] % 16;
  const std::string_view input(reinterpret_cast<const char*>(data + 3), size - 3);

  const text::ParsedMessage whole = text::parse_output(input, options, end);
  text::OutputParser parser(options);
  text::ParsedMessage message;
  for (size_t at = 0; at < input.size(); at += step)
    message.add(parser.push(input.substr(at, step)));
  message.add(parser.finish(end));
  message.finish = parser.finish_reason();
  check(message == whole);
  check_clean(whole, options, end == text::OutputEnd::kLength || end == text::OutputEnd::kAborted);
  return 0;
}

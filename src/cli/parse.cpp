// cedra parse: text as the model writes it to the message a client gets.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/text_io.h"
#include "text/chat_json.h"
#include "text/json_value.h"
#include "text/output_parser.h"

namespace cedra::cli {
namespace {

struct ParseArguments {
  std::string input = "-";
  std::string check;
  std::string tools;
  std::string start = "reasoning";
  size_t split = 0;
  bool no_tools = false;
  bool cut_off = false;
};

Result<text::ParserOptions> parser_options(const ParseArguments& arguments) {
  text::ParserOptions options;
  options.eos_in_text = true;
  if (arguments.start == "content") {
    options.start = text::ParserStart::kContent;
  } else if (arguments.start == "calls") {
    options.start = text::ParserStart::kCalls;
  } else {
    options.start = text::ParserStart::kReasoning;
  }
  if (!arguments.tools.empty()) {
    CEDRA_ASSIGN(const std::string file, read_input(arguments.tools));
    text::JsonReader reader;
    CEDRA_ASSIGN(const auto value, reader.read(file));
    CEDRA_ASSIGN(options.tools, text::parse_tools(value));
  } else if (!arguments.no_tools) {
    options.tools.emplace_back();  // some tool, of which nothing is known
  }
  return options;
}

int parse(const ParseArguments& arguments) {
  text::FeedPlan feed;
  if (arguments.split > 0) feed = {text::FeedPlan::Kind::kPieces, arguments.split};
  if (!arguments.check.empty()) return run_check(arguments.check, {feed, nullptr});
  const auto input = read_input(arguments.input);
  if (!input) return fail(input.error());
  if (const Result<> valid = check_utf8("the input", *input); !valid) return fail(valid.error());
  auto options = parser_options(arguments);
  if (!options) return fail(options.error());
  text::OutputParser parser(std::move(*options));
  text::ParsedMessage message;
  for (const std::string_view piece : text::cut(*input, feed)) message.add(parser.push(piece));
  message.add(parser.finish(arguments.cut_off ? text::OutputEnd::kLength : text::OutputEnd::kEos));
  fmt::print("{}\nfinish_reason: {}\n", text::message_json(message),
             text::finish_name(parser.finish_reason()));
  return 0;
}

}  // namespace

void add_parse(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("parse", "turn the model's text into a message");
  auto arguments = std::make_shared<ParseArguments>();
  command->add_option("input", arguments->input, "file with the text, - for standard input");
  command->add_option("--split", arguments->split, "feed the text in pieces of so many bytes");
  command->add_option("--start", arguments->start, "what the prompt left open")
      ->check(CLI::IsMember({"reasoning", "content", "calls"}));
  command->add_option("--tools", arguments->tools, "file with the request's tools");
  command->add_flag("--no-tools", arguments->no_tools, "no tools declared: markup is text");
  command->add_flag("--cut-off", arguments->cut_off, "the text ended by the token limit");
  command->add_option("--check", arguments->check, "run the cases of a file and compare");
  command->callback([arguments, &action] { action = [arguments] { return parse(*arguments); }; });
}

}  // namespace cedra::cli

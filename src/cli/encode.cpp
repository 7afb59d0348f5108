// cedra encode: a request body, or messages in the reference's shape, to the prompt.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/text_io.h"
#include "text/chat_json.h"
#include "text/json_value.h"

namespace cedra::cli {
namespace {

struct EncodeArguments {
  std::string input = "-";
  std::string tokenizer;
  std::string check;
  std::string path = "/v1/chat/completions";
  bool ids = false;
  bool explain = false;
  bool hosted = false;
};

// One line per stretch: where it comes from, and its text as a JSON string.
void print_explained(const text::Prompt& prompt) {
  size_t next_image = 0;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const text::Segment& segment = prompt.segments[i];
    std::string line = segment.trusted ? "template " : "text     ";
    if (next_image < prompt.images.size() && prompt.images[next_image].segment == i) {
      line = "image    ";
      ++next_image;
    }
    text::append_json_string(segment.text, line);
    fmt::print("{}\n", line);
  }
}

int encode(const EncodeArguments& arguments) {
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  if (!tokenizer) return fail(tokenizer.error());
  if (!arguments.check.empty()) {
    return run_check(arguments.check, {{}, tokenizer->has_value() ? &tokenizer->value() : nullptr});
  }
  if (arguments.ids && !tokenizer->has_value()) {
    return fail({Code::kInvalid, "--ids needs --tokenizer FILE"});
  }
  const auto route = text::route_by_path(arguments.path);
  if (!route) return fail({Code::kInvalid, "--path: no chat route " + arguments.path});
  const auto input = read_input(arguments.input);
  if (!input) return fail(input.error());
  text::RequestRules rules;
  rules.hosted = arguments.hosted;
  const auto prompt = text::prompt_from_json(*input, *route, rules);
  if (!prompt) return fail(prompt.error());
  for (const std::string& warning : prompt->warnings) {
    fmt::print(stderr, "cedra: warning: {}\n", warning);
  }
  if (arguments.explain) print_explained(*prompt);
  if (arguments.ids) {
    fmt::print("{}\n", fmt::join(tokenizer->value().encode(prompt->segments), " "));
  }
  if (!arguments.explain && !arguments.ids) fmt::print("{}", prompt->text());
  return 0;
}

}  // namespace

void add_encode(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("encode", "turn a request body or messages into the prompt");
  auto arguments = std::make_shared<EncodeArguments>();
  command->add_option("input", arguments->input, "file with the JSON, - for standard input");
  command->add_flag("--ids", arguments->ids, "print token ids (needs --tokenizer)");
  command->add_flag("--explain", arguments->explain,
                    "one line per stretch: template, text of the client, or image");
  command->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json or its folder");
  command->add_option("--path", arguments->path, "route of a request body");
  command->add_flag("--hosted", arguments->hosted, "the hosted API's rules to the letter");
  command->add_option("--check", arguments->check, "run the cases of a file and compare");
  command->callback([arguments, &action] { action = [arguments] { return encode(*arguments); }; });
}

}  // namespace cedra::cli

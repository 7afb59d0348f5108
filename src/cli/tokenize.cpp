// cedra tokenize: text to token ids and back.
#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "cli/commands.h"
#include "cli/text_io.h"

namespace cedra::cli {
namespace {

struct TokenizeArguments {
  std::string input = "-";
  std::string tokenizer;
  std::string check;
  bool plain = false;
  bool decode = false;
};

Result<std::vector<int32_t>> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  constexpr std::string_view kBetween = " ,\t\r\n[]";
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;
       at = text.find_first_not_of(kBetween, at)) {
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc()) {
      return err(Code::kInvalid, "'{}' is no token id", text.substr(at, 20));
    }
    ids.push_back(id);
    at = static_cast<size_t>(stop - text.data());
  }
  return ids;
}

int tokenize(const TokenizeArguments& arguments) {
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  if (!tokenizer) return fail(tokenizer.error());
  const text::Tokenizer& model = tokenizer->value();
  if (!arguments.check.empty()) return run_check(arguments.check, {{}, &model});
  const auto input = read_input(arguments.input);
  if (!input) return fail(input.error());
  if (arguments.decode) {
    const auto ids = parse_ids(*input);
    if (!ids) return fail(ids.error());
    for (const int32_t id : *ids) {
      if (id >= 0 && id < model.size()) continue;
      return fail({Code::kInvalid, fmt::format("token id {} is outside the vocabulary (0 to {})",
                                               id, model.size() - 1)});
    }
    fmt::print("{}", model.decode(*ids));
    return 0;
  }
  if (const Result<> valid = check_utf8("the input", *input); !valid) return fail(valid.error());
  fmt::print("{}\n",
             fmt::join(arguments.plain ? model.encode_plain(*input) : model.encode(*input), " "));
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("tokenize", "turn text into token ids, or back");
  auto arguments = std::make_shared<TokenizeArguments>();
  command->add_option("input", arguments->input, "file with the text, - for standard input");
  command->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json or its folder")
      ->required();
  command->add_flag("--plain", arguments->plain, "recognise no added token");
  command->add_flag("--decode", arguments->decode, "the input is ids; print their text");
  command->add_option("--check", arguments->check, "run the cases of a file and compare");
  command->callback(
      [arguments, &action] { action = [arguments] { return tokenize(*arguments); }; });
}

}  // namespace cedra::cli

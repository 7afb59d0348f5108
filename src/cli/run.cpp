// `cedra run DIR [PROMPT]`: one prompt in, one answer out.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/terminal_answer.h"
#include "cli/text_io.h"
#include "text/chat.h"

namespace cedra::cli {
namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string prompt;
  std::string file;
  std::string ids;
  std::string system;
  bool raw = false;
  bool stats = false;
  bool no_thinking = false;
  bool hide_thinking = false;
  int effort = text::kDefaultEffort;
};

Result<std::vector<int32_t>> parse_ids(const std::string& list) {
  std::vector<int32_t> out;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    if (*at == ',' || *at == ' ' || *at == '\n') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, failure] = std::from_chars(at, end, id);
    if (failure != std::errc() || id < 0) {
      return err(Code::kInvalid, "--ids: expected token ids like 0,17,4, found \"{}\"",
                 std::string_view(at, static_cast<size_t>(end - at)).substr(0, 20));
    }
    out.push_back(id);
    at = next;
  }
  if (out.empty()) return err(Code::kInvalid, "--ids: no token ids given");
  return out;
}

struct Input {
  std::vector<int32_t> ids;
  text::ParserStart start = text::ParserStart::kContent;
  bool raw = false;
};

Result<Input> read_prompt(const RunFlags& flags, const engine::Loaded& loaded) {
  Input out;
  out.raw = flags.raw || !flags.ids.empty();
  if (!flags.ids.empty()) {
    CEDRA_ASSIGN(out.ids, parse_ids(flags.ids));
    return out;
  }
  std::string prompt = flags.prompt;
  if (!flags.file.empty()) {
    CEDRA_ASSIGN(prompt, read_input(flags.file));
  }
  if (prompt.empty()) {
    return err(Code::kInvalid,
               "no prompt: give it as an argument, with --file (- for standard "
               "input), or as --ids");
  }
  CEDRA_TRY(check_utf8("the prompt", prompt));
  CEDRA_TRY(check_utf8("--system", flags.system));
  text::Prompt encoded;
  if (flags.raw) {
    encoded = text::completion_prompt(prompt, true);
  } else {
    text::Conversation conversation;
    if (!flags.system.empty()) {
      text::Message system;
      system.role = text::Role::kSystem;
      system.content.push_back({text::ContentPart::Kind::kText, flags.system});
      conversation.messages.push_back(std::move(system));
    }
    text::Message user;
    user.content.push_back({text::ContentPart::Kind::kText, prompt});
    conversation.messages.push_back(std::move(user));
    text::ChatOptions options;
    options.thinking = !flags.no_thinking;
    options.effort = flags.effort;
    CEDRA_ASSIGN(encoded, text::encode_chat(conversation, options));
  }
  out.start = encoded.start;
  out.ids = loaded.tokenizer->encode(std::span<const text::Segment>(encoded.segments));
  return out;
}

int run(const RunFlags& flags) {
  Interrupt interrupt;
  EngineFlags engine_flags = flags.engine;
  engine_flags.options.grammar_bytes = 0;  // there are none here
  const Result<engine::Loaded> loaded = open_engine(engine_flags, &interrupt);
  if (!loaded) return fail(loaded.error());
  Result<Input> input = read_prompt(flags, *loaded);
  if (!input) return fail(input.error());
  engine::Request request;
  request.sampling =
      sampling_params(flags.sampling, *loaded, static_cast<int64_t>(input->ids.size()));
  request.prompt = std::move(input->ids);
  AnswerOptions options;
  options.raw = input->raw;
  options.parser.start = input->start;
  options.show_reasoning = !flags.hide_thinking;
  const Result<Answer> result = answer(*loaded, std::move(request), options, interrupt);
  if (!result) return fail(result.error());
  fmt::print("\n");
  std::fflush(stdout);
  print_figures(*result, loaded->bytes_per_token);
  if (flags.stats) print_stats(loaded->engine->stats());
  return result->interrupted ? 130 : 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "answer one prompt");
  const auto flags = std::make_shared<RunFlags>();
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->sampling);
  CLI::Option* prompt = command->add_option("prompt", flags->prompt, "the prompt");
  CLI::Option* file =
      command->add_option("--file", flags->file, "read it from a file, - for stdin");
  CLI::Option* ids = command->add_option("--ids", flags->ids, "token ids, taken as they are");
  prompt->excludes(file)->excludes(ids);
  file->excludes(ids);
  command->add_flag("--stats", flags->stats, "show where the time went, and what became of drafts");
  command->add_flag("--raw", flags->raw, "plain continuation instead of a chat turn");
  command->add_option("--system", flags->system, "system message");
  command->add_flag("--no-thinking", flags->no_thinking, "answer at once");
  command->add_flag("--hide-thinking", flags->hide_thinking, "do not show the reasoning");
  command->add_option("--effort", flags->effort, "reasoning effort")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->callback([&action, flags] { action = [flags] { return run(*flags); }; });
}

}  // namespace cedra::cli

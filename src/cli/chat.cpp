// `cedra chat DIR`: a conversation in the terminal. Ctrl-C stops the answer, not the program.
#include "text/chat.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/image_flags.h"
#include "cli/terminal_answer.h"
#include "cli/text_io.h"

namespace cedra::cli {
namespace {

struct ChatFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  ImageFlags images;
  std::string system;
  bool no_thinking = false;
  int effort = text::kDefaultEffort;
};

constexpr std::string_view kHelp =
    "/help          this text\n"
    "/reset         forget the conversation\n"
    "/image FILE    put a picture in front of the next message\n"
    "/think on|off  let the model think before it answers\n"
    "/stats         figures of the last answer\n"
    "/exit          leave (as Ctrl-D does)\n"
    "Ctrl-C stops an answer; what was written of it stays in the conversation.\n";

// Lines of standard input, interruptible.
class LineReader {
 public:
  explicit LineReader(Interrupt& interrupt) : interrupt_(&interrupt) {}

  // nullopt at the end of the input; an empty line after Ctrl-C.
  std::optional<std::string> next() {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      if (ended_) {
        if (buffer_.empty()) return std::nullopt;
        return std::exchange(buffer_, {});
      }
      pollfd inputs[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_->descriptor(), POLLIN, 0}};
      if (::poll(inputs, 2, -1) < 0 && errno != EINTR) return std::nullopt;
      if (interrupt_->taken()) {
        fmt::print("\n(/exit or Ctrl-D leaves)\n");
        return std::string();
      }
      if (inputs[0].revents == 0) continue;
      char bytes[4096];
      const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (got <= 0) {
        ended_ = true;
      } else {
        buffer_.append(bytes, static_cast<size_t>(got));
      }
    }
  }

 private:
  Interrupt* interrupt_;
  std::string buffer_;
  bool ended_ = false;
};

text::Message text_message(text::Role role, std::string content) {
  text::Message message;
  message.role = role;
  message.content.push_back({text::ContentPart::Kind::kText, std::move(content)});
  return message;
}

class Chat {
 public:
  Chat(const ChatFlags& flags, server::ImageOptions images, const engine::Loaded& loaded,
       Interrupt& interrupt)
      : flags_(&flags),
        loaded_(&loaded),
        interrupt_(&interrupt),
        images_(std::move(images), loaded.engine->info()) {
    options_.thinking = !flags.no_thinking;
    options_.effort = flags.effort;
    reset();
  }

  // False: leave.
  bool command(const std::string& line) {
    if (line == "/exit" || line == "/quit") return false;
    if (line == "/reset") {
      reset();
      fmt::print("(the conversation is forgotten)\n");
    } else if (line == "/think on" || line == "/think off") {
      options_.thinking = line == "/think on";
    } else if (line.starts_with("/image ")) {
      if (const Result<> added = add_image(line.substr(7)); !added) {
        fmt::print(stderr, "{}\n", added.error().message);
      }
    } else if (line == "/stats") {
      if (last_) print_figures(*last_, loaded_->bytes_per_token);
    } else {
      if (line != "/help") fmt::print("unknown command {}\n", line);
      fmt::print("{}", kHelp);
    }
    return true;
  }

  void say(const std::string& line) {
    if (const Result<> valid = check_utf8("this line", line); !valid) {
      fmt::print(stderr, "{}\n", valid.error().message);
      return;
    }
    text::Message message = text_message(text::Role::kUser, line);
    message.content.insert(message.content.begin(), pictures_.begin(), pictures_.end());
    conversation_.messages.push_back(std::move(message));
    if (const Result<> done = turn(); done) {
      pictures_.clear();
    } else {
      conversation_.messages.pop_back();
      fmt::print(stderr, "{}\n", done.error().message);
      if (done.error().code == Code::kTooLarge) {
        fmt::print(stderr, "The conversation no longer fits; /reset starts a new one.\n");
      }
    }
  }

 private:
  void reset() {
    conversation_ = {};
    pictures_.clear();
    if (!flags_->system.empty()) {
      conversation_.messages.push_back(text_message(text::Role::kSystem, flags_->system));
    }
  }

  // Read and tried at once, so that a file that is no picture is named now.
  Result<> add_image(const std::string& path) {
    CEDRA_ASSIGN(const std::string bytes, read_input(path));
    text::ContentPart part{text::ContentPart::Kind::kImage, server::data_url(bytes), path};
    text::Conversation alone;
    alone.messages.emplace_back().content.push_back(part);
    CEDRA_ASSIGN(const text::Prompt prompt, text::encode_chat(alone, options_));
    CEDRA_ASSIGN(const server::EncodedPrompt encoded, images_.encode(prompt, *loaded_->tokenizer));
    fmt::print("({}: {} tokens, with the next message)\n", path,
               encoded.images.front().image->plan.span_tokens());
    pictures_.push_back(std::move(part));
    return {};
  }

  Result<> turn() {
    CEDRA_ASSIGN(const text::Prompt prompt, text::encode_chat(conversation_, options_));
    engine::Request request;
    CEDRA_ASSIGN(server::EncodedPrompt encoded, images_.encode(prompt, *loaded_->tokenizer));
    request.prompt = std::move(encoded.ids);
    request.images = std::move(encoded.images);
    request.sampling =
        sampling_params(flags_->sampling, *loaded_, static_cast<int64_t>(request.prompt.size()));
    AnswerOptions options;
    options.parser.start = prompt.start;
    CEDRA_ASSIGN(last_, answer(*loaded_, std::move(request), options, *interrupt_));
    fmt::print("\n{}", last_->interrupted ? "(stopped)\n" : "");
    if (last_->finish.reason == engine::FinishReason::kLength) {
      fmt::print("(cut: the context or --max-tokens is used up)\n");
    }
    text::Message reply = text_message(text::Role::kAssistant, last_->message.content);
    reply.reasoning = last_->message.reasoning;
    conversation_.messages.push_back(std::move(reply));
    return {};
  }

  const ChatFlags* flags_;
  const engine::Loaded* loaded_;
  Interrupt* interrupt_;
  server::ImageInput images_;
  std::vector<text::ContentPart> pictures_;  // of the next message
  text::ChatOptions options_;
  text::Conversation conversation_;
  std::optional<Answer> last_;
};

int chat(const ChatFlags& flags) {
  if (const Result<> valid = check_utf8("--system", flags.system); !valid) {
    return fail(valid.error());
  }
  Result<server::ImageOptions> images = image_options(flags.images);
  if (!images) return fail(images.error());
  Interrupt interrupt;
  EngineFlags engine_flags = flags.engine;
  engine_flags.options.grammar_bytes = 0;  // there are none here
  const Result<engine::Loaded> loaded = open_engine(engine_flags, &interrupt);
  if (!loaded) return fail(loaded.error());
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) fmt::print("{}: /help for commands\n", loaded->folder_name);
  Chat conversation(flags, *std::move(images), *loaded, interrupt);
  LineReader lines(interrupt);
  while (true) {
    if (terminal) fmt::print("> ");
    std::fflush(stdout);
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    if (line->empty()) continue;
    if (line->front() != '/') {
      conversation.say(*line);
    } else if (!conversation.command(*line)) {
      break;
    }
  }
  if (terminal) fmt::print("\n");
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("chat", "talk to the model in the terminal");
  const auto flags = std::make_shared<ChatFlags>();
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->sampling);
  add_image_flags(*command, flags->images, flags->engine.options);
  command->add_option("--system", flags->system, "system message");
  command->add_flag("--no-thinking", flags->no_thinking, "answer at once");
  command->add_option("--effort", flags->effort, "reasoning effort")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->callback([&action, flags] { action = [flags] { return chat(*flags); }; });
}

}  // namespace cedra::cli

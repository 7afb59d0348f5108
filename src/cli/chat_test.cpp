// cedra chat on a terminal of its own: several turns, the cache between them, Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace cedra::cli {
namespace {

using namespace std::chrono_literals;

class Terminal {
 public:
  explicit Terminal(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), CEDRA_BINARY);
    std::vector<char*> raw;
    for (std::string& argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    child_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (child_ == 0) {
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (terminal_ >= 0) ::close(terminal_);
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) {
    EXPECT_EQ(::write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Everything up to and with `text`; a failure if it does not come.
  std::string read_to(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (true) {
      if (const size_t at = read_.find(text); at != std::string::npos) {
        std::string out = read_.substr(0, at + text.size());
        read_.erase(0, at + text.size());
        return out;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd entry{terminal_, POLLIN, 0};
      char bytes[4096];
      ssize_t got = 0;
      if (left.count() > 0 && ::poll(&entry, 1, static_cast<int>(left.count())) > 0) {
        got = ::read(terminal_, bytes, sizeof bytes);
      }
      if (got <= 0) {
        ADD_FAILURE() << "no \"" << text << "\" in: " << read_;
        return {};
      }
      read_.append(bytes, static_cast<size_t>(got));
    }
  }

  int exit_status() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
  std::string read_;
};

const std::string kTiny = std::string(CEDRA_SOURCE_DIR) + "/models/tiny";

TEST(Chat, KeepsTheCacheBetweenTurnsUntilReset) {
  Terminal chat({"chat", kTiny, "-n", "5", "--ignore-eos", "--no-thinking", "--seed", "1"});
  chat.read_to("> ");
  const auto figures = [&](const std::string& line) {
    chat.type(line + "\n");
    chat.read_to("used up)\r\n> ");
    chat.type("/stats\n");
    return chat.read_to("weights read per token");
  };
  EXPECT_THAT(figures(std::string(150, 'x')), ::testing::HasSubstr(" tokens, 0 from the cache"));
  EXPECT_THAT(figures("more"), ::testing::ContainsRegex("tokens, [1-9][0-9]* from the cache"));
  chat.type("/reset\n");
  chat.read_to("forgotten");
  EXPECT_THAT(figures("other"), ::testing::HasSubstr(" tokens, 0 from the cache"));
  chat.type("/exit\n");
  EXPECT_EQ(chat.exit_status(), 0);
}

TEST(Chat, PicturesGoWithTheNextMessage) {
  Terminal chat({"chat", kTiny, "-n", "3", "--ignore-eos", "--no-thinking", "--seed", "1"});
  chat.read_to("> ");
  const auto prompt_tokens = [&](const std::string& line) {
    chat.type(line + "\n");
    chat.read_to("used up)\r\n> ");
    chat.type("/stats\n");
    chat.read_to("prompt: ");
    const std::string count = chat.read_to(" ");
    chat.read_to("> ");
    return std::stoi(count);
  };
  const int without = prompt_tokens("look");
  chat.type("/reset\n/image /no/such/file\n");
  chat.read_to("/no/such/file");
  chat.read_to("> ");
  chat.type("/image " CEDRA_SOURCE_DIR "/tests/golden/tiny/config.json\n");
  chat.read_to("not a PNG");
  chat.read_to("> ");
  chat.type("/image " CEDRA_SOURCE_DIR "/tests/golden/tiny/image0.png\n");
  chat.read_to("image0.png: ");
  const int picture = std::stoi(chat.read_to(" tokens, with the next message)"));
  chat.read_to("> ");
  EXPECT_GT(picture, 4);
  // The picture and the blank line behind it.
  EXPECT_GE(prompt_tokens("look"), without + picture);
  chat.type("/exit\n");
  EXPECT_EQ(chat.exit_status(), 0);
}

TEST(Chat, CtrlCStopsTheAnswerAndNotTheProgram) {
  Terminal chat({"chat", kTiny, "--ignore-eos", "--isa", "oracle", "--threads", "1"});
  chat.read_to("> ");
  chat.type("hello\n");
  chat.read_to("\x1b[2m");  // the first words
  chat.type("\x03");
  chat.read_to("(stopped)");
  chat.read_to("> ");
  chat.type("\x03");  // nothing to stop
  chat.read_to("leaves)");
  chat.type("/stats\n");
  chat.read_to("answer: ");
  chat.type("\x04");
  EXPECT_EQ(chat.exit_status(), 0);
}

}  // namespace
}  // namespace cedra::cli

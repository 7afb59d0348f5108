// The engine's thread parses and queues pieces; this thread prints them, so a slow terminal never
// holds up a step.
#include "cli/terminal_answer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>

#include "cli/engine_flags.h"
#include "plan/memory_plan.h"

namespace cedra::cli {
namespace {

using Clock = std::chrono::steady_clock;
using text::OutputEvent;

constexpr int64_t kLongPrompt = 512;  // tokens from which prefill progress is shown

// What the engine's thread has produced and the printing thread has not taken.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<OutputEvent> events;
  int64_t prefill_done = 0;
  int64_t prefill_total = 0;
  std::optional<Clock::time_point> first_token, last_token;
  std::optional<engine::Finish> finish;
};

class TerminalSink final : public engine::Sink {
 public:
  TerminalSink(std::shared_ptr<Mailbox> box, const text::Tokenizer& tokenizer,
               const AnswerOptions& options)
      : box_(std::move(box)), decoder_(tokenizer, !options.raw), raw_(options.raw) {
    if (!raw_) parser_.emplace(options.parser);
  }

  void on_prefill(int64_t done, int64_t total) override {
    const std::lock_guard lock(box_->mutex);
    box_->prefill_done = done;
    box_->prefill_total = total;
    box_->changed.notify_one();
  }

  bool on_token(const engine::Token& token) override {
    const std::string text = decoder_.push(token.id);
    std::vector<OutputEvent> events = raw_ ? raw_event(text) : parser_->push(text);
    const std::lock_guard lock(box_->mutex);
    box_->last_token = Clock::now();
    if (!box_->first_token) box_->first_token = box_->last_token;
    add(std::move(events));
    return raw_ || !parser_->done();
  }

  void on_finish(const engine::Finish& finish) override {
    const std::string rest = decoder_.finish();
    std::vector<OutputEvent> events = raw_ ? raw_event(rest) : parser_->push(rest);
    std::vector<OutputEvent> last;
    if (!raw_) {
      const bool length = finish.reason == engine::FinishReason::kLength;
      const bool stop = finish.reason == engine::FinishReason::kStop;
      last = parser_->finish(length ? text::OutputEnd::kLength
                             : stop ? text::OutputEnd::kEos
                                    : text::OutputEnd::kAborted);
    }
    const std::lock_guard lock(box_->mutex);
    add(std::move(events));
    add(std::move(last));
    box_->finish = finish;
    box_->changed.notify_one();
  }

 private:
  static std::vector<OutputEvent> raw_event(const std::string& text) {
    if (text.empty()) return {};
    return {OutputEvent{OutputEvent::Kind::kContent, text, 0, {}}};
  }

  void add(std::vector<OutputEvent> events) {
    for (OutputEvent& event : events) box_->events.push_back(std::move(event));
    box_->changed.notify_one();
  }

  std::shared_ptr<Mailbox> box_;
  text::IncrementalDecoder decoder_;
  std::optional<text::OutputParser> parser_;
  bool raw_;
};

// Text of the model for a terminal: control characters but tab and line feed could move the cursor,
// set titles or answer queries in the user's name, so they show as U+FFFD.
std::string for_terminal(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F are the two bytes C2 80 to C2 9F.
    const bool c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c0 || c1) {
      shown += "\uFFFD";
      i += c1 ? 1 : 0;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

// Content to stdout, everything else to stderr.
class Printer {
 public:
  explicit Printer(bool show_reasoning)
      : show_reasoning_(show_reasoning),
        terminal_(::isatty(STDOUT_FILENO) == 1),
        dim_(::isatty(STDERR_FILENO) == 1) {}

  void print(const OutputEvent& event) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        if (!show_reasoning_) return;
        if (dim_) {
          fmt::print(stderr, "\x1b[2m{}\x1b[0m", for_terminal(event.text));
        } else {
          fmt::print(stderr, "{}", event.text);
        }
        std::fflush(stderr);
        reasoning_ = true;
        return;
      case OutputEvent::Kind::kContent:
        if (reasoning_) fmt::print(stderr, "\n\n");
        reasoning_ = false;
        write(event.text);
        break;
      case OutputEvent::Kind::kCallStart:
        write("[call " + event.text + " ");
        break;
      case OutputEvent::Kind::kArguments:
        write(event.text);
        break;
      case OutputEvent::Kind::kCallEnd:
        fmt::print("]\n");
        break;
    }
    std::fflush(stdout);
  }

  // As it is into a file or pipe, made harmless for a terminal.
  void write(const std::string& text) const {
    const std::string shown = terminal_ ? for_terminal(text) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
  }

  // An answer that was all reasoning leaves its line open.
  void finish() {
    if (reasoning_) fmt::print(stderr, "\n");
  }

 private:
  bool show_reasoning_;
  bool terminal_;  // stdout is one
  bool dim_;
  bool reasoning_ = false;
};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Interrupt::Interrupt() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

Interrupt::~Interrupt() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool Interrupt::taken() {
  bool pressed = false;
  signalfd_siginfo info;
  while (::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    pressed = true;
  }
  return pressed;
}

Result<Answer> answer(const engine::Loaded& loaded, engine::Request request,
                      const AnswerOptions& options, Interrupt& interrupt) {
  const auto box = std::make_shared<Mailbox>();
  const auto start = Clock::now();
  CEDRA_ASSIGN(const engine::RequestId id,
               loaded.engine->submit(std::move(request), std::make_shared<TerminalSink>(
                                                             box, *loaded.tokenizer, options)));
  Answer out;
  ProgressLine progress;
  Printer printer(options.show_reasoning);
  std::optional<engine::Finish> finish;
  while (!finish) {
    std::vector<OutputEvent> events;
    {
      std::unique_lock lock(box->mutex);
      box->changed.wait_for(lock, std::chrono::milliseconds(50),
                            [&] { return !box->events.empty() || box->finish; });
      events.swap(box->events);
      finish = box->finish;
      if (!box->first_token && box->prefill_total >= kLongPrompt) {
        progress.show(fmt::format("reading the prompt: {} of {} tokens", box->prefill_done,
                                  box->prefill_total));
      }
    }
    if (!events.empty()) progress.clear();
    for (const OutputEvent& event : events) printer.print(event);
    out.message.add(events);
    if (interrupt.taken() && !out.interrupted) {
      out.interrupted = true;
      loaded.engine->cancel(id);
    }
  }
  progress.clear();
  printer.finish();
  out.finish = *finish;
  if (finish->error) return std::unexpected(*finish->error);
  const auto first = box->first_token.value_or(Clock::now());
  out.prefill_seconds = seconds(first - start);
  out.decode_seconds = seconds(box->last_token.value_or(first) - first);
  return out;
}

void print_figures(const Answer& answer, int64_t bytes_per_token) {
  const engine::Usage& usage = answer.finish.usage;
  const int64_t read = usage.prompt_tokens - usage.cached_tokens;
  fmt::print(stderr, "prompt: {} tokens, {} from the cache; {:.1f} tokens/s\n", usage.prompt_tokens,
             usage.cached_tokens,
             static_cast<double>(read) / std::max(answer.prefill_seconds, 1e-9));
  fmt::print(stderr, "answer: {} tokens", usage.completion_tokens);
  // The first token belongs to the prompt's time.
  if (usage.completion_tokens > 1 && answer.decode_seconds > 0) {
    fmt::print(stderr, "; {:.1f} tokens/s",
               static_cast<double>(usage.completion_tokens - 1) / answer.decode_seconds);
  }
  fmt::print(stderr, "; {} of weights read per token\n", plan::format_bytes(bytes_per_token));
}

void print_stats(const engine::Stats& stats) {
  fmt::print(stderr, "steps: {}, {:.3f} s; forward pass {:.3f} s, choosing tokens {:.3f} s\n",
             stats.steps, stats.step_seconds, stats.forward_seconds, stats.sampling_seconds);
  const engine::DraftUsage& drafts = stats.drafts;
  if (drafts.drafted == 0) {
    fmt::print(stderr, "drafts: none\n");
    return;
  }
  const auto ratio = [](auto a, auto b) {
    return static_cast<double>(a) / std::max(static_cast<double>(b), 1.0);
  };
  fmt::print(stderr, "drafts: {} proposed, {} verified, {} accepted, {} rejected\n", drafts.drafted,
             drafts.verified, drafts.accepted, drafts.verified - drafts.accepted);
  fmt::print(stderr, "accepted: {:.2f} tokens per verified block; by position",
             ratio(drafts.accepted, drafts.blocks));
  for (const int64_t count : stats.draft_accepted_at) {
    if (count == 0) break;
    fmt::print(stderr, " {:.0f} %", 100 * ratio(count, drafts.blocks));
  }
  fmt::print(stderr,
             "\ndrafting {:.3f} s, verifying {:.3f} s; switched off in {:.0f} % of {} steps\n",
             stats.draft_seconds, stats.verify_seconds,
             100 * ratio(stats.undrafted_steps, stats.decode_steps), stats.decode_steps);
}

}  // namespace cedra::cli

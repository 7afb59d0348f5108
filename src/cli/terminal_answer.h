// One answer in the terminal: the engine's tokens to text on stdout as they come, reasoning dimmed
// on stderr, Ctrl-C as a request to stop the answer only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/load.h"
#include "text/output_parser.h"

namespace cedra::cli {

// SIGINT as something to ask for. Blocks the signal for this thread and those it starts later, so
// make one before the engine.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  // Whether Ctrl-C was pressed since the last call.
  bool taken();
  int descriptor() const { return descriptor_; }  // readable when pressed

 private:
  int descriptor_;
};

struct Answer {
  text::ParsedMessage message;
  engine::Finish finish;
  bool interrupted = false;
  double prefill_seconds = 0;
  double decode_seconds = 0;  // first token to last
};

struct AnswerOptions {
  bool raw = false;  // text as it is, no parser
  text::ParserOptions parser;
  bool show_reasoning = true;
};

Result<Answer> answer(const engine::Loaded& loaded, engine::Request request,
                      const AnswerOptions& options, Interrupt& interrupt);

// Speeds and bytes per token, on stderr.
void print_figures(const Answer& answer, int64_t bytes_per_token);
// Times of the engine's steps, and of drafts how many were proposed, verified and accepted, on
// stderr.
void print_stats(const engine::Stats& stats);

}  // namespace cedra::cli

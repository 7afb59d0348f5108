// Log probabilities of tokens whose text may be held back: an entry becomes visible with the first
// byte of its token's text, and is dropped if that text turns out to be markup or a stop string.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/json_writer.h"
#include "text/tokenizer.h"

namespace cedra::server {

struct LogprobEntry {
  engine::Token token;
  bool known = true;       // false: nothing predicts it, the first token of all
  size_t offset = 0;       // of the token's text, in bytes since the last clear()
  size_t text_offset = 0;  // the same in characters
};

class HeldLogprobs {
 public:
  // A token that decoded to `text`.
  void add(const engine::Token& token, std::string_view text, bool known = true) {
    held_.push_back({token, known, fed_, characters_});
    fed_ += text.size();
    for (const char byte : text) characters_ += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }
  // `bytes` more bytes of the text were shown: moves out the entries that began before its end.
  void shown(size_t bytes, std::vector<LogprobEntry>& out) {
    shown_ += bytes;
    while (!held_.empty() && held_.front().offset < shown_) {
      out.push_back(std::move(held_.front()));
      held_.pop_front();
    }
  }
  void clear() {
    held_.clear();
    fed_ = shown_ = characters_ = 0;
  }

 private:
  std::deque<LogprobEntry> held_;
  size_t fed_ = 0;
  size_t shown_ = 0;
  size_t characters_ = 0;
};

// [{token, logprob, bytes, top_logprobs}, ...]: chat completions.
void write_chat_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer,
                         const std::vector<LogprobEntry>& entries);
// {tokens, token_logprobs, top_logprobs, text_offset}: completions.
void write_completion_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer,
                               const std::vector<LogprobEntry>& entries);
// [null, {id: {logprob, rank, decoded_token}}, ...]: vLLM's prompt_logprobs; the first prompt token
// has none.
void write_prompt_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer,
                           const std::vector<engine::Token>& tokens);

}  // namespace cedra::server

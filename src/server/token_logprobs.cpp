// The three shapes in which clients expect log probabilities.
#include "server/token_logprobs.h"

#include <set>

namespace cedra::server {
namespace {

void write_chat_token(JsonWriter& json, const text::Tokenizer& tokenizer, int32_t id,
                      float logprob) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  json.key("token").string(bytes).key("logprob").number(logprob).key("bytes").begin_array();
  for (const char byte : bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

}  // namespace

void write_chat_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer,
                         const std::vector<LogprobEntry>& entries) {
  json.begin_array();
  for (const LogprobEntry& entry : entries) {
    json.begin_object();
    write_chat_token(json, tokenizer, entry.token.id, entry.token.logprob);
    json.key("top_logprobs").begin_array();
    for (const engine::Logprob& top : entry.token.top) {
      json.begin_object();
      write_chat_token(json, tokenizer, top.token, top.logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void write_completion_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer,
                               const std::vector<LogprobEntry>& entries) {
  json.begin_object().key("tokens").begin_array();
  for (const auto& entry : entries) json.string(tokenizer.token_bytes(entry.token.id));
  json.end_array().key("token_logprobs").begin_array();
  for (const auto& entry : entries) {
    if (entry.known) {
      json.number(entry.token.logprob);
    } else {
      json.null();
    }
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const auto& entry : entries) {
    if (!entry.known) {
      json.null();
      continue;
    }
    // An object needs distinct keys, but two tokens may be spelled alike (broken UTF-8).
    std::set<std::string_view> seen;
    json.begin_object();
    for (const engine::Logprob& top : entry.token.top) {
      const std::string_view bytes = tokenizer.token_bytes(top.token);
      if (seen.insert(bytes).second) json.key(bytes).number(top.logprob);
    }
    json.end_object();
  }
  json.end_array().key("text_offset").begin_array();
  for (const auto& entry : entries) json.integer(static_cast<int64_t>(entry.text_offset));
  json.end_array().end_object();
}

void write_prompt_logprobs(JsonWriter& json, const text::Tokenizer& tokenizer,
                           const std::vector<engine::Token>& tokens) {
  json.begin_array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i == 0) {
      json.null();
      continue;
    }
    const engine::Token& token = tokens[i];
    const auto write = [&](int32_t id, float logprob, int64_t rank) {
      json.key(std::to_string(id)).begin_object().key("logprob").number(logprob).key("rank");
      if (rank > 0) {
        json.integer(rank);
      } else {
        json.null();
      }
      json.key("decoded_token").string(tokenizer.token_bytes(id)).end_object();
    };
    json.begin_object();
    bool chosen_seen = false;
    for (size_t rank = 0; rank < token.top.size(); ++rank) {
      write(token.top[rank].token, token.top[rank].logprob, static_cast<int64_t>(rank) + 1);
      chosen_seen |= token.top[rank].token == token.id;
    }
    if (!chosen_seen) write(token.id, token.logprob, 0);
    json.end_object();
  }
  json.end_array();
}

}  // namespace cedra::server

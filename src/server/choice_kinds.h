// Internal to choice.cpp, chat_choice.cpp and text_choice.cpp: what they share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/choice.h"

namespace cedra::server {

std::unique_ptr<Choice> make_chat_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                         const ResponseIdentity& identity, size_t index);
std::unique_ptr<Choice> make_text_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                         const ResponseIdentity& identity, size_t index);

// id, object, created, model.
void write_head(JsonWriter& json, const Plan& plan, const ResponseIdentity& identity);
// An event up to the choice's index: `data: {...,"choices":[{"index":I`.
std::string event_head(const Plan& plan, const ResponseIdentity& identity, size_t index);
// The token that ended the text, if the client had listed it.
std::optional<int32_t> client_stop_token(const Plan& plan, const engine::Finish& finish);
void write_warnings(JsonWriter& json, const Plan& plan, std::string_view hint);

}  // namespace cedra::server

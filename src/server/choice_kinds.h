// Internal to choice.cpp and the kinds of choices: what they share.
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
std::unique_ptr<Choice> make_messages_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                             const ResponseIdentity& identity);
std::unique_ptr<Choice> make_responses_choice(const Plan& plan, const text::Tokenizer& tokenizer,
                                              const ResponseIdentity& identity);

// id, object, created, model.
void write_head(JsonWriter& json, const Plan& plan, const ResponseIdentity& identity);
// An event up to the choice's index: `data: {...,"choices":[{"index":I`.
std::string event_head(const Plan& plan, const ResponseIdentity& identity, size_t index);
// The token that ended the text, if the client had listed it.
std::optional<int32_t> client_stop_token(const Plan& plan, const engine::Finish& finish);
// "warnings": [...], if there are any.
void write_warnings(JsonWriter& json, const Plan& plan, std::string_view hint);
// Ends an event of a completion behind its choices: warnings on the last one, usage null.
void close_event(JsonWriter& json, std::string& out, const Plan& plan, bool last,
                 std::string_view hint);
void write_ids(JsonWriter& json, std::string_view name, const std::vector<int32_t>& ids);

}  // namespace cedra::server

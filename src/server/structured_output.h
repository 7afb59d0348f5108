// From what a request says about the form of its answer to the grammar that holds it to that
// (docs/structured_output.md).
#pragma once

#include <memory>

#include "base/result.h"
#include "decode/grammar_compile.h"
#include "text/chat_json.h"
#include "text/structured_fields.h"

namespace cedra::server {

// The grammar of a conversation's answer; nullptr if any answer will do. `grammars` may be nullptr:
// then what asks for one is refused.
// Errors: those of decode::compile_grammar, and kInvalid where fields exclude each other.
Result<std::shared_ptr<const decode::Grammar>> answer_grammar(const text::ParsedRequest& request,
                                                              const text::Prompt& prompt,
                                                              decode::GrammarCache* grammars);
// The same for raw completions.
Result<std::shared_ptr<const decode::Grammar>> completion_grammar(
    const text::StructuredFields& fields, decode::GrammarCache* grammars);

}  // namespace cedra::server

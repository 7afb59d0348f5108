// Calls of earlier turns, back in the markup the model wrote them in (spec chat.md 2.8).
#pragma once

#include <span>

#include "text/chat.h"
#include "text/json_value.h"
#include "text/prompt_builder.h"

namespace cedra::text {

// The whole block with its two leading line feeds. Arguments that are no JSON object, also not
// after a second decoding, become one string parameter "arguments"; empty ones count as {}.
void append_call_block(std::span<const ToolCall> calls, JsonReader& reader, PromptBuilder& out);

}  // namespace cedra::text

// The fixed sentences of the prompt template (spec chat.md 2.4, 2.6).
#pragma once

#include <string_view>

namespace cedra::text::prompt_text {

inline constexpr std::string_view kToolsBegin =
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by "
    "writing a \"<\uff5cDSML\uff5c calls>\" block like the following:\n"
    "\n"
    "<\uff5cDSML\uff5c calls>\n"
    "<\uff5cDSML\uff5c invoke name=\"$TOOL_NAME\">\n"
    "<\uff5cDSML\uff5c parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</\uff5cDSML\uff5c parameter>\n"
    "...\n"
    "</\uff5cDSML\uff5c invoke>\n"
    "<\uff5cDSML\uff5c invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</\uff5cDSML\uff5c invoke>\n"
    "</\uff5cDSML\uff5c calls>\n"
    "\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n"
    "\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n";
// One schema per line stands between the two, without a line feed after the last.
inline constexpr std::string_view kToolsEnd =
    "\n"
    "\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";

inline constexpr std::string_view kResponseFormat =
    "## Response Format:\n"
    "\n"
    "You MUST strictly adhere to the following schema to reply:\n";

inline constexpr std::string_view kEffortBegin = "Reasoning Effort: ";
inline constexpr std::string_view kEffortEnd =
    " (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

}  // namespace cedra::text::prompt_text

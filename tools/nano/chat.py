"""Writes prompts and answers as the engine's template does (docs/spec/chat.md, section 2).

A subset: one optional leading system message, users, assistants (reasoning, content, calls), tool
results in the order of their calls, tools, `response_format`, images in user turns.

A message is a dict as in the chat API, with one difference: `content` of a user may be a list of
strings and `IMAGE`, and the `arguments` of a call are a dict.
"""
import json
from typing import NamedTuple

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
SYSTEM = "<｜System｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
IMAGE = "<｜deepseek_image｜>"
DSML = "｜DSML｜"

DEFAULT_EFFORT = 75

TOOLS_HEAD = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML} calls>" block like the following:

<{DSML} calls>
<{DSML} invoke name="$TOOL_NAME">
<{DSML} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML} parameter>
...
</{DSML} invoke>
<{DSML} invoke name="$TOOL_NAME2">
...
</{DSML} invoke>
</{DSML} calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_TAIL = """

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
FORMAT_HEAD = """

## Response Format:

You MUST strictly adhere to the following schema to reply:
"""


class Segment(NamedTuple):
    """A stretch of the rendered text."""
    text: str
    trusted: bool  # written by the template: added tokens count in it
    trained: bool  # written by the model


class Chat(NamedTuple):
    """A conversation and how it is asked for."""
    messages: list
    thinking: bool = True
    effort: int = DEFAULT_EFFORT
    tools: list = []            # functions: name, description, parameters
    json_object: bool = False   # response_format {"type": "json_object"}


def dump_json(value):
    """JSON in the style of the template: Python's default separators, text as it is."""
    return json.dumps(value, ensure_ascii=False)


def effort_line(effort):
    return (f"Reasoning Effort: {effort} (range 1-100, the higher the value, "
            "the more thorough the reasoning)\n\n")


def schema_line(tool):
    return dump_json({"name": tool["name"], "description": tool.get("description", ""),
                      "parameters": tool["parameters"]})


def calls_segments(calls, trained):
    """The DSML block of an assistant's calls, with the blank line in front (section 2.8)."""
    segments = []
    add = lambda text, trusted=True: segments.append(Segment(text, trusted, trained))
    add(f"\n\n<{DSML} calls>\n")
    for call in calls:
        add(f'<{DSML} invoke name="')
        add(call["name"], False)
        add('">\n')
        for key, value in call["arguments"].items():
            is_string = isinstance(value, str)
            add(f'<{DSML} parameter name="')
            add(key, False)
            add(f'" string="{"true" if is_string else "false"}">')
            add(value if is_string else dump_json(value), False)
            add(f"</{DSML} parameter>\n")
        if not call["arguments"]:
            add("\n")
        add(f"</{DSML} invoke>\n")
    add(f"</{DSML} calls>")
    return segments


def system_segments(chat, text):
    segments = [Segment(SYSTEM, True, False)]
    if chat.thinking:
        segments.append(Segment(effort_line(chat.effort), True, False))
    segments.append(Segment(text, False, False))
    if chat.tools:
        segments.append(Segment("\n\n" + TOOLS_HEAD, True, False))
        segments.append(Segment("\n".join(schema_line(t) for t in chat.tools), False, False))
        segments.append(Segment(TOOLS_TAIL, True, False))
    if chat.json_object:
        segments.append(Segment(FORMAT_HEAD + '{"type": "json_object"}', True, False))
    return segments


def user_segments(blocks):
    """One user turn: `blocks` are lists of segments, joined by blank lines."""
    segments = [Segment(USER, True, False)]
    for i, block in enumerate(blocks):
        if i:
            segments.append(Segment("\n\n", True, False))
        segments.extend(block)
    return segments


def content_blocks(message):
    """The blocks of a user or tool message."""
    if message["role"] == "tool":
        return [[Segment("<tool_result>", True, False), Segment(message["content"], False, False),
                 Segment("</tool_result>", True, False)]]
    content = message["content"]
    parts = content if isinstance(content, list) else [content]
    return [[Segment(part, part == IMAGE, False)] for part in parts]


def is_user_like(message):
    return message["role"] in ("user", "tool")


def assistant_segments(message, chat, keeps_reasoning):
    """Header, reasoning, content, calls and EOS of one assistant message."""
    reasons = chat.thinking and keeps_reasoning
    segments = [Segment(ASSISTANT + ("<think>" if reasons else "</think>"), True, False)]
    if reasons:
        segments.append(Segment(message.get("reasoning_content", ""), False, True))
        segments.append(Segment("</think>", True, True))
    segments.append(Segment(message.get("content") or "", False, True))
    if message.get("tool_calls"):
        segments.extend(calls_segments(message["tool_calls"], True))
    segments.append(Segment(EOS, True, True))
    return segments


def render(chat):
    """All segments of a conversation. One that ends with a user or tool message gets the header of
    the answer to come."""
    messages = list(chat.messages)
    segments = [Segment(BOS, True, False)]
    starts_with_system = bool(messages) and messages[0]["role"] == "system"
    if starts_with_system or chat.thinking or chat.tools or chat.json_object:
        text = messages.pop(0)["content"] if starts_with_system else ""
        segments.extend(system_segments(chat, text))
    last_user = max((i for i, m in enumerate(messages) if is_user_like(m)), default=-1)
    blocks = []
    for i, message in enumerate(messages):
        if is_user_like(message):
            blocks.extend(content_blocks(message))
            continue
        segments.extend(user_segments(blocks))
        blocks = []
        segments.extend(assistant_segments(message, chat, bool(chat.tools) or i > last_user))
    if blocks:
        segments.extend(user_segments(blocks))
        segments.append(Segment(ASSISTANT + ("<think>" if chat.thinking else "</think>"), True, False))
    return [s for s in segments if s.text]


def text_of(segments):
    return "".join(s.text for s in segments)

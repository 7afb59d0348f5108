// Whether an answer is what an item of skills.json expects (the kinds are described in
// tools/nano/skills.py).
import { isDeepStrictEqual } from 'node:util';

const plain = (text) => text.trim().toLowerCase().replace(/\s+/g, ' ').replace(/\.$/, '');

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function callsOf(message) {
  return (message.tool_calls ?? []).map((call) => ({
    name: call.function.name, arguments: parsed(call.function.arguments),
  }));
}

// {right, value}: `value` only of JSON, whether it is also the wanted value.
export function check(expect, message) {
  const content = message.content ?? '';
  switch (expect.kind) {
    case 'text':
      return { right: plain(content) === plain(expect.text) };
    case 'number': {
      const numbers = content.match(/-?\d+(\.\d+)?/g) ?? [];
      return { right: numbers.length > 0 && Number(numbers.at(-1)) === expect.number };
    }
    case 'words':
      return { right: expect.words.every((word) => plain(content).includes(word.toLowerCase())) };
    case 'json':
      return { right: parsed(content) !== undefined,
        value: isDeepStrictEqual(parsed(content), expect.value) };
    case 'calls':
      return { right: isDeepStrictEqual(callsOf(message), expect.calls) };
    default:
      throw new Error(`unknown kind of expectation: ${expect.kind}`);
  }
}

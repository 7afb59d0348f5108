// Identical ids from encode_ids and from Hugging Face tokenizers, over generated text: this
// repository's own files, sentences of many scripts, code points at random, white space, digits,
// control characters, emoji, added tokens whole and broken, UTF-8 repaired from random bytes.
// Deterministic. Called by oracle.sh.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const [encodeIds, tokenizerFile, prefix] = process.argv.slice(2);
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const require = createRequire(path.resolve(prefix) + '/');
const { Tokenizer } = require('tokenizers');

let state = 12345;
function random(below) {  // Mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) % below;
}
const pick = (list) => list[random(list.length)];
function codePoint(first, last) {
  for (;;) {
    const c = first + random(last - first + 1);
    if (c < 0xd800 || c > 0xdfff) return String.fromCodePoint(c);
  }
}
const repeat = (count, make) => Array.from({ length: count }, make).join('');

// First and last code point of the scripts (with marks, digits and signs where the block has them).
const blocks = [[0x20, 0x7e], [0xa0, 0x24f], [0x250, 0x2ff], [0x300, 0x36f], [0x370, 0x3ff],
  [0x400, 0x52f], [0x530, 0x58f], [0x590, 0x5ff], [0x600, 0x6ff], [0x900, 0x97f], [0x980, 0x9ff],
  [0xb80, 0xbff], [0xe00, 0xe7f], [0x1000, 0x109f], [0x10a0, 0x10ff], [0x1100, 0x11ff],
  [0x1200, 0x137f], [0x1e00, 0x1eff], [0x2000, 0x206f], [0x2070, 0x20cf], [0x2100, 0x214f],
  [0x2190, 0x23ff], [0x2460, 0x24ff], [0x2e80, 0x2fdf], [0x3000, 0x303f], [0x3040, 0x30ff],
  [0x3100, 0x33ff], [0x3400, 0x4dbf], [0x4e00, 0x9fff], [0xa000, 0xa4cf], [0xac00, 0xd7a3],
  [0xe000, 0xf8ff], [0xf900, 0xfaff], [0xfe00, 0xfe0f], [0xff00, 0xffef], [0x10000, 0x100ff],
  [0x1d400, 0x1d7ff], [0x1f000, 0x1faff], [0x20000, 0x2a6df], [0xe0000, 0xe01ef]];
const white = [' ', '  ', '\n', '\r', '\r\n', '\t', '\u00a0', '\u3000', '\u2028', '\u0085', '\v',
  '\f', '    ', '\n\n'];
const file = JSON.parse(fs.readFileSync(tokenizerFile, 'utf8'));
const added = file.added_tokens.map((t) => t.content);
const words = Object.keys(file.model.vocab);

const generators = {
  words: () => repeat(400, () => pick(words).replaceAll('\u0120', ' ').replaceAll('\u010a', '\n')),
  block: () => {
    const [first, last] = pick(blocks);
    return repeat(300, () => codePoint(first, last) + (random(6) === 0 ? pick(white) : ''));
  },
  mixed: () => repeat(400, () => codePoint(...pick(blocks))),
  anything: () => repeat(300, () => codePoint(0, 0x10ffff)),
  edges: () => repeat(400, () => pick([...white, 'a', 'Z', '\u00e9', '1', '22', '\u00bd', '\u4e00',
    '\u3042', '!', '.', '\u3002', '\u0301', '\u200d', '\0', '\u{1f44d}', "'s", '_', '\ufe0f'])),
  white: () => repeat(200, () => pick(white)) + 'x',
  digits: () => repeat(100, () => String(random(10 ** (1 + random(9)))) + pick(['', ' ', '.', ','])),
  bytes: () => Buffer.from(Array.from({ length: 600 }, () => random(256))).toString('utf8'),
  control: () => repeat(200, () => codePoint(0, 0x1f) + (random(3) ? '' : codePoint(0x60, 0x9f))),
  tokens: () => repeat(60, () => {
    const token = pick(added);
    return pick(['', ' ', 'a', '<', '\uff5c']) +
      (random(3) ? token : token.slice(random(token.length), 1 + random(token.length)));
  }),
  runs: () => repeat(6, () => codePoint(...pick(blocks)).repeat(1 + random(500))),
};

const texts = [];
let bytes = 0;
const totals = {};
function add(kind, text) {
  const size = Buffer.byteLength(text);
  texts.push({ kind, text });
  bytes += size;
  totals[kind] = (totals[kind] ?? 0) + size;
}
function addFiles(folder) {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const name = path.join(folder, entry.name);
    if (entry.isDirectory()) addFiles(name);
    else if (/\.(md|cpp|h|py|mjs|cmake|txt|json)$/.test(name) && fs.statSync(name).size < 200000) {
      add('files', fs.readFileSync(name, 'utf8'));
    }
  }
}
for (const folder of ['docs', 'src', 'tools', 'tests', 'cmake']) addFiles(path.join(root, folder));
// Every code point between two letters and next to a space.
for (let first = 0; first < 0x110000; first += 0x400) {
  let text = '';
  for (let c = first; c < first + 0x400; ++c) {
    if (c < 0xd800 || c > 0xdfff) text += `a${String.fromCodePoint(c)}b ${String.fromCodePoint(c)}`;
  }
  add('every code point', text);
}
while (bytes < 24e6) for (const [kind, make] of Object.entries(generators)) add(kind, make());

const input = Buffer.concat(texts.flatMap(({ text }) => {
  const body = Buffer.from(text, 'utf8');
  const head = Buffer.alloc(4);
  head.writeUInt32LE(body.length);
  return [head, body];
}));
const ours = spawnSync(encodeIds, [tokenizerFile], { input, maxBuffer: 1 << 30 });
if (ours.status !== 0) {
  console.error(`encode_ids failed: ${ours.error ?? ours.stderr}`);
  process.exit(1);
}

const oracle = Tokenizer.fromFile(tokenizerFile);
const output = ours.stdout;
let at = 0;
let tokens = 0;
for (const [number, { kind, text }] of texts.entries()) {
  const count = output.readUInt32LE(at);
  const ids = Array.from({ length: count }, (_, i) => output.readInt32LE(at + 4 + 4 * i));
  at += 4 + 4 * count;
  const expected = (await oracle.encode(text, null, { addSpecialTokens: false })).getIds();
  tokens += count;
  const differs = ids.findIndex((id, i) => id !== expected[i]);
  if (differs >= 0 || ids.length !== expected.length) {
    const from = Math.max(0, differs - 3);
    console.error(`text ${number} (${kind}) differs at token ${differs} of ${expected.length}`);
    console.error(`  ours   ${ids.slice(from, from + 10)}`);
    console.error(`  theirs ${expected.slice(from, from + 10)}`);
    console.error(`  text   ${JSON.stringify(await oracle.decode(
      expected.slice(from, from + 10), false))}`);
    process.exit(1);
  }
}
if (at !== output.length) {
  console.error(`encode_ids wrote ${output.length - at} bytes too many`);
  process.exit(1);
}
console.log(`${texts.length} texts, ${bytes} bytes, ${tokens} tokens: identical ids`);
console.log(Object.entries(totals).map(([kind, size]) => `${kind} ${size}`).join(', '));

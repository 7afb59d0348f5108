// DeepSeek-V3's tokenizer.json with the added tokens of V4.1 (docs/spec/chat.md 1.3) on stdout.
//   node lay_added_tokens.mjs V3_TOKENIZER_JSON > tokenizer.json
import fs from 'node:fs';

const BAR = '\uff5c';  // fullwidth vertical line
const GAP = '\u2581';  // lower one eighth block
const file = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

const added = new Map();
for (const token of file.added_tokens) {
  if (token.id <= 128824 && token.id !== 128799) added.set(token.id, token);
}
function put(id, content, special) {
  added.set(id, { id, content, single_word: false, lstrip: false, rstrip: false,
    normalized: false, special });
}
function putAll(first, special, contents) {
  contents.forEach((content, i) => put(first + i, content, special));
}
const full = (name) => `<${BAR}${name.replaceAll(' ', GAP)}${BAR}>`;
const mmSpan = (n) => `<|place_holder_mm_span_${String(n).padStart(4, '0')}|>`;

put(128799, full('System'), false);
putAll(128815, false, ['begin of repo name', 'end of repo name', 'begin of file name',
  'end of file name', 'begin of file', 'end of file'].map(full));
putAll(128821, false, ['<think>', '</think>']);
putAll(128823, true, ['place holder for copy', 'place holder for pointer replace'].map(full));
put(128825, `${BAR}DSML${BAR}`, false);
putAll(128826, false, ['begin sys', 'end sys', 'latest_reminder', 'action', 'query', 'authority',
  'domain', 'task', 'political', 'entity', 'title', 'safety', 'answer', 'search'].map(full));
putAll(128840, false, ['<dsml:', '</dsml:']);
putAll(128842, false, ['search begin', 'search end', 'extracted_url', 'read_url'].map(full));
put(128846, full('end_of_query'), true);
for (let n = 21; n <= 435; ++n) put(128826 + n, mmSpan(n), true);
putAll(129262, true, ['rl_image_pad', 'rl_image_start'].map(full));
put(129264, full('deepseek_image'), false);
for (let n = 436; n <= 441; ++n) put(128829 + n, mmSpan(n), true);
putAll(129271, true, ['/polygon', 'polygon', '/point', 'point', '/box', 'box', '/ref', 'ref']
  .map(full));
put(129279, mmSpan(442), true);

file.added_tokens = [...added.values()].sort((a, b) => a.id - b.id);
const missing = [];
for (let id = 128000; id < 129280; ++id) if (!added.has(id)) missing.push(id);
if (missing.length || file.added_tokens.length !== 1283) {
  console.error(`expected added tokens 0, 1, 2 and 128000..129279, found ` +
    `${file.added_tokens.length}; missing ${missing.join(' ')}`);
  process.exit(1);
}
process.stdout.write(JSON.stringify(file));

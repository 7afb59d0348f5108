// oracle.mjs SAMPLE_GRAMMAR TOKENIZER_JSON NPM_FOLDER [SCHEMAS [SEED]]
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import path from 'node:path';

const [program, tokenizer, npm, schemas = '400', seed = '1'] = process.argv.slice(2);
const require = createRequire(path.resolve(npm, 'x.js'));
const Ajv = require('ajv/dist/2020').default;
const xgrammar = require('./web-xgrammar.cjs');

// ----- the program

const child = spawn(program, [tokenizer], { stdio: ['pipe', 'pipe', 'inherit'] });
const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
async function ask(order) {
  child.stdin.write(JSON.stringify(order) + '\n');
  const { value, done } = await lines.next();
  if (done) throw new Error('sample_grammar ended early');
  return JSON.parse(value);
}

// ----- random

let state = BigInt(seed) * 0x9E3779B97F4A7C15n + 1n;
function random(n) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number((state >> 33n) % BigInt(n));
}
const chance = (percent) => random(100) < percent;
const pick = (list) => list[random(list.length)];
const maybe = (percent, object, key, value) => { if (chance(percent)) object[key] = value(); };

let failures = 0;
function fail(message) {
  if (++failures <= 10) console.error('DIFFERS: ' + message);
}

// ----- schemas

const names = ['a', 'b', 'name', 'x y', 'quote"d', 'back\\slash', '\u00e4\u4e2d', 'new\nline', '<b>', 'id', ''];
const patterns = ['^[a-z]{2,5}$', 'ab+', '^\\d{3}-\\d{2}$', '^(yes|no)$', '[^"\\\\]$', '^.{0,4}$', '\\.',
  '^[\\u00e0-\\u00ff]+$', '^a|b$', '^\\w+@\\w+\\.(com|org)$'];

function numberBounds(s, integer) {
  const value = () => integer ? random(2000) - 1000 : (random(200000) - 100000) / pick([1, 10, 100, 1000]);
  const low = value();
  if (chance(40)) s[pick(['minimum', 'exclusiveMinimum'])] = low;
  if (chance(40)) s[pick(['maximum', 'exclusiveMaximum'])] = low + (integer ? 2 + random(500) : random(100) + 0.5);
  if (integer) maybe(15, s, 'multipleOf', () => 1 + random(12));
}

function schema(depth) {
  const leaf = depth <= 0;
  switch (random(leaf ? 8 : 14)) {
    case 0: return { type: 'null' };
    case 1: return { type: 'boolean' };
    case 2: { const s = { type: 'integer' }; numberBounds(s, true); return s; }
    case 3: { const s = { type: 'number' }; numberBounds(s, false); return s; }
    case 4: {
      const s = { type: 'string' };
      const low = random(4);
      maybe(30, s, 'minLength', () => low);
      maybe(50, s, 'maxLength', () => low + random(8));
      return s;
    }
    case 5: {
      const s = { type: 'string', pattern: pick(patterns) };
      maybe(15, s, 'maxLength', () => 8 + random(8));
      return s;
    }
    case 6: return { enum: [...new Set([pick(names), 1, null, 'v' + random(9), [1, 'a'], { k: [] }, true, 2.5])].slice(random(5)) };
    case 7: return chance(50) ? { const: pick(names) } : { type: ['string', 'null'], maxLength: 5 };
    case 8:
    case 9: {
      const s = { type: 'array', items: schema(depth - 1) };
      const low = random(3);
      maybe(40, s, 'minItems', () => low);
      maybe(60, s, 'maxItems', () => low + random(4));
      return s;
    }
    case 10: {
      const s = { type: 'array', prefixItems: [schema(depth - 1), schema(depth - 1)] };
      maybe(40, s, 'items', () => schema(depth - 1));
      maybe(40, s, 'minItems', () => 1 + random(2));
      return s;
    }
    case 11: return { anyOf: [schema(depth - 1), schema(depth - 1)] };
    default: {
      const s = { type: 'object', properties: {} };
      const count = random(5);
      for (let i = 0; i < count; ++i) s.properties[pick(names)] = schema(depth - 1);
      const known = Object.keys(s.properties);
      s.required = known.filter(() => chance(50));
      maybe(30, s, 'additionalProperties', () => chance(50) ? false : schema(depth - 1));
      maybe(10, s, 'description', () => 'quotes " and } braces');
      if (chance(10)) { s.required = [...s.required, 'extra']; s.additionalProperties = schema(depth - 1); }
      if (chance(10)) s.minProperties = 1;
      if (chance(10)) s.patternProperties = { '^zz_': schema(depth - 1) };
      return s;
    }
  }
}

function wrapped(depth) {
  const s = schema(depth);
  switch (random(6)) {
    case 0: return { $defs: { it: s }, type: 'array', items: { $ref: '#/$defs/it' }, maxItems: 3 };
    case 1: return {
      $defs: { node: { type: 'object', properties: { value: s, next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] } }, required: ['value'] } },
      $ref: '#/$defs/node',
    };
    case 2: return { type: 'object', properties: { one: s }, required: ['one'], allOf: [{ properties: { two: { type: 'integer' } } }] };
    case 3: return { oneOf: [
      { type: 'object', properties: { kind: { const: 'a' }, v: s }, required: ['kind'], additionalProperties: false },
      { type: 'object', properties: { kind: { enum: ['b', 'c'] } }, required: ['kind'], additionalProperties: false }, { type: 'null' }] };
    default: return s;
  }
}

function keysInOrder(s, value) {
  if (!s || typeof s !== 'object' || !s.properties || !value || typeof value !== 'object' || Array.isArray(value)) return true;
  // Keys that look like array indexes do not keep their order in JavaScript; none do here.
  const order = Object.keys(s.properties);
  const seen = Object.keys(value).filter((k) => order.includes(k));
  return JSON.stringify(seen) === JSON.stringify(order.filter((k) => seen.includes(k)));
}

async function judgeSchemas() {
  let compiled = 0, refused = 0, samples = 0, cut = 0;
  for (let i = 0; i < Number(schemas); ++i) {
    const s = wrapped(3);
    const text = JSON.stringify(s);
    const result = await ask({ op: 'sample', kind: 'json_schema', text, count: 12, seed: i, max: 400 });
    if (result.error) {
      // Only what no value satisfies, or what is said to be unsupported.
      if (!/is not supported|nothing can satisfy/.test(result.error)) fail(`${text}: ${result.error}`);
      ++refused;
      continue;
    }
    ++compiled;
    cut += result.cut;
    const validate = new Ajv({ strict: false, allErrors: false }).compile(s);
    for (const sample of result.samples) {
      ++samples;
      let value;
      try {
        value = JSON.parse(sample);
      } catch (error) {
        fail(`${text} gave ${sample}: ${error.message}`);
        continue;
      }
      if (!validate(value)) fail(`${text} gave ${sample}: ${JSON.stringify(validate.errors)}`);
      if (!keysInOrder(s, value)) fail(`${text} gave ${sample}: the order of its keys`);
    }
  }
  console.log(`ajv: ${samples} answers to ${compiled} schemas are valid (${cut} cut off, ${refused} schemas refused)`);
  if (samples < Number(schemas)) fail('too few answers came to an end');
}

async function judgeAnyJson() {
  const result = await ask({ op: 'sample', kind: 'json_object', text: '', count: 200, seed: 1, max: 300 });
  for (const sample of result.samples) {
    const value = JSON.parse(sample);
    if (value === null || typeof value !== 'object' || Array.isArray(value)) fail(`json_object gave ${sample}`);
  }
  console.log(`JSON.parse: ${result.samples.length} objects`);
}

// ----- texts near those of a language

function mutate(text, alphabet) {
  const chars = [...text];
  for (let i = 1 + random(2); i > 0; --i) {
    const at = random(chars.length + 1);
    switch (random(3)) {
      case 0: chars.splice(at, 1); break;
      case 1: chars.splice(at, 0, pick(alphabet)); break;
      default: if (at < chars.length) chars[at] = pick(alphabet);
    }
  }
  return chars.join('');
}

const regexes = [
  'abc', '(a|b)*abb', '[a-c]{2,4}x?', '\\d+(\\.\\d+)?', '(ab|a)(bc|c)', '^a*$', 'a.c', '[^a-b]+', '(?:ab){0,2}c',
  '(a*)*b', '\\w+@\\w+\\.com', '(a|ab)(c|bcd)(d*)', 'x{3}|y{2,}', '[\\s\\S]{1,3}', '(^|a)b($|c)', '\\u0061\\x62[\\]\\-]',
  '(1[0-2]|0?[1-9]):[0-5]\\d', '\\p{Lu}\\p{Ll}*', '(a?){4}a{4}', '((a|b)(c|d)){2}',
];

async function judgeRegexes() {
  let texts = 0;
  const alphabet = [...'abcdxy019.:-@] \n\u00e4\u4e2dA'];
  for (const regex of regexes) {
    const js = new RegExp(`^(?:${regex})$`, 'u');
    const { samples, error } = await ask({ op: 'sample', kind: 'regex', text: regex, count: 60, seed: 3, max: 40 });
    if (error) { fail(`${regex}: ${error}`); continue; }
    const inputs = [...samples, ''];
    for (let i = 0; i < 300; ++i) inputs.push(mutate(pick(inputs), alphabet).slice(0, 60));
    const { accepted } = await ask({ op: 'accept', kind: 'regex', text: regex, inputs });
    inputs.forEach((input, i) => {
      ++texts;
      if (js.test(input) !== accepted[i]) fail(`/${regex}/ on ${JSON.stringify(input)}: JavaScript says ${js.test(input)}`);
    });
  }
  console.log(`RegExp: ${texts} texts judged alike by ${regexes.length} expressions`);
}

const grammars = [
  'root ::= "a" | "b" "c"',
  'root ::= [a-z]+ ("," [a-z]+)*',
  'root ::= expr\nexpr ::= term (("+" | "-") term)*\nterm ::= factor (("*" | "/") factor)*\nfactor ::= [0-9]+ | "(" expr ")"',
  'root ::= "(" root ")" | "[" root "]" | ""',
  'root ::= "a" root "b" | "a" root "c" | "d"',
  'root ::= s\ns ::= "a" s s | "b"',
  'root ::= ("ab" | "a") ("bc" | "c"){1,2} "d"?',
  'root ::= item{2,3}\nitem ::= [a-c] "x"*',
  'root ::= line+\nline ::= "- " [^\\n]+ "\\n"',
  'root ::= "\\"" ([^"\\\\] | "\\\\" ["\\\\n])* "\\""',
  // Not with classes of such characters: XGrammar 0.1.27 takes nothing for them.
  'root ::= ("\u00e4" | "\u4e2dx")+ "\u4e2d"',
  'root ::= (a b?)* c\na ::= "x" | "xy"\nb ::= "y" | "yz"\nc ::= "z"',
];

async function judgeGrammars() {
  let texts = 0;
  const alphabet = [...'abcdxyz01+*/()[],- "\\\n\u00e4\u4e2d'];
  for (const text of grammars) {
    const theirs = await xgrammar.Grammar.fromEBNF(text);
    const { samples, error } = await ask({ op: 'sample', kind: 'grammar', text, count: 40, seed: 5, max: 40 });
    if (error) { fail(`${text}: ${error}`); continue; }
    const inputs = [...samples, ''];
    for (let i = 0; i < 200; ++i) inputs.push(mutate(pick(inputs), alphabet).slice(0, 60));
    const { accepted } = await ask({ op: 'accept', kind: 'grammar', text, inputs });
    for (let i = 0; i < inputs.length; ++i) {
      ++texts;
      const expected = await xgrammar.Testings.isGrammarAcceptString(theirs, inputs[i]);
      if (expected !== accepted[i]) fail(`${JSON.stringify(text)} on ${JSON.stringify(inputs[i])}: XGrammar says ${expected}`);
    }
    theirs.dispose();
  }
  console.log(`XGrammar: ${texts} texts judged alike by ${grammars.length} grammars`);
}

// What XGrammar understands alike: our answers are in its grammar, which allows any white space.
const shared = [
  { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' }, ok: { type: 'boolean' } }, required: ['name', 'age'] },
  { type: 'array', items: { type: 'object', properties: { a: { type: 'null' }, b: { enum: ['x', 'y', 3] } }, required: ['a'] } },
  { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'integer' }, minItems: 1, maxItems: 3 }] },
  { $defs: { n: { type: 'object', properties: { v: { type: 'boolean' }, n: { anyOf: [{ $ref: '#/$defs/n' }, { type: 'null' }] } }, required: ['v', 'n'] } }, $ref: '#/$defs/n' },
  { type: 'object', properties: { a: { const: 'k' } }, required: ['a'], additionalProperties: { type: 'integer' } },
];

async function judgeSharedSchemas() {
  let texts = 0;
  for (const s of shared) {
    const text = JSON.stringify(s);
    const theirs = await xgrammar.Grammar.fromJSONSchema(text, true);
    const { samples, error } = await ask({ op: 'sample', kind: 'json_schema', text, count: 60, seed: 7, max: 200 });
    if (error) { fail(`${text}: ${error}`); continue; }
    for (const sample of samples) {
      ++texts;
      if (!(await xgrammar.Testings.isGrammarAcceptString(theirs, sample))) fail(`XGrammar refuses ${sample} of ${text}`);
    }
    theirs.dispose();
  }
  console.log(`XGrammar: ${texts} answers to ${shared.length} schemas accepted`);
}

await judgeSchemas();
await judgeAnyJson();
await judgeRegexes();
await judgeGrammars();
await judgeSharedSchemas();
child.stdin.end();
const code = await new Promise((resolve) => child.on('close', resolve));
if (code !== 0) fail(`sample_grammar ended with ${code}`);
if (failures > 0) console.error(`${failures} differences`);
process.exit(failures > 0 ? 1 : 0);

// The nano model's skill set through the server, greedy: a table per group; exit status 1 where a group
// is under its goal.
//
//   node tests/nano/run_skills.mjs --binary build/release/cedra --model models/nano \
//     [--groups facts,sums] [--recorded docs/nano/measured.json] [--speculative] [--out FILE.json]
//
// --recorded: fail where a group is clearly worse than it was when the weights were measured, instead
// of where it misses its goal. That judges the program; the goals judge the weights.
// --speculative drafts with the model's own stages: the answers stay the same, and the table ends
// with the mean accepted draft length.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { check } from './checks.mjs';
import { mapLimited, metrics, post, serve } from './server.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: flags } = parseArgs({
  options: {
    binary: { type: 'string', default: 'build/release/cedra' },
    model: { type: 'string', default: 'models/nano' },
    skills: { type: 'string', default: path.join(here, 'skills.json') },
    groups: { type: 'string' }, // default: all
    threads: { type: 'string', default: '2' },
    isa: { type: 'string' }, // default: the best here
    concurrency: { type: 'string', default: '8' },
    recorded: { type: 'string' },
    speculative: { type: 'boolean', default: false },
    'accepted-goal': { type: 'string', default: '3.0' }, // mean accepted drafts of a block, with --speculative
    out: { type: 'string' },
  },
});
const skills = JSON.parse(fs.readFileSync(flags.skills, 'utf8'));
const skillsFolder = path.dirname(flags.skills);

// ---- one item ----------------------------------------------------------------------------------

// The texts and pictures that an item names, put in their place.
function resolved(messages) {
  const text = (content) => content.replace(/\{\{(\w+)\}\}/g, (_, name) => skills.texts[name]);
  const part = (piece) => (piece.type !== 'image_url' ? { ...piece, text: text(piece.text) }
    : { type: 'image_url', image_url: { url: dataUrl(piece.image_url.url) } });
  const content = (given) => (Array.isArray(given) ? given.map(part) : given && text(given));
  return messages.map((message) => ({ ...message, content: content(message.content) }));
}

function dataUrl(file) {
  return `data:image/png;base64,${fs.readFileSync(path.join(skillsFolder, file)).toString('base64')}`;
}

async function ask(base, request, more = {}) {
  const answer = await post(base, '/v1/chat/completions', { model: 'nano', ...request,
    messages: resolved(request.messages), return_token_ids: true, ...more });
  return { message: answer.choices[0].message, usage: answer.usage,
    ids: { prompt: answer.prompt_token_ids, answer: answer.choices[0].token_ids } };
}

// What the model says after the results of its calls.
function afterResults(base, item, message) {
  const results = item.results.map((content, i) => (
    { role: 'tool', tool_call_id: message.tool_calls[i].id, content }));
  return ask(base, { ...item.request, messages: [...item.request.messages, message, ...results] });
}

async function runItem(base, item) {
  if (item.expect.kind === 'effort') return runEffortItem(base, item);
  const { message, ids } = await ask(base, item.request);
  const outcome = { id: item.id, group: item.group, ...check(item.expect, message), message, ids };
  if (item.results && outcome.right) {
    outcome.final = (await afterResults(base, item, message)).message;
    outcome.right = check(item.expect_final, outcome.final).right;
  }
  return outcome;
}

// Tokens of reasoning at every effort, and with thinking disabled.
async function runEffortItem(base, item) {
  const outcome = { id: item.id, group: item.group, tokens: {}, right: true };
  const wanted = { kind: 'number', number: item.expect.answer };
  for (const effort of [...item.expect.efforts, 'off']) {
    const { message, usage } = await ask(base, item.request,
      effort === 'off' ? { thinking: { type: 'disabled' } } : { reasoning_effort: effort });
    outcome.tokens[effort] = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    outcome.right = outcome.right && check(wanted, message).right;
  }
  return outcome;
}

// ---- all of them -------------------------------------------------------------------------------

// Items that share a long text run one after another, thinking ones first, so that the cache has it.
function lanes(items) {
  const byText = new Map();
  for (const item of items) {
    const text = /^\{\{(\w+)\}\}/.exec(item.request.messages[0].content)?.[1] ?? item.id;
    byText.set(text, [...(byText.get(text) ?? []), item]);
  }
  const long = (lane) => lane.length;
  return [...byText.values()]
    .map((lane) => lane.sort((a, b) => Boolean(a.request.thinking) - Boolean(b.request.thinking)))
    .sort((a, b) => long(b) - long(a));
}

const mean = (numbers) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length;

// {group: {right, of, share, goal, ...}}
function summarise(outcomes) {
  const groups = {};
  for (const [group, goal] of Object.entries(skills.goals)) {
    const mine = outcomes.filter((outcome) => outcome.group === group);
    if (mine.length === 0) continue;
    const right = mine.filter((outcome) => outcome.right).length;
    groups[group] = { right, of: mine.length, share: right / mine.length, goal };
  }
  if (groups.json) {
    groups.json.values = outcomes.filter((outcome) => outcome.value).length;
  }
  if (groups.effort) Object.assign(groups.effort, effortSummary(outcomes));
  return groups;
}

// The goal of this group is the order of the means, not the answers.
function effortSummary(outcomes) {
  const mine = outcomes.filter((outcome) => outcome.group === 'effort');
  const tokens = {};
  for (const effort of Object.keys(mine[0].tokens)) {
    tokens[effort] = mean(mine.map((outcome) => outcome.tokens[effort]));
  }
  const { off, ...thinking } = tokens;
  const efforts = Object.keys(thinking).map(Number).sort((a, b) => a - b);
  const grows = efforts.every((effort, i) => i === 0 || tokens[effort] > tokens[efforts[i - 1]]);
  return { tokens, share: grows && off === 0 ? 1 : 0 };
}

function print(groups) {
  console.log('group        right  of    share  goal');
  for (const [group, { right, of, share, goal, values, tokens }] of Object.entries(groups)) {
    const more = values === undefined ? '' : `  values right: ${values}`;
    const lengths = tokens ? `  reasoning tokens: ${Object.entries(tokens)
      .map(([effort, n]) => `${effort}: ${n.toFixed(1)}`).join(', ')}` : '';
    console.log(`${group.padEnd(12)} ${String(right).padStart(5)} ${String(of).padStart(3)} `
      + `${(100 * share).toFixed(1).padStart(6)} % ${(100 * goal).toFixed(0).padStart(3)} %`
      + `${share < goal ? '  UNDER' : ''}${more}${lengths}`);
  }
}

async function draftSummary(base) {
  const counts = await metrics(base);
  const blocks = counts['vllm:spec_decode_num_drafts_total'];
  const accepted = counts['vllm:spec_decode_num_accepted_tokens_total'];
  return { blocks, accepted, mean: accepted / blocks, goal: Number(flags['accepted-goal']) };
}

// Levels of instructions round differently, and a small model's answers tip now and then.
const TOLERANCE = 0.1;
const recorded = flags.recorded && JSON.parse(fs.readFileSync(flags.recorded, 'utf8')).groups;
const floor = (group) => recorded[group].share - TOLERANCE;

const wanted = flags.groups?.split(',');
const items = skills.items.filter((item) => !wanted || wanted.includes(item.group));
const server = await serve(flags.binary, flags.model, ['--threads', flags.threads,
  ...(flags.isa ? ['--isa', flags.isa] : []),
  ...(flags.speculative ? ['--speculative-config', '{"method":"dspark"}'] : [])]);
try {
  const begin = Date.now();
  const outcomes = (await mapLimited(lanes(items), Number(flags.concurrency), async (lane) => {
    const done = [];
    for (const item of lane) done.push(await runItem(server.base, item));
    return done;
  })).flat();
  const groups = summarise(outcomes);
  print(groups);
  let under = Object.entries(groups).some(([group, { share, goal }]) => share < (recorded ? floor(group) : goal));
  const result = { seconds: (Date.now() - begin) / 1000, groups, outcomes };
  if (flags.speculative) {
    result.drafts = await draftSummary(server.base);
    console.log(`accepted drafts of a block: ${result.drafts.mean.toFixed(2)}, goal ${result.drafts.goal}`);
    under = under || !(result.drafts.mean >= result.drafts.goal);
  }
  console.log(`${items.length} items, ${result.seconds.toFixed(1)} s`);
  if (flags.out) fs.writeFileSync(flags.out, `${JSON.stringify(result, null, 1)}\n`);
  process.exitCode = under ? 1 : 0;
} finally {
  server.stop();
}

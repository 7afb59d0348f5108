// Runs `cedra serve` under a disorderly load and judges what must hold: greedy answers never change,
// no request hangs, every cache block is given back, memory does not grow, and a server killed with
// SIGKILL starts clean again.
//
//   node tests/soak/soak.mjs --binary build/release/cedra --model models/tiny --minutes 30
//
// Prints a line per round and a JSON summary; exit status 1 if anything failed.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({
  options: {
    binary: { type: 'string', default: 'build/release/cedra' },
    model: { type: 'string', default: 'models/tiny' },
    minutes: { type: 'string', default: '30' },
    clients: { type: 'string', default: '64' },
    port: { type: 'string', default: '18431' },
    seed: { type: 'string', default: '1' },
    'stuck-seconds': { type: 'string', default: '180' },
  },
});
const MINUTES = Number(flags.minutes);
const CLIENTS = Number(flags.clients);
const PORT = Number(flags.port);
const STUCK_MS = Number(flags['stuck-seconds']) * 1000;
const ROUNDS = 10; // memory and blocks are looked at between rounds
const KILL_IN_ROUNDS = [1, 8]; // a SIGKILL in the middle of these
const HOST = '127.0.0.1';

let state = Number(flags.seed) >>> 0;
function random(below) {
  // xorshift32: the schedule depends on the seed alone (what the machine makes of it does not)
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
}
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const counts = {
  answered: 0, checked: 0, cancelled: 0, slow: 0, halfClosed: 0, refused: 0, dropped: 0,
  restarts: 0,
};
const failures = [];
function fail(text) {
  failures.push(text);
  console.log(`FAILED: ${text}`);
}

// ---- the server

let server = null;
let down = true; // between a SIGKILL and the next /health
async function start() {
  const child = spawn(flags.binary, [
    'serve', flags.model, '--port', String(PORT), '--threads', '1', '--max-num-seqs', '16',
    '--max-queue', '40', '--memory-budget', '192M', '--prefill-mode', 'exact',
    '--window-records', '64',
  ], { stdio: ['ignore', 'ignore', 'pipe'] });
  let errors = '';
  child.stderr.on('data', (data) => { errors = (errors + data).slice(-4000); });
  child.on('exit', (code, signal) => {
    if (child.expected) return;
    fail(`the server ended by itself: code ${code}, signal ${signal}: ${errors}`);
    finish();
  });
  server = child;
  const begin = Date.now();
  for (;;) {
    if (await status('/health') === 200) break;
    if (Date.now() - begin > 60000) throw new Error(`no /health after 60 s: ${errors}`);
    await sleep(100);
  }
  down = false;
  return Date.now() - begin;
}
async function kill() {
  down = true;
  server.expected = true;
  const gone = new Promise((resolve) => server.once('exit', resolve));
  server.kill('SIGKILL');
  await gone;
}
function request(method, path, body) {
  return new Promise((resolve, reject) => {
    const data = body === undefined ? undefined : JSON.stringify(body);
    const out = http.request({
      host: HOST, port: PORT, method, path, agent: false,
      headers: data ? { 'content-type': 'application/json', 'content-length': Buffer.byteLength(data) } : {},
    }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => { text += chunk; });
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, text }));
      response.on('error', reject);
    });
    out.on('error', reject);
    out.end(data);
  });
}
async function status(path) {
  try {
    return (await request('GET', path)).status;
  } catch {
    return 0;
  }
}
async function metrics() {
  const { text } = await request('GET', '/metrics');
  const out = {};
  for (const line of text.split('\n')) {
    const match = /^([a-z_:]+)\{[^}]*\} (\S+)$/.exec(line);
    if (match) out[match[1]] = Number(match[2]);
  }
  return out;
}
function anonymousKib() {
  const text = fs.readFileSync(`/proc/${server.pid}/status`, 'utf8');
  return Number(/RssAnon:\s+(\d+)/.exec(text)[1]);
}

// ---- requests

function tokens(count, seed) {
  let value = (seed * 2654435761) >>> 0 || 1;
  return Array.from({ length: count }, () => {
    value ^= value << 13;
    value ^= value >>> 17;
    value ^= value << 5;
    return 3 + ((value >>> 0) % 440);
  });
}
// A few conversations, cut at random: prefixes are shared, published, evicted.
function prompt() {
  const base = tokens(700, 100 + random(12)).slice(0, 1 + random(700));
  return base.concat(tokens(1 + random(60), random(1 << 30)));
}
// Greedy requests whose answers must be the same every time.
const marked = Array.from({ length: 8 }, (_, i) => ({
  prompt: tokens([1, 17, 63, 64, 65, 200, 401, 640][i], 7000 + i),
  max_tokens: 24, temperature: 0, ignore_eos: true, return_token_ids: true,
}));
const wanted = [];

async function whole(body) {
  const answer = await request('POST', '/v1/completions', body);
  if (answer.status === 429 || answer.status === 503) {
    counts.refused += 1;
    if (!answer.headers['retry-after']) fail(`${answer.status} without retry-after`);
    await sleep(200 + random(800));
    return null;
  }
  if (answer.status !== 200) fail(`status ${answer.status}: ${answer.text.slice(0, 300)}`);
  return JSON.parse(answer.text);
}

// A raw connection: `act(socket, seen)` is called for every piece of data. Resolves at the close.
function raw(body, act) {
  return new Promise((resolve, reject) => {
    const data = JSON.stringify(body);
    const socket = net.connect({ host: HOST, port: PORT, allowHalfOpen: true });
    let seen = '';
    socket.on('connect', () => {
      socket.write(`POST /v1/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n` +
        `Content-Length: ${Buffer.byteLength(data)}\r\nConnection: close\r\n\r\n${data}`);
      act(socket, '');
    });
    socket.on('data', (chunk) => {
      seen += chunk;
      act(socket, seen);
    });
    socket.on('error', reject);
    socket.on('end', () => socket.end());
    socket.on('close', () => resolve(seen));
  });
}

async function one() {
  const kind = random(100);
  const body = { prompt: prompt(), max_tokens: 1 + random(80), temperature: 1, seed: random(1 << 30), ignore_eos: true };
  if (kind < 20) {
    // Leaves: at once, while it waits, in prefill or in decode, by FIN or by RST.
    const reset = random(2) === 0;
    const after = random(600);
    await raw({ ...body, stream: random(2) === 0, max_tokens: 300 }, (socket, seen) => {
      if (seen === '') setTimeout(() => (reset ? socket.resetAndDestroy() : socket.destroy()), after);
    });
    counts.cancelled += 1;
  } else if (kind < 25) {
    // Half-closed: the server takes it as leaving; it must close, whatever was sent before.
    await raw({ ...body, stream: true }, (socket, seen) => {
      if (seen === '') setTimeout(() => socket.end(), random(200));
    });
    counts.halfClosed += 1;
  } else if (kind < 30) {
    // Reads nothing for a while, then the rest.
    await raw({ ...body, stream: true, logprobs: 5 }, (socket, seen) => {
      if (seen === '' || random(4) === 0) {
        socket.pause();
        setTimeout(() => socket.resume(), 500 + random(3000));
      }
    });
    counts.slow += 1;
  } else if (kind < 45) {
    const i = random(marked.length);
    const answer = await whole(marked[i]);
    if (answer === null) return;
    const got = JSON.stringify(answer.choices[0].token_ids);
    if (got !== wanted[i]) fail(`marked request ${i} answered ${got}, wanted ${wanted[i]}`);
    counts.checked += 1;
  } else if (kind < 70) {
    const seen = await raw({ ...body, stream: true, n: 1 + random(3) }, () => {});
    if (/^HTTP\/1.1 (429|503)/.test(seen)) counts.refused += 1;
    else if (!seen.includes('data: [DONE]') && !down) fail(`a stream ended early: ${seen.slice(-300)}`);
    else counts.answered += 1;
  } else {
    const answer = await whole(body);
    if (answer === null) return;
    const { usage } = answer;
    if (usage.completion_tokens !== body.max_tokens || usage.prompt_tokens !== body.prompt.length) {
      fail(`usage ${JSON.stringify(usage)} of ${body.prompt.length} + ${body.max_tokens}`);
    }
    counts.answered += 1;
  }
}

let running = false;
async function client() {
  while (running) {
    if (down) {
      await sleep(100);
      continue;
    }
    const wasUp = server;
    let timer;
    const stuck = new Promise((resolve) => { timer = setTimeout(() => resolve('stuck'), STUCK_MS); });
    try {
      if (await Promise.race([one(), stuck]) === 'stuck') fail(`a request took more than ${STUCK_MS} ms`);
    } catch (error) {
      // Connections of a killed server break; others must not.
      if (down || server !== wasUp) counts.dropped += 1;
      else fail(`connection: ${error.message}`);
    }
    clearTimeout(timer);
  }
}

// ---- rounds

const rounds = [];
function finish() {
  const warm = rounds.filter((r) => r.comparable);
  const growth = warm.length >= 2 ? warm[warm.length - 1].anonymousKib - warm[0].anonymousKib : 0;
  if (growth > 4096) fail(`memory grew by ${growth} KiB between round ${warm[0].round} and the last`);
  console.log(JSON.stringify({ minutes: MINUTES, clients: CLIENTS, counts, growthKib: growth, rounds, failures: failures.slice(0, 20) }, null, 1));
  if (server) {
    server.expected = true;
    server.kill('SIGKILL');
  }
  process.exit(failures.length > 0 ? 1 : 0);
}

const begin = Date.now();
await start();
for (const body of marked) wanted.push(JSON.stringify((await whole(body)).choices[0].token_ids));

for (let round = 0; round < ROUNDS; ++round) {
  const end = begin + ((round + 1) * MINUTES * 60000) / ROUNDS;
  running = true;
  const clients = Array.from({ length: CLIENTS }, client);
  const kills = KILL_IN_ROUNDS.includes(round);
  if (kills) {
    await sleep(Math.max(0, (end - Date.now()) / 2));
    await kill();
    await sleep(300);
    counts.restarts += 1;
    const took = await start();
    console.log(`killed and restarted: ready after ${took} ms`);
  }
  await sleep(Math.max(0, end - Date.now()));
  running = false;
  await Promise.all(clients);
  let seen = await metrics();
  for (const until = Date.now() + 10000; Date.now() < until;) {
    if (seen['vllm:num_requests_running'] + seen['vllm:num_requests_waiting'] === 0) break;
    await sleep(50);
    seen = await metrics();
  }
  const left = ['vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:kv_cache_usage_perc'];
  for (const name of left) if (seen[name] !== 0) fail(`${name} is ${seen[name]} after round ${round}`);
  // The first round after a start fills the caches; from then on nothing may grow.
  const comparable = round >= KILL_IN_ROUNDS[0] + 1 && round < KILL_IN_ROUNDS[1];
  const record = {
    round, anonymousKib: anonymousKib(), comparable,
    fds: fs.readdirSync(`/proc/${server.pid}/fd`).length,
    steps: seen['cedra:engine_steps_total'], generated: seen['vllm:generation_tokens_total'],
    hits: seen['vllm:prefix_cache_hits_total'], queries: seen['vllm:prefix_cache_queries_total'],
    cancelled: seen['cedra:requests_cancelled_total'],
  };
  rounds.push(record);
  console.log(JSON.stringify(record));
}
finish();

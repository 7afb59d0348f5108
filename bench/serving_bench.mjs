// What serving costs beside the model: overhead per step with 1 to 256 running streams, a thousand
// idle streams, and the time from a disconnect to the freed slot. Over HTTP on 127.0.0.1, against
// `cedra serve` started here.
//
//   node bench/serving_bench.mjs --binary build/release/cedra --model models/tiny
//
// At the released dims, overhead only, with fewer tokens where a step is longer:
//
//   build/release/cedra synth /tmp/synth --layers 6 --experts 16 --vocab 32768 --engram-rows 1000000 \
//     --text-only --draft-stages 0
//   node bench/serving_bench.mjs --model /tmp/synth --threads 2 --memory 6G --context 256 \
//     --tokens 32,8,4,3 --only overhead
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({
  options: {
    binary: { type: 'string', default: 'build/release/cedra' },
    model: { type: 'string', default: 'models/tiny' },
    port: { type: 'string', default: '18432' },
    threads: { type: 'string', default: '1' },
    memory: { type: 'string', default: '512M' },
    context: { type: 'string' }, // default: the model's
    tokens: { type: 'string', default: '200' }, // of each stream; a list: for 1, 16, 64, 256 streams
    only: { type: 'string', default: 'overhead,idle,disconnect' },
  },
});
const PORT = Number(flags.port);
const wanted = (part) => flags.only.split(',').includes(part);
const tokensOf = (i) => Number(flags.tokens.split(',')[i] ?? flags.tokens.split(',')[0]);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function serve(...more) {
  const child = spawn(flags.binary, ['serve', flags.model, '--no-access-log', '--port', String(PORT), '--threads',
    flags.threads, '--memory-budget', flags.memory,
    ...(flags.context ? ['--max-model-len', flags.context] : []), ...more], { stdio: ['ignore', 'ignore', 'inherit'] });
  for (;;) {
    const up = await metrics().catch(() => null);
    if (up?.steps_total !== undefined) return child; // it listens while it loads
    await sleep(50);
  }
}
async function stop(child) {
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await gone;
}
function metrics() {
  return new Promise((resolve, reject) => {
    http.get({ host: '127.0.0.1', port: PORT, path: '/metrics', agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk) => { text += chunk; });
      response.on('end', () => {
        const out = {};
        for (const line of text.split('\n')) {
          const match = /^([a-z_:]+)\{[^}]*\} (\S+)$/.exec(line);
          if (match) out[match[1].replace(/^cedra:engine_|^vllm:/, '')] = Number(match[2]);
        }
        resolve(out);
      });
    }).on('error', reject);
  });
}
// A stream of `max_tokens` tokens; `closed` resolves when the server is done.
function stream(maxTokens, seed, priority = 0) {
  const body = JSON.stringify({ prompt: [5, 6, 7, seed % 400 + 8], max_tokens: maxTokens, stream: true,
    ignore_eos: true, temperature: 1, seed, priority });
  const socket = net.connect(PORT, '127.0.0.1');
  let bytes = 0;
  const first = new Promise((resolve) => socket.on('data', (chunk) => { bytes += chunk.length; resolve(); }));
  socket.on('connect', () => socket.write('POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' +
    `Connection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`));
  socket.on('error', () => {});
  return { socket, first, closed: new Promise((resolve) => socket.on('close', resolve)), bytes: () => bytes };
}
const minus = (a, b) => Object.fromEntries(Object.keys(a).map((key) => [key, a[key] - b[key]]));
function rssKib(child) {
  return Number(/RssAnon:\s+(\d+)/.exec(fs.readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]);
}
function cpuSeconds(child) {
  const fields = fs.readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

const result = { rows: [] };
if (wanted('overhead')) {
  const child = await serve('--max-num-seqs', '256', '--max-num-batched-tokens', '512', '--no-enable-prefix-caching');
  for (const [index, rows] of [1, 16, 64, 256].entries()) {
    const before = await metrics();
    const streams = Array.from({ length: rows }, (_, i) => stream(tokensOf(index), i));
    await Promise.all(streams.map((one) => one.closed));
    await sleep(500); // the last step is counted once it is over
    const d = minus(await metrics(), before);
    const step = (1e6 * d.step_seconds_total) / d.steps_total;
    const overhead = (1e6 * (d.step_seconds_total - d.forward_seconds_total - d.sampling_seconds_total)) / d.steps_total;
    result.rows.push({
      rows, steps: d.steps_total, mean_rows: +(d.generation_tokens_total / d.steps_total).toFixed(1),
      step_us: +step.toFixed(1), sampling_us: +((1e6 * d.sampling_seconds_total) / d.steps_total).toFixed(1),
      overhead_us: +overhead.toFixed(1), share_percent: +((100 * overhead) / step).toFixed(2),
    });
    console.log(JSON.stringify(result.rows.at(-1)));
  }
  await stop(child);
}
if (wanted('idle')) {
  const child = await serve('--max-num-seqs', '1', '--max-queue', '1100', '--max-connections', '2048');
  const speed = async () => {
    const before = await metrics();
    const cpu = cpuSeconds(child);
    const begin = performance.now();
    await sleep(3000);
    const d = minus(await metrics(), before);
    const seconds = (performance.now() - begin) / 1000;
    return { step_us: +((1e6 * d.step_seconds_total) / d.steps_total).toFixed(1), cpu_share: +((cpuSeconds(child) - cpu) / seconds).toFixed(2) };
  };
  // Two that take turns in the one slot keep it busy; the idle ones wait behind them for good.
  let on = true;
  const keep = [1, 2].map(async (seed) => { while (on) await stream(1000, seed).closed; });
  await sleep(500);
  const alone = await speed();
  const rss = rssKib(child);
  const idle = Array.from({ length: 1000 }, (_, i) => stream(1, 10 + i, 1));
  let waiting = 0;
  for (const until = Date.now() + 60000; waiting < 990 && Date.now() < until;) {
    await sleep(20);
    waiting = (await metrics()).num_requests_waiting;
  }
  const kib = (rssKib(child) - rss) / 1000;
  const withIdle = await speed();
  on = false;
  result.idle = { waiting, alone, withIdle, kib_per_stream: +kib.toFixed(1) };
  console.log(JSON.stringify(result.idle));
  for (const one of idle) one.socket.destroy();
  await stop(child);
  await Promise.all(keep);
}
if (wanted('disconnect')) {
  const child = await serve('--max-num-seqs', '4');
  const times = [];
  let step = 0;
  for (let i = 0; i < 20; ++i) {
    const one = stream(1000, i);
    await one.first;
    const begin = performance.now();
    one.socket.destroy();
    while ((await metrics()).num_requests_running !== 0) { /* a round trip each */ }
    times.push(performance.now() - begin);
  }
  const seen = await metrics();
  step = (1000 * seen.step_seconds_total) / seen.steps_total;
  times.sort((a, b) => a - b);
  result.disconnect = { median_ms: +times[10].toFixed(2), worst_ms: +times[19].toFixed(2), step_ms: +step.toFixed(2) };
  console.log(JSON.stringify(result.disconnect));
  await stop(child);
}

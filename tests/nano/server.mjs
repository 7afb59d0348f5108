// `cedra serve` on a free port, and requests to it.
import { spawn } from 'node:child_process';
import http from 'node:http';

export async function serve(binary, model, flags) {
  const child = spawn(binary, ['serve', model, '--port', '0', '--served-model-name', 'nano',
    '--no-access-log', ...flags], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  const base = await new Promise((resolve, reject) => {
    child.on('exit', (code) => reject(new Error(`cedra serve ended with ${code}: ${said}`)));
    const hear = (data) => {
      said += data;
      const found = /curl (http:\/\/[^/]+)/.exec(said);
      if (found) resolve(found[1]);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
  });
  return { base, stop: () => child.kill('SIGKILL') };
}

// No time limit: a prompt of 30K tokens takes its time in a debug build.
export function post(base, path, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(`${base}${path}`, { method: 'POST', agent: false,
      headers: { 'content-type': 'application/json' } }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece) => { text += piece; });
      response.on('end', () => {
        if (response.statusCode === 200) resolve(JSON.parse(text));
        else reject(new Error(`${response.statusCode}: ${text}`));
      });
    });
    request.on('error', reject);
    request.end(JSON.stringify(body));
  });
}

// name -> sum over labels, of all series of /metrics.
export async function metrics(base) {
  const sums = {};
  for (const line of (await (await fetch(`${base}/metrics`)).text()).split('\n')) {
    const match = /^([a-zA-Z_:]+)(?:\{[^}]*\})? (\S+)$/.exec(line);
    if (match) sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[2]);
  }
  return sums;
}

// fn of every element, at most `limit` at once; results in order.
export async function mapLimited(elements, limit, fn) {
  const results = [];
  let next = 0;
  const worker = async () => {
    while (next < elements.length) {
      const index = next++;
      results[index] = await fn(elements[index]);
    }
  };
  await Promise.all(Array.from({ length: limit }, worker));
  return results;
}

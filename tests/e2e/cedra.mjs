// Starts cedra for a test and reads its metrics. CEDRA_BINARY is the program, CEDRA_MODEL a
// checkpoint folder; on a script only the folder's tokenizer is read.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {mkdtemp, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const binary = process.env.CEDRA_BINARY;
const model = process.env.CEDRA_MODEL;
assert.ok(binary && model, 'CEDRA_BINARY and CEDRA_MODEL must be set: use tests/e2e/run.sh');

// A block of calls as the model writes it. Strings go in raw, other values as JSON.
export function calls(...list) {
  const invoke = ({name, args}) => {
    const lines = Object.entries(args).map(([key, value]) => {
      const raw = typeof value === 'string';
      const text = raw ? value : JSON.stringify(value);
      return `<｜DSML｜ parameter name="${key}" string="${raw}">${text}</｜DSML｜ parameter>\n`;
    });
    return `<｜DSML｜ invoke name="${name}">\n${lines.join('')}</｜DSML｜ invoke>\n`;
  };
  return `\n\n<｜DSML｜ calls>\n${list.map(invoke).join('')}</｜DSML｜ calls>`;
}

// Stands in prompts whose answer begins without reasoning.
export const kNoThinking = '<｜Assistant｜></think>';

export class Cedra {
  // Without a script: the checkpoint itself.
  static async start({script, args = []} = {}) {
    const server = new Cedra();
    const flags = ['serve', model, '--port', '0', '--grace-seconds', '0', ...args];
    if (script) {
      server.folder = await mkdtemp(join(tmpdir(), 'cedra-e2e-'));
      const file = join(server.folder, 'script.json');
      await writeFile(file, JSON.stringify(script));
      flags.push('--script', file);
    }
    server.process = spawn(binary, flags, {stdio: ['ignore', 'pipe', 'pipe']});
    server.output = '';
    await new Promise((resolve, reject) => {
      const read = (data) => {
        server.output += data;
        const found = server.output.match(/ serves (\S+) on (http:\S+)/);
        if (!found) return;
        [, server.model, server.url] = found;
        resolve();
      };
      server.process.stdout.on('data', read);
      server.process.stderr.on('data', read);
      server.process.on('exit', () => reject(new Error(`cedra did not start:\n${server.output}`)));
      server.process.on('error', reject);
    });
    return server;
  }

  // Ends the server; fails if it had died or does not leave cleanly.
  async stop() {
    const {process} = this;
    if (process.exitCode === null && process.signalCode === null) {
      process.kill('SIGTERM');
      await once(process, 'exit');
    }
    if (this.folder) await rm(this.folder, {recursive: true});
    assert.equal(process.exitCode, 0, `cedra ended with ${process.exitCode}:\n${this.output}`);
  }

  // {metric: number}; series with labels are added up.
  async metrics() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const out = {};
    for (const line of text.split('\n')) {
      const found = line.match(/^([a-z_:]+)(?:\{[^}]*\})? (\S+)$/i);
      if (found) out[found[1]] = (out[found[1]] ?? 0) + Number(found[2]);
    }
    return out;
  }

  // Waits until the metrics are as `done` wants them, and gives them.
  async until(done) {
    for (const end = Date.now() + 60_000;;) {
      const metrics = await this.metrics();
      if (done(metrics)) return metrics;
      assert.ok(Date.now() < end, `${done} did not come true: ${JSON.stringify(metrics)}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

// The error that `promise` ends with.
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail('no error came');
}

// A 1x1 red PNG.
export const kPicture =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';

// A script has no vision: a request with a picture is refused in plain words.
export async function refusesPicture(promise) {
  const error = await failure(promise);
  assert.equal(error.status ?? error.statusCode, 400, `${error}`);
  assert.match(error.message,
               /(does not read images yet|this model does not accept images); send text only/);
}

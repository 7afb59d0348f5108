// agents.mjs AGENT SCRATCH: lets a coding agent, installed in SCRATCH/npm, read a file, edit it and
// answer, against cedra on a script. Run through agents.sh. Prints what was said in short, and fails
// if a step is missing. AGENT_LOG=FILE: the bodies of requests and answers go there.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {appendFileSync} from 'node:fs';
import {mkdir, readFile, writeFile} from 'node:fs/promises';
import http from 'node:http';
import {dirname, join} from 'node:path';

import {calls, Cedra} from './cedra.mjs';

const [name, scratch] = process.argv.slice(2);
const kTask = 'Make the paint in paint.txt blue, then say so.';
const kBefore = 'wall: red paint, two coats\n';
const kAfter = 'wall: blue paint, two coats\n';
const kAnswer = 'The wall is blue now.';
const home = join(scratch, 'home');
const work = join(scratch, 'work');
const file = join(work, 'paint.txt');
// The program itself: the launchers of some want an install script to have run.
const platform = (path) => join(scratch, 'npm/node_modules', path);

const kPatch = `apply_patch <<'EOF'
*** Begin Patch
*** Update File: paint.txt
@@
-wall: red paint, two coats
+wall: blue paint, two coats
*** End Patch
EOF`;

// Per agent: files of its home, its environment, the command, and the calls of the model: `read`,
// then `edit`. `setup` is a command to run before.
const kAgents = {
  codex: {
    route: 'POST /v1/responses',
    files: (url, model) => ({
      '.codex/config.toml': `model = "${model}"
model_provider = "cedra"
[model_providers.cedra]
name = "cedra"
base_url = "${url}/v1"
env_key = "CEDRA_API_KEY"
wire_api = "responses"
`,
    }),
    env: () => ({CEDRA_API_KEY: 'x'}),
    command: () => [platform('.bin/codex'), 'exec', '--skip-git-repo-check',
                    '--dangerously-bypass-approvals-and-sandbox', kTask],
    read: {name: 'exec_command', args: {cmd: 'cat paint.txt'}},
    edit: {name: 'exec_command', args: {cmd: kPatch}},
  },
  claude: {
    route: 'POST /v1/messages',
    env: (url, model) => ({
      ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: 'x', ANTHROPIC_MODEL: model,
      ANTHROPIC_SMALL_FAST_MODEL: model, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      DISABLE_AUTOUPDATER: '1',
    }),
    command: () => [platform('@anthropic-ai/claude-code-linux-x64/claude'), '-p', kTask, '--allowedTools', 'Read', 'Edit'],
    read: {name: 'Read', args: {file_path: file}},
    edit: {name: 'Edit', args: {file_path: file, old_string: 'red paint', new_string: 'blue paint'}},
  },
  opencode: {
    route: 'POST /v1/chat/completions',
    files: (url, model) => ({
      '.config/opencode/opencode.json': JSON.stringify({
        provider: {
          cedra: {
            npm: '@ai-sdk/openai-compatible',
            options: {baseURL: `${url}/v1`, apiKey: 'x'},
            models: {[model]: {name: model, limit: {context: 1000000, output: 32000}}},
          },
        },
        model: `cedra/${model}`, autoupdate: false, share: 'disabled', permission: 'allow',
      }),
    }),
    env: () => ({OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1'}),
    command: () => [platform('opencode-linux-x64/bin/opencode'), 'run', kTask],
    read: {name: 'read', args: {filePath: file}},
    edit: {name: 'edit', args: {filePath: file, oldString: 'red paint', newString: 'blue paint'}},
  },
  cline: {
    route: 'POST /v1/chat/completions',
    setup: (url, model) => [platform('@cline/cli-linux-x64/bin/cline'), 'auth', 'openai-compatible',
                            '-k', 'x', '-m', model, '-b', `${url}/v1`],
    command: (model) => [platform('@cline/cli-linux-x64/bin/cline'), '-P', 'openai-compatible',
                         '-m', model, '--json', kTask],
    read: {name: 'read_files', args: {files: [{path: file}]}},
    edit: {name: 'editor', args: {path: file, old_text: 'red paint', new_text: 'blue paint'}},
  },
};

const agent = kAgents[name];
assert.ok(agent, `known agents: ${Object.keys(kAgents).join(', ')}`);

// What the model does follows from what the prompt holds: the task; the file's text, which only the
// reading can have brought; the model's own second call with a result after it.
const [edited] = calls(agent.edit).match(/<｜DSML｜ parameter[^]*<\/｜DSML｜ parameter>/);
const script = {
  context_length: 1 << 20,
  answers: [
    {when: [kTask, kBefore.trim(), edited], text: `Done.</think>${kAnswer}`},
    {when: [kTask, kBefore.trim()], text: `It is red.</think>I edit it.${calls(agent.edit)}`},
    {when: [kTask, '### Available Tool Schemas'], unless: '<tool_result>',
     text: `Read it first.</think>I look.${calls(agent.read)}`},
    {text: 'Not the task itself.</think>Paint'},
  ],
};

const log = (entry) => {
  if (process.env.AGENT_LOG) appendFileSync(process.env.AGENT_LOG, `${JSON.stringify(entry)}\n`);
};

// Between agent and server: passes everything on and keeps a line per request.
async function record(target, seen) {
  const {hostname, port} = new URL(target);
  const proxy = http.createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const entry = {what: `${request.method} ${request.url.split('?')[0]}`, body: `${body}`};
    seen.push(entry);
    const inner = http.request(
      {hostname, port, method: request.method, path: request.url, headers: request.headers},
      async (answer) => {
        entry.status = answer.statusCode;
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
        entry.answer = '';
        for await (const piece of answer) entry.answer += piece;
        log(entry);
      });
    inner.on('error', () => response.destroy());
    response.on('close', () => inner.destroy());
    inner.end(body);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return proxy;
}

async function run([program, ...args], env) {
  const child = spawn(program, args, {cwd: work, env, stdio: ['ignore', 'pipe', 'pipe']});
  let output = '';
  child.stdout.on('data', (data) => (output += data));
  child.stderr.on('data', (data) => (output += data));
  const timer = setTimeout(() => child.kill('SIGKILL'), 480_000);
  const [code] = await once(child, 'close');
  clearTimeout(timer);
  return {code, output};
}

await mkdir(join(scratch, 'tmp'), {recursive: true});
await mkdir(work, {recursive: true});
await writeFile(file, kBefore);

const cedra = await Cedra.start({script});
const seen = [];
const proxy = await record(cedra.url, seen);
try {
  const url = `http://127.0.0.1:${proxy.address().port}`;
  for (const [path, text] of Object.entries(agent.files?.(url, cedra.model) ?? {})) {
    await mkdir(dirname(join(home, path)), {recursive: true});
    await writeFile(join(home, path), text);
  }
  await mkdir(home, {recursive: true});
  const env = {
    PATH: process.env.PATH, HOME: home, TMPDIR: join(scratch, 'tmp'),
    ...agent.env?.(url, cedra.model),
  };
  if (agent.setup) {
    const {code, output} = await run(agent.setup(url, cedra.model), env);
    assert.equal(code, 0, `the set-up of ${name} ended with ${code}:\n${output}`);
  }
  const {code, output} = await run(agent.command(cedra.model), env);
  for (const {what, status, body} of seen) {
    const tools = body ? (JSON.parse(body).tools ?? []).length : 0;
    console.log(`${name}: ${what} ${status}, ${body.length} bytes, ${tools} tools`);
  }
  assert.equal(code, 0, `${name} ended with ${code}:\n${output}`);
  assert.equal(await readFile(file, 'utf8'), kAfter, `the file was not edited:\n${output}`);
  assert.ok(output.includes(kAnswer), `the answer is not shown:\n${output}`);
  assert.deepEqual(seen.filter((entry) => entry.status !== 200).map((entry) => entry.what), []);
  const loop = seen.filter(({what, body}) => what === agent.route && body.includes(kTask) &&
                                             JSON.parse(body).tools?.length);
  assert.ok(loop.length >= 3, `${loop.length} requests with the task and tools; 3 are a loop`);
  console.log(`${name}: read, edited and answered in ${loop.length} requests`);
} finally {
  proxy.close();
  proxy.closeAllConnections();
  await cedra.stop();
}

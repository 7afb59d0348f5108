// The web page in a real browser, against `cedra serve --script`. Environment:
//   CEDRA_BINARY    the program
//   CEDRA_NPM       a folder with package.json's packages installed
//   CEDRA_CHROMIUM  the browser (default: Debian's)
//   CEDRA_SHOTS     a folder: the pictures of docs/images are written there
// web.sh sets the first two and runs it.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
const binary = process.env.CEDRA_BINARY;
const { chromium } = createRequire(path.join(process.env.CEDRA_NPM, 'package.json'))('playwright-core');
const shots = process.env.CEDRA_SHOTS;
const TOOLS = JSON.stringify([{ type: 'function', function: { name: 'weather',
  parameters: { type: 'object', properties: { city: { type: 'string' } } } } }]);
// 48 x 32 pixels of one colour.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAADAAAAAgCAIAAADbtmxLAAAAMklEQVR42u3OMQ0AAAgDsDlCDiLw/+OCcDSpgKam'
  + 'X4mQkJCQkJCQkJCQkJCQkJCQ0KUFgg6mTD+lbtQAAAAASUVORK5CYII=';

const children = [];
async function serve(...flags) {
  const child = spawn(binary, ['serve', path.join(root, 'models/tiny'), '--port', '0', '--script',
    path.join(here, 'script.json'), '--served-model-name', 'deepseek-flash', ...flags]);
  children.push(child);
  let said = '';
  return new Promise((resolve, reject) => {
    child.on('exit', (code) => reject(new Error(`cedra serve ended with ${code}: ${said}`)));
    const hear = (data) => {
      said += data;
      const found = /curl (http:\/\/[^/]+)/.exec(said);
      if (found) resolve(found[1]);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', (data) => { said += data; });
  });
}

let browser;
let base;
before(async () => {
  base = await serve();
  // Its sandbox does not start for root or in most containers; it sees only this page here.
  browser = await chromium.launch({ executablePath: process.env.CEDRA_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
});
after(async () => {
  await browser?.close();
  for (const child of children) child.kill('SIGKILL');
});

// A fresh browser profile on the page. Whatever goes wrong in it fails the test at the end, and so
// does any request to another server.
async function open(t, { options = {}, url = base, expected = [] } = {}) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') wrong.push(message.text());
  });
  page.on('request', (request) => {
    if (/^https?:/.test(request.url()) && !request.url().startsWith(`${url}/`)) {
      wrong.push(`asks ${request.url()}`);
    }
  });
  t.after(() => context.close());
  await page.goto(`${url}/`);
  page.check = () => assert.deepEqual(
    wrong.filter((text) => !expected.some((rule) => rule.test(text))), []);
  return page;
}

async function say(page, text) {
  await page.fill('#input', text);
  await page.press('#input', 'Enter');
}
const idle = (page) => page.waitForSelector('#send:visible');
const last = (page, inner = '') => page.locator('.answer').last().locator(inner || ':scope');

test('streams an answer, folds the thinking, shows the figures', async (t) => {
  const page = await open(t);
  await page.waitForSelector('#model-name:text("deepseek-flash")');
  assert.match(await page.textContent('#context'), /131,072 tokens/);
  await say(page, 'Why does my hash map change its order?');
  await page.waitForSelector('.content:visible');
  const some = (await last(page, '.content').textContent()).length;
  await page.waitForFunction((n) => document.querySelector('.content').textContent.length > n, some);
  await idle(page);
  const text = await last(page, '.content').textContent();
  assert.match(text, /not part of its contract/);
  assert.equal(await last(page, '.content table tr').count(), 4);
  assert.equal(await last(page, '.content ol > li').count(), 2);
  assert.match(await last(page, '.code-block code').textContent(), /std::ranges::sort\(names\);$/);
  assert.match(await last(page, 'summary').textContent(), /^Thought for \d/);
  assert.equal(await last(page, '.thought').isVisible(), false);
  await last(page, 'summary').click();
  assert.equal(await last(page, '.thought').isVisible(), true);
  assert.match(await last(page, '.thought').textContent(), /seeded hash/);
  await last(page, 'summary').click();
  const figures = await last(page, '.figures').innerText();
  assert.match(figures, /[\d.]+ tokens\/s/);
  assert.match(figures, /prompt \d+/);
  assert.match(figures, /cached \d+/);
  assert.match(figures, /answer [\d,]+ \(thinking \d+\)/);
  assert.match(await page.textContent('#context'), /^[\d,]+ of 131,072 tokens/);
  if (shots) await page.screenshot({ path: path.join(shots, 'web.png') });
  page.check();
});

test('sends what the controls say', async (t) => {
  const page = await open(t);
  const bodies = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/chat/completions')) bodies.push(request.postDataJSON());
  });
  await page.fill('#effort', '40');
  await page.click('#settings-button');
  await page.fill('#temperature', '0.5');
  await page.fill('#max-tokens', '900');
  await page.fill('#system', 'Be brief.');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#settings', { state: 'hidden' });
  await say(page, 'Hi');
  await idle(page);
  await page.setChecked('#thinking', false, { force: true });
  await say(page, 'Again');
  await idle(page);
  assert.equal(bodies.length, 2);
  const [first, second] = bodies;
  assert.equal(first.reasoning_effort, 40);
  assert.equal(first.temperature, 0.5);
  assert.equal(first.max_tokens, 900);
  assert.equal(first.stream, true);
  assert.deepEqual(first.stream_options, { include_usage: true });
  assert.deepEqual(first.messages, [{ role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hi' }]);
  assert.deepEqual(second.thinking, { type: 'disabled' });
  assert.equal('reasoning_effort' in second, false);
  assert.deepEqual(second.messages.slice(2), [
    { role: 'assistant', content: 'Hello! How can I help?',
      reasoning_content: 'A short greeting will do.' },
    { role: 'user', content: 'Again' }]);
  page.check();
});

test('stops by the button and by Esc, and the server stops as well', async (t) => {
  const page = await open(t);
  for (const how of ['button', 'key']) {
    await say(page, 'Tell me a long story');
    await page.locator('.answer').last().locator('.content', { hasText: 'Chapter 3' }).waitFor();
    if (how === 'button') await page.click('#stop');
    else await page.keyboard.press('Escape');
    await idle(page);
    assert.match(await last(page, '.note').textContent(), /Stopped/);
    const text = await last(page, '.content').textContent();
    assert.match(text, /Chapter 3/);
    assert.doesNotMatch(text, /Chapter 599/);
  }
  for (let tries = 0; ; tries += 1) {
    const metrics = await (await fetch(`${base}/metrics`)).text();
    if (/vllm:num_requests_running\{[^}]*\} 0/.test(metrics)) break;
    assert.ok(tries < 50, metrics);
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
  page.check();
});

test('shows tool calls and sends their results', async (t) => {
  const page = await open(t);
  await page.click('#settings-button');
  await page.fill('#tools', TOOLS);
  await page.click('#settings-close');
  await say(page, 'What is the weather in Berlin?');
  await idle(page);
  assert.match(await last(page, '.call-head').innerText(), /Tool call\s+weather/);
  assert.deepEqual(JSON.parse(await last(page, '.call > pre').textContent()),
    { city: 'Berlin', days: 3 });
  assert.match(await last(page, '.content').textContent(), /^I look that up/);
  await last(page, '.call textarea').fill('18 degrees');
  await last(page, '.call button').click();
  await page.waitForSelector('strong:text("18 degrees")');
  await idle(page);
  assert.match(await page.locator('.call-result').innerText(), /Result\s+18 degrees/);
  assert.equal(await page.locator('.call textarea').count(), 0);
  page.check();
});

test('keeps conversations over a reload, exports and deletes them', async (t) => {
  const page = await open(t);
  await say(page, 'Hello there');
  await idle(page);
  await page.click('#new');
  assert.equal(await page.locator('.turn').count(), 0);
  await say(page, 'Something else');
  await idle(page);
  await page.click('#list button:text("Hello there")');
  await page.reload();
  await page.waitForSelector('.bubble:text("Hello there")');
  assert.match(await last(page, '.content').textContent(), /How can I help/);
  assert.equal(await last(page, '.note').isVisible(), false);
  assert.equal(await page.locator('#list li').count(), 2);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
  const exported = JSON.parse(fs.readFileSync(await download.path(), 'utf8'));
  assert.equal(download.suggestedFilename(), 'Hello-there.json');
  assert.deepEqual(exported.messages.map((message) => message.role), ['user', 'assistant']);
  const remove = page.locator('#list li.current .list-delete');
  await remove.click();
  await remove.click();
  assert.equal(await page.locator('.turn').count(), 0);
  await page.reload();
  await page.waitForSelector('#list button:text("Something else")');
  assert.equal(await page.locator('#list li').count(), 1);
  page.check();
});

test('keeps what came of an answer when the tab is closed in the middle', async (t) => {
  const page = await open(t);
  await say(page, 'Tell me a long story');
  await page.locator('.content', { hasText: 'Chapter 3' }).waitFor();
  await page.reload();
  assert.match(await last(page, '.content').textContent(), /Chapter 3/);
  assert.match(await last(page, '.note').textContent(), /Stopped/);
  assert.equal(await page.isVisible('#send'), true);
  page.check();
});

test('shows errors, keeps what came before, and tries again', async (t) => {
  const page = await open(t, { expected: [/status of 400/] });
  await say(page, 'Please break');
  await idle(page);
  assert.match(await last(page, '.error').textContent(), /the engine broke/);
  assert.match(await last(page, '.content').textContent(), /^Half an ans/);
  await last(page, 'button:text("Retry")').click();
  await page.locator('.error', { hasText: 'engine broke' }).waitFor();
  assert.equal(await page.locator('.answer').count(), 1);
  await page.click('#new');
  await page.click('#settings-button');
  await page.fill('#temperature', '9');
  await page.click('#settings-close');
  await say(page, 'Hi');
  await idle(page);
  assert.match(await last(page, '.error').textContent(), /temperature must be .*2/);
  page.check();
});

test('says when the server is gone, and goes on when it is back', async (t) => {
  const page = await open(t, { expected: [/ERR_FAILED|ERR_CONNECTION/] });
  await page.route('**/v1/**', (route) => route.abort());
  await say(page, 'Hi');
  await idle(page);
  assert.match(await last(page, '.error').textContent(), /cannot be reached/);
  await page.unroute('**/v1/**');
  await last(page, 'button:text("Retry")').click();
  await page.locator('.content', { hasText: 'How can I help' }).waitFor();
  page.check();
});

test('shows markup of the model as text', async (t) => {
  const page = await open(t);
  await say(page, 'Some markup');
  await idle(page);
  const content = last(page, '.content');
  assert.match(await content.textContent(), /<img src=x onerror=.*<\/script>.*<b>not bold<\/b>/);
  assert.equal(await content.locator('img, script, b').count(), 0);
  assert.equal(await content.locator('strong').textContent(), 'bold');
  assert.equal(await content.locator('code').textContent(), '<i>');
  assert.deepEqual(await content.locator('a').evaluateAll((all) => all.map((a) => [a.href, a.rel])),
    [['https://example.org/x', 'noopener noreferrer']]);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  page.check();
  // The browser holds to it even where the page's code would not.
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = '<p>';
      return false;
    } catch {
      return true;
    }
  });
  assert.ok(refused, 'innerHTML took a string');
});

test('takes images by paste and drop, and shows what the server says to them', async (t) => {
  const page = await open(t, { expected: [/status of 400/] });
  const bodies = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/chat/completions')) bodies.push(request.postDataJSON());
  });
  const hand = (kind, name) => page.evaluate(([how, file, bytes]) => {
    const data = new DataTransfer();
    const raw = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
    data.items.add(new File([raw], file, { type: 'image/png' }));
    const target = document.getElementById('input');
    const more = { bubbles: true, cancelable: true };
    if (how === 'paste') {
      target.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, ...more }));
    } else {
      target.dispatchEvent(new DragEvent('drop', { dataTransfer: data, ...more }));
    }
  }, [kind, name, PNG]);
  await hand('paste', 'pasted.png');
  await page.waitForSelector('#chips .picture');
  await hand('drop', 'dropped.png');
  await page.waitForFunction(() => document.querySelectorAll('#chips .picture').length === 2);
  assert.match(await page.locator('#chips').innerText(), /48 \u00d7 32/);
  // No model behind the script has eyes: the page shows at once that images are refused.
  await page.waitForSelector('#chips .picture-problem:visible');
  assert.match(await page.locator('#chips .picture-problem').first().textContent(), /image/);
  await page.locator('#chips .remove').last().click();
  await say(page, 'What is this?');
  await last(page, '.error').waitFor();  // the page may still be idle: it reads the picture before it sends
  await idle(page);
  assert.equal(bodies.length, 1);
  const [image, text] = bodies[0].messages[0].content;
  assert.equal(image.image_url.url, `data:image/png;base64,${PNG}`);
  assert.deepEqual(text, { type: 'text', text: 'What is this?' });
  assert.match(await last(page, '.error').textContent(), /image/);
  await page.reload();
  await page.waitForSelector('.user .picture img');
  page.check();
});

test('asks for the API key where the server wants one', async (t) => {
  const url = await serve('--api-key', 'secret');
  const page = await open(t, { url, expected: [/status of 401/] });
  await page.waitForSelector('#settings:visible');
  assert.match(await page.textContent('#banner'), /wants an API key/);
  await page.fill('#key', 'wrong');
  await page.press('#key', 'Tab');
  await page.waitForSelector('#banner:has-text("does not accept")');
  await page.fill('#key', 'secret');
  await page.press('#key', 'Tab');
  await page.waitForSelector('#model-name:text("deepseek-flash")');
  assert.equal(await page.isVisible('#banner'), false);
  await page.keyboard.press('Escape');
  await say(page, 'Hi');
  await page.locator('.content', { hasText: 'How can I help' }).waitFor();
  assert.equal(await page.evaluate(() => localStorage.getItem('cedra.key')), null);
  page.check();
});

test('is used by keyboard, in the dark and on a phone', async (t) => {
  const options = { viewport: { width: 390, height: 780 }, colorScheme: 'dark', hasTouch: true };
  const page = await open(t, { options });
  await page.focus('#input');
  await page.keyboard.type('One');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('two lines');
  assert.equal(await page.inputValue('#input'), 'One\ntwo lines');
  await page.keyboard.press('Enter');
  await idle(page);
  assert.equal(await page.textContent('.bubble'), 'One\ntwo lines');
  await page.click('#menu');
  await page.waitForSelector('.side-open #new:visible');
  await page.click('#new');
  await page.click('#menu');
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  await page.click('#theme');
  assert.notEqual(await background(), dark);
  await page.click('#theme');
  assert.equal(await background(), dark);
  await page.click('#theme');
  await page.click('#shade', { position: { x: 380, y: 400 } });
  await page.evaluate(() => localStorage.setItem('cedra.settings', JSON.stringify({
    ...JSON.parse(localStorage.getItem('cedra.settings')),
    tools: '[{"type":"function","function":{"name":"weather"}}]' })));
  await page.reload();
  await say(page, 'How is the weather in Berlin?');
  await idle(page);
  await last(page, 'summary').click();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  assert.equal(await page.locator('#scroll').evaluate((box) => box.scrollWidth - box.clientWidth), 0);
  if (shots) await page.screenshot({ path: path.join(shots, 'web-phone.png') });
  page.check();
});

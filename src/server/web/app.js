// The page: conversations, composer and settings, between the API (api.js) and what is shown
// (view.js).
import * as api from './api.js';
import * as store from './store.js';
import { imageFiles, readImage } from './images.js';
import { AnswerView, copy, make, number, pictureChip, userView } from './view.js';

const $ = (id) => document.getElementById(id);
const input = $('input');

const settings = store.loadSettings();
const secret = store.loadKey();
let models = []; // of the server; empty until it answered
let chat = store.newChat(); // the one that is shown
let attached = []; // pictures of the message being written
const active = new Map(); // id of a conversation -> the answer that is arriving in it
const views = new WeakMap(); // assistant message -> its view, of those shown

// ---- the top

function banner(text) {
  $('banner').textContent = text;
  $('banner').hidden = !text;
}

function showContext() {
  const model = models.find((one) => one.id === settings.model);
  const last = chat.messages.findLast((message) => message.stats?.usage);
  $('context').hidden = !model;
  if (!model) return;
  const whole = number(model.max_model_len);
  const used = last?.stats.usage.total_tokens;
  $('context').textContent = used ? `${number(used)} of ${whole} tokens` : `${whole} tokens`;
  $('context').title = 'Length of this conversation, and the most that the model can read';
}

function showModels() {
  if (!models.some((one) => one.id === settings.model)) settings.model = models[0].id;
  $('model').replaceChildren(...models.map((one) => new Option(one.id, one.id)));
  $('model').value = settings.model;
  $('model').hidden = models.length < 2;
  $('model-name').textContent = settings.model;
  $('model-name').hidden = models.length > 1;
  showContext();
}

let connecting = 0;
async function connect() {
  clearTimeout(connecting);
  try {
    models = await api.models(secret.key);
    banner('');
    showModels();
  } catch (error) {
    $('model-name').textContent = 'not connected';
    banner(error.message);
    if (error.status === 401) {
      banner(secret.key ? 'The server does not accept this API key.'
        : 'This server wants an API key.');
      openSettings(true);
      $('key').focus();
    } else if (error.status === 0 || error.status === 503) {
      connecting = setTimeout(connect, 2000); // not started or still loading
    }
  }
}

// ---- conversations

function save(one) {
  one.updated = Date.now();
  if (!store.saveChat(one)) {
    banner('This browser has no room left: export or delete old conversations.');
  }
}

function deleteButton(one) {
  const node = make('button', 'list-delete', '\u00d7');
  node.type = 'button';
  node.title = 'Delete';
  node.setAttribute('aria-label', `Delete ${one.title}`);
  node.addEventListener('click', () => {
    if (!node.classList.contains('sure')) {
      node.classList.add('sure');
      node.textContent = 'Delete?';
      setTimeout(() => {
        node.classList.remove('sure');
        node.textContent = '\u00d7';
      }, 3000);
      return;
    }
    active.get(one.id)?.controller.abort();
    active.delete(one.id);
    store.deleteChat(one).catch(() => { /* pictures stay behind; nothing refers to them */ });
    if (one.id === chat.id) show(store.newChat());
    else showList();
  });
  return node;
}

function showList() {
  $('list').replaceChildren(...store.listChats().map((one) => {
    const open = make('button', 'list-open', one.title || 'Untitled');
    open.type = 'button';
    open.title = one.title;
    open.addEventListener('click', () => {
      show(active.get(one.id)?.chat ?? store.loadChat(one.id) ?? store.newChat());
      closeSide();
    });
    const item = make('li', one.id === chat.id ? 'current' : '', open, deleteButton(one));
    if (one.id === chat.id) open.setAttribute('aria-current', 'true');
    return item;
  }));
}

function show(one) {
  chat = one;
  const kept = chat.messages.length > 0;
  history.replaceState(null, '', kept ? `#${chat.id}` : location.pathname + location.search);
  $('log').replaceChildren();
  chat.messages.forEach((message) => append(message));
  showAll();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  if (matchMedia('(hover: hover)').matches) input.focus({ preventScroll: true });
}

function showAll() {
  $('empty').hidden = chat.messages.length > 0;
  $('export').disabled = chat.messages.length === 0;
  document.title = chat.title ? `${chat.title} \u2013 cedra` : 'cedra';
  const running = active.has(chat.id);
  $('stop').hidden = !running;
  $('send').hidden = running;
  showList();
  showContext();
}

function append(message) {
  if (message.role === 'user') {
    $('log').append(userView(message));
    return;
  }
  const last = chat.messages.at(-1) === message;
  const running = active.get(chat.id)?.message === message;
  if (!running && !message.error) message.finish ??= 'stopped'; // the tab was closed meanwhile
  const view = new AnswerView(message, last ? { retry, result: answerCall } : null);
  views.set(message, view);
  $('log').append(view.root);
  view.update(running);
}

// ---- sending

// The conversation as the API wants it; pictures are fetched from where they are kept.
async function wire(messages) {
  const out = [];
  if (settings.system.trim()) out.push({ role: 'system', content: settings.system });
  for (const message of messages) {
    if (message.role === 'user') {
      const parts = [];
      for (const image of message.images ?? []) {
        const url = await store.getPicture(image.id);
        if (!url) throw new Error(`The image ${image.name} is no longer in this browser.`);
        parts.push({ type: 'image_url', image_url: { url } });
      }
      if (parts.length && message.content) parts.push({ type: 'text', text: message.content });
      out.push({ role: 'user', content: parts.length ? parts : message.content });
    } else if (message.content || message.calls.length) {
      const answer = { role: 'assistant', content: message.content };
      if (message.reasoning) answer.reasoning_content = message.reasoning;
      if (message.calls.length) {
        answer.tool_calls = message.calls.map((call) => ({
          id: call.id, type: 'function',
          function: { name: call.name, arguments: call.arguments },
        }));
      }
      out.push(answer);
      for (const call of message.calls) {
        out.push({ role: 'tool', tool_call_id: call.id, content: call.result ?? '(not run)' });
      }
    }
  }
  return out;
}

function tools() {
  if (!settings.tools.trim()) return undefined;
  const list = JSON.parse(settings.tools);
  if (!Array.isArray(list)) throw new Error('The tools in the settings must be a JSON list.');
  return list;
}

async function request(messages) {
  const body = { messages: await wire(messages), stream: true,
    stream_options: { include_usage: true } };
  if (settings.model) body.model = settings.model;
  if (settings.thinking) body.reasoning_effort = Number(settings.effort);
  else body.thinking = { type: 'disabled' };
  if (settings.temperature !== '') body.temperature = Number(settings.temperature);
  if (settings.maxTokens !== '') body.max_tokens = Number(settings.maxTokens);
  body.tools = tools();
  return body;
}

function take(message, event) {
  const { stats } = message;
  if (event.usage) stats.usage = event.usage;
  if (event.warnings) message.warnings = event.warnings.map((one) => one.message ?? String(one));
  if (event.finish) message.finish = event.finish;
  const { delta } = event;
  if (!delta) return;
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? '';
  const content = delta.content ?? '';
  if (!reasoning && !content && !delta.tool_calls) return;
  const now = Date.now();
  stats.firstAt ??= now;
  stats.lastAt = now;
  stats.pieces += 1;
  if (!reasoning) stats.thoughtAt ??= now;
  message.reasoning += reasoning;
  message.content += content;
  for (const piece of delta.tool_calls ?? []) {
    const call = (message.calls[piece.index] ??= { id: piece.id, name: '', arguments: '' });
    call.name += piece.function?.name ?? '';
    call.arguments += piece.function?.arguments ?? '';
  }
}

function atBottom() {
  const box = $('scroll');
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
}

function refresh(message, running) {
  const view = views.get(message);
  if (!view?.root.isConnected) return;
  const follow = atBottom();
  view.update(running);
  if (follow) $('scroll').scrollTop = $('scroll').scrollHeight;
}

// Asks for the next answer of the conversation that is shown.
async function answer() {
  const own = chat;
  const message = { role: 'assistant', reasoning: '', content: '', calls: [],
    stats: { sentAt: Date.now(), pieces: 0 } };
  const before = [...own.messages];
  const run = { chat: own, message, controller: new AbortController() };
  own.messages.push(message);
  active.set(own.id, run);
  save(own);
  show(own);
  let drawn = true;
  let savedAt = Date.now();
  const ticking = setInterval(() => views.get(message)?.tick(), 200);
  try {
    await api.chat(secret.key, await request(before), run.controller.signal, (event) => {
      take(message, event);
      if (drawn) {
        drawn = false;
        requestAnimationFrame(() => {
          drawn = true;
          if (active.get(own.id) === run) refresh(message, true);
        });
      }
      if (Date.now() - savedAt > 2000) { // a closed tab keeps what had come
        savedAt = Date.now();
        save(own);
      }
    });
  } catch (error) {
    if (error.name === 'AbortError') {
      message.finish = 'stopped';
    } else if (error instanceof SyntaxError) {
      message.error = 'The tools in the settings are no JSON.';
    } else {
      message.error = error.message;
      if (error.status === 401) connect();
    }
  }
  clearInterval(ticking);
  if (active.get(own.id) !== run) return; // deleted meanwhile
  active.delete(own.id);
  save(own);
  refresh(message, false);
  showAll();
}

function retry() {
  if (active.has(chat.id)) return;
  chat.messages.pop();
  answer();
}

function answerCall(call, text) {
  call.result = text;
  save(chat);
  if (chat.messages.at(-1).calls.every((one) => one.result !== undefined)) answer();
  else refresh(chat.messages.at(-1), false);
}

async function send() {
  const content = input.value.trim();
  if (active.has(chat.id) || attached.some((image) => !image.url)) return;
  if (!content && attached.length === 0) return;
  const message = { role: 'user', content };
  if (attached.length) {
    try {
      for (const image of attached) await store.putPicture(image.id, image.url);
    } catch {
      banner('This browser has no room for these images.');
      return;
    }
    message.images = attached.map(({ url, problem, ...facts }) => facts);
  }
  input.value = '';
  attached = [];
  showAttached();
  fitInput();
  chat.title ||= (content || message.images[0].name).replace(/\s+/g, ' ').slice(0, 80);
  chat.messages.push(message);
  $('scroll').scrollTop = $('scroll').scrollHeight;
  answer();
}

function stop() {
  active.get(chat.id)?.controller.abort();
}

// ---- images

function showAttached() {
  $('chips').replaceChildren(...attached.map((image) => {
    const chip = pictureChip(image, image.url);
    const remove = make('button', 'remove', '\u00d7');
    remove.type = 'button';
    remove.setAttribute('aria-label', `Remove ${image.name}`);
    remove.addEventListener('click', () => {
      attached = attached.filter((one) => one !== image);
      showAttached();
    });
    chip.append(remove);
    return chip;
  }));
}

async function attach(files) {
  for (const file of files) {
    try {
      const image = { id: store.newId(), ...await readImage(file) };
      attached.push(image);
      showAttached();
      api.imageTokens(secret.key, image.url)
        .then((tokens) => { image.tokens = tokens; }, (error) => { image.problem = error.message; })
        .then(showAttached);
    } catch (error) {
      banner(error.message);
    }
  }
  input.focus();
}

let dragged = 0; // elements that the drag is over
function dragging(event, by) {
  if (![...event.dataTransfer.types].includes('Files')) return;
  event.preventDefault();
  dragged = Math.max(0, dragged + by);
  $('drop').hidden = dragged === 0;
}

document.addEventListener('dragenter', (event) => dragging(event, 1));
document.addEventListener('dragleave', (event) => dragging(event, -1));
document.addEventListener('dragover', (event) => dragging(event, 0));
document.addEventListener('drop', (event) => {
  if (![...event.dataTransfer.types].includes('Files')) return;
  dragging(event, -dragged);
  const files = imageFiles(event.dataTransfer);
  if (files.length === 0) banner('Only images can be dropped here.');
  else attach(files);
});
input.addEventListener('paste', (event) => {
  const files = imageFiles(event.clipboardData);
  if (files.length === 0) return;
  event.preventDefault();
  attach(files);
});
$('attach').addEventListener('click', () => $('files').click());
$('files').addEventListener('change', () => {
  attach([...$('files').files]);
  $('files').value = '';
});

// ---- composer

function fitInput() {
  input.style.height = 'auto';
  input.style.height = `${Math.min(input.scrollHeight, innerHeight * 0.4)}px`;
}

input.addEventListener('input', fitInput);
input.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
$('box').addEventListener('click', (event) => {
  if (event.target === event.currentTarget) input.focus();
});
$('stop').addEventListener('click', stop);
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  if (!$('settings').hidden) openSettings(false);
  else if (document.body.classList.contains('side-open')) closeSide();
  else stop();
});
$('log').addEventListener('click', (event) => {
  if (event.target.dataset?.copy !== 'code') return;
  copy(event.target, event.target.closest('.code-block').querySelector('code').textContent);
});

// ---- sides

function openSettings(open) {
  $('settings').hidden = !open;
  $('settings-button').setAttribute('aria-expanded', String(open));
  if (!open) input.focus();
}

function closeSide() {
  document.body.classList.remove('side-open');
  $('shade').hidden = true;
}

$('settings-button').addEventListener('click', () => openSettings($('settings').hidden));
$('settings-close').addEventListener('click', () => openSettings(false));
$('menu').addEventListener('click', () => {
  document.body.classList.add('side-open');
  $('shade').hidden = false;
});
$('shade').addEventListener('click', closeSide);
$('new').addEventListener('click', () => {
  show(store.newChat());
  closeSide();
});

async function exportChat() {
  let messages;
  try {
    messages = await wire(chat.messages);
  } catch (error) {
    banner(error.message);
    return;
  }
  const text = JSON.stringify({ title: chat.title, model: settings.model, messages }, null, 2);
  const anchor = make('a');
  anchor.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  anchor.download = `${chat.title.replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40) || 'chat'}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}
$('export').addEventListener('click', exportChat);

// ---- settings

const THEMES = ['', 'light', 'dark'];
function showTheme() {
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
  else delete document.documentElement.dataset.theme;
  $('theme').setAttribute('aria-label', `Colours: ${settings.theme || 'as the system'}`);
}
$('theme').addEventListener('click', () => {
  settings.theme = THEMES[(THEMES.indexOf(settings.theme) + 1) % THEMES.length];
  store.saveSettings(settings);
  showTheme();
});

function showEffort() {
  $('effort').disabled = !settings.thinking;
  $('effort-value').textContent = settings.thinking ? settings.effort : 'off';
}

// Input elements that hold a setting each.
for (const [id, name] of [['thinking', 'thinking'], ['effort', 'effort'], ['system', 'system'],
  ['temperature', 'temperature'], ['max-tokens', 'maxTokens'], ['tools', 'tools'],
  ['model', 'model']]) {
  const node = $(id);
  const property = node.type === 'checkbox' ? 'checked' : 'value';
  if (id !== 'model') node[property] = settings[name];
  node.addEventListener('input', () => {
    settings[name] = node[property];
    store.saveSettings(settings);
    showEffort();
    showContext();
  });
}

$('key').value = secret.key;
$('key-keep').checked = secret.kept;
for (const id of ['key', 'key-keep']) {
  $(id).addEventListener('change', () => {
    secret.key = $('key').value.trim();
    store.saveKey(secret.key, $('key-keep').checked);
    if (id === 'key') connect();
  });
}

// ---- start

addEventListener('hashchange', () => {
  const found = store.loadChat(location.hash.slice(1));
  if (found && found.id !== chat.id) show(active.get(found.id)?.chat ?? found);
});
addEventListener('storage', () => showList()); // another tab
addEventListener('pagehide', () => {
  for (const run of active.values()) {
    run.message.finish ??= 'stopped';
    save(run.chat);
  }
});

showTheme();
showEffort();
show(store.loadChat(location.hash.slice(1)) ?? store.newChat());
connect();

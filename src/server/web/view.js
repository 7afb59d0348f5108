// How messages look. Everything is made of elements and text nodes.
import { getPicture } from './store.js';
import { bytesText } from './images.js';
import { MarkdownView } from './markdown.js';

export function make(name, className, ...content) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...content);
  return node;
}

export function button(text, act, className = 'text-button') {
  const node = make('button', className, text);
  node.type = 'button';
  node.addEventListener('click', act);
  return node;
}

export const number = (value) => Math.round(value).toLocaleString('en-US');

const seconds = (ms) => (ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`);

// Arguments arrive piece by piece: indented once they are JSON, as they are until then.
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function pictureChip(image, url) {
  const chip = make('figure', 'picture');
  if (url) {
    const picture = make('img');
    picture.src = url;
    picture.alt = image.name;
    chip.append(picture);
  }
  const facts = [`${image.width} \u00d7 ${image.height}`, bytesText(image.bytes)];
  if (image.scaled) facts.push('scaled down');
  if (image.tokens) facts.push(`${number(image.tokens)} tokens`);
  const name = make('span', 'picture-name', image.name);
  name.title = image.name;
  chip.append(make('figcaption', '', name, make('span', 'picture-facts', facts.join(' \u00b7 '))));
  if (image.problem) chip.append(make('p', 'picture-problem', image.problem));
  return chip;
}

export function userView(message) {
  const root = make('article', 'turn user');
  if (message.images?.length) {
    const row = make('div', 'pictures');
    for (const image of message.images) {
      const place = make('div');
      row.append(place);
      getPicture(image.id).then((url) => {
        const shown = url ? image : { ...image, problem: 'no longer in this browser' };
        place.replaceWith(pictureChip(shown, url));
      });
    }
    root.append(row);
  }
  if (message.content) root.append(make('div', 'bubble', message.content));
  return root;
}

// One line of figures below an answer.
function figures(stats) {
  const out = [];
  const add = (text, title) => {
    const item = make('span', '', text);
    item.title = title;
    out.push(item);
  };
  const span = stats.lastAt - stats.firstAt;
  const tokens = stats.usage?.completion_tokens ?? stats.pieces;
  const about = stats.usage ? '' : '\u2248 ';
  if (tokens > 1 && span > 0) {
    const rate = ((tokens - 1) * 1000) / span;
    add(`${about}${rate < 100 ? rate.toFixed(1) : number(rate)} tokens/s`,
      'From the first to the last token of the answer');
  }
  if (stats.firstAt) {
    add(`first after ${seconds(stats.firstAt - stats.sentAt)}`,
      'From sending to the first token: waiting, and reading the prompt');
  }
  if (stats.usage) {
    const { prompt_tokens: prompt, prompt_tokens_details: details } = stats.usage;
    const cached = details?.cached_tokens ?? 0;
    add(`prompt ${number(prompt)}`, 'Tokens of the whole conversation as the model read it');
    add(`cached ${number(cached)}`, 'Tokens of the prompt that were known from before');
    const thought = stats.usage.completion_tokens_details?.reasoning_tokens ?? 0;
    add(`answer ${number(tokens)}${thought ? ` (thinking ${number(thought)})` : ''}`,
      'Tokens that the model wrote');
  } else if (tokens) {
    add(`\u2248 ${number(tokens)} tokens`, 'Counted by the pieces that arrived');
  }
  return out;
}

const ENDS = {
  length: 'Cut off: the token limit was reached.',
  stopped: 'Stopped.',
  aborted: 'The server ended this answer.',
};

// An answer that may still grow. `acts`: {retry(), result(call, text)}; absent for old turns.
export class AnswerView {
  constructor(message, acts) {
    this.message = message;
    this.acts = acts;
    this.calls = [];
    this.root = make('article', 'turn answer');
    this.wait = make('p', 'wait', make('span', 'dot'), make('span', 'wait-text', 'Waiting'));
    this.summary = make('summary', '', 'Thinking');
    this.thought = make('div', 'thought');
    this.details = make('details', 'thinking', this.summary, this.thought);
    this.content = make('div', 'content');
    this.cards = make('div', 'cards');
    this.note = make('p', 'note');
    this.error = make('div', 'error');
    this.error.setAttribute('role', 'alert');
    this.foot = make('footer', 'figures');
    this.root.append(this.wait, this.details, this.content, this.cards, this.note, this.error,
      this.foot);
    this.markdown = new MarkdownView(this.content);
    this.running = false;
  }

  update(running) {
    const { message } = this;
    this.running = running;
    this.root.classList.toggle('running', running);
    this.updateThinking();
    this.markdown.update(message.content);
    this.content.hidden = !message.content;
    this.updateCalls();
    const silent = running && !message.reasoning && !message.content && !message.calls.length;
    this.wait.hidden = !silent;
    const notes = [...(message.warnings ?? [])];
    if (ENDS[message.finish]) notes.unshift(ENDS[message.finish]);
    this.note.textContent = running ? '' : notes.join(' ');
    this.note.hidden = !this.note.textContent;
    this.updateError();
    this.tick();
  }

  // The parts that change with time alone.
  tick() {
    const { message, running } = this;
    const { stats } = message;
    if (!this.wait.hidden) {
      this.wait.lastChild.textContent = `Reading the prompt ${seconds(Date.now() - stats.sentAt)}`;
    }
    const thinkingNow = running && !message.content && !message.calls.length;
    const thoughtMs = (stats.thoughtAt ?? Date.now()) - stats.firstAt;
    if (message.reasoning) {
      const tookMs = (stats.thoughtAt ?? stats.lastAt) - stats.firstAt;
      this.summary.textContent = thinkingNow ? `Thinking, ${seconds(thoughtMs)}`
        : `Thought${tookMs < 100 ? '' : ` for ${seconds(tookMs)}`}`;
      this.details.classList.toggle('live', thinkingNow);
    }
    const parts = figures(stats);
    if (!running) {
      if (message.content) {
        parts.push(button('Copy', (event) => copy(event.currentTarget, message.content)));
      }
      if (this.acts) parts.push(button('Retry', () => this.acts.retry()));
    }
    this.foot.replaceChildren(...parts);
    this.foot.hidden = parts.length === 0;
  }

  updateThinking() {
    const { reasoning } = this.message;
    this.details.hidden = !reasoning;
    // Appended, so that a selection in the text survives.
    const shown = this.thought.firstChild;
    if (!shown) this.thought.append(reasoning);
    else if (shown.data !== reasoning) shown.appendData(reasoning.slice(shown.length));
  }

  updateCalls() {
    this.message.calls.forEach((call, i) => {
      let card = this.calls[i];
      if (!card) {
        card = { title: make('strong'), code: make('code'), result: make('div', 'call-result') };
        const pre = make('pre', '', card.code);
        const head = make('div', 'call-head', make('span', 'call-word', 'Tool call'), card.title);
        card.root = make('section', 'call', head, pre, card.result);
        this.calls[i] = card;
        this.cards.append(card.root);
      }
      card.title.textContent = call.name;
      card.code.textContent = pretty(call.arguments);
      this.updateResult(call, card.result);
    });
  }

  // The result of a call, or, if the answer is complete, a place to write it.
  updateResult(call, place) {
    if (call.result !== undefined) {
      place.replaceChildren(make('span', 'call-word', 'Result'), make('pre', '', call.result));
    } else if (!this.running && this.acts && !place.firstChild) {
      const input = make('textarea', 'code');
      input.rows = 2;
      input.placeholder = 'Result of the call';
      input.setAttribute('aria-label', `Result of ${call.name}`);
      place.append(input, button('Send result', () => this.acts.result(call, input.value),
        'button'));
    }
  }

  updateError() {
    const { error } = this.message;
    this.error.hidden = !error;
    if (error && this.error.textContent !== error) this.error.textContent = error;
  }
}

// Pages that came by plain HTTP from another machine have no navigator.clipboard.
function copyBySelection(text) {
  const area = make('textarea', 'off-screen');
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

export async function copy(node, text) {
  const before = node.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copyBySelection(text);
  }
  node.textContent = done ? 'Copied' : 'Not allowed';
  setTimeout(() => { node.textContent = before; }, 1200);
}

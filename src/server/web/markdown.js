// A small subset of Markdown, as DOM nodes: paragraphs, headings, lists, quotes, tables, rules and
// fenced code; code, bold, italics and links inside. Text only ever becomes text nodes and links
// only http, https and mailto, so whatever the model writes is shown and never run. All scans go
// forward, so time grows with the length of the text.
const MAX_DEPTH = 6;

function element(name, className) {
  const node = document.createElement(name);
  if (className) node.className = className;
  return node;
}

function link(parent, address, text) {
  const node = element('a');
  node.href = address;
  node.target = '_blank';
  node.rel = 'noopener noreferrer';
  node.textContent = text;
  parent.append(node);
}

function inline(parent, text, depth = 0) {
  const missing = new Set(); // delimiters that do not come again
  let plain = '';
  let at = 0;
  const flush = () => {
    if (plain) parent.append(plain);
    plain = '';
  };
  // Where `mark` closes what began before `from`; -1 if nowhere.
  const closing = (mark, from, tight) => {
    if (missing.has(mark)) return -1;
    let end = text.indexOf(mark, from);
    while (end >= 0 && tight && (end === from || /\s/.test(text[end - 1]))) {
      end = text.indexOf(mark, end + mark.length);
    }
    if (end < 0) missing.add(mark);
    return end;
  };
  while (at < text.length) {
    const letter = text[at];
    if (letter === '\\' && /[\\`*_[\](){}#+\-.!|<>]/.test(text[at + 1] ?? '')) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (letter === '`') {
      let ticks = '`';
      while (text[at + ticks.length] === '`') ticks += '`';
      const end = closing(ticks, at + ticks.length, false);
      if (end >= 0) {
        flush();
        const code = element('code');
        const inner = text.slice(at + ticks.length, end);
        const padded = inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '';
        code.textContent = padded ? inner.slice(1, -1) : inner;
        parent.append(code);
        at = end + ticks.length;
      } else {
        plain += ticks;
        at += ticks.length;
      }
      continue;
    }
    if (letter === '*' && depth < MAX_DEPTH) {
      const mark = text[at + 1] === '*' ? '**' : '*';
      const from = at + mark.length;
      const opens = from < text.length && !/[\s*]/.test(text[from]);
      const end = opens ? closing(mark, from, true) : -1;
      if (end >= 0) {
        flush();
        const node = element(mark === '**' ? 'strong' : 'em');
        inline(node, text.slice(from, end), depth + 1);
        parent.append(node);
        at = end + mark.length;
      } else {
        plain += mark;
        at += mark.length;
      }
      continue;
    }
    if (letter === '[' || letter === 'h') {
      const rule = letter === '[' ? /\[([^\]\n]{1,500})\]\(((?:https?:\/\/|mailto:)[^\s)]{1,2000})\)/y
        : /https?:\/\/[^\s<>"'`*]{1,2000}/y;
      rule.lastIndex = at;
      const found = rule.exec(text);
      if (found && (letter === '[' || at === 0 || /[\s(<]/.test(text[at - 1]))) {
        flush();
        if (letter === '[') {
          link(parent, found[2], found[1]);
          at += found[0].length;
        } else {
          const address = found[0].replace(/[.,;:!?)\]]+$/, '');
          link(parent, address, address);
          at += address.length;
        }
        continue;
      }
    }
    plain += letter;
    at += 1;
  }
  flush();
}

function codeBlock(source) {
  const lines = source.split('\n');
  const [, fence, language] = /^\s*(`{3,}|~{3,})\s*(\S*)/.exec(lines[0]);
  let last = lines.length;
  if (last > 1 && lines[last - 1].trim().startsWith(fence)) last -= 1;
  const box = element('div', 'code-block');
  const head = element('div', 'code-head');
  const name = element('span');
  name.textContent = language.slice(0, 40) || 'text';
  const copy = element('button', 'text-button');
  copy.type = 'button';
  copy.dataset.copy = 'code';
  copy.textContent = 'Copy';
  head.append(name, copy);
  const pre = element('pre');
  pre.tabIndex = 0;
  const code = element('code');
  code.textContent = lines.slice(1, last).join('\n');
  pre.append(code);
  box.append(head, pre);
  return box;
}

const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;

function list(lines) {
  const top = [];
  const open = []; // {indent, node}
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (!item) { // goes on with the item before it
      const node = open.at(-1).node.lastChild;
      node.append(' ');
      inline(node, line.trim());
      continue;
    }
    const indent = item[1].length;
    const ordered = item[2] !== undefined;
    while (open.length > 0 && open.at(-1).indent > indent) open.pop();
    let level = open.at(-1);
    const kind = ordered ? 'OL' : 'UL';
    if (level && level.indent === indent && level.node.nodeName !== kind) {
      open.pop();
      level = open.at(-1);
    }
    if (!level || (level.indent < indent && open.length < MAX_DEPTH)) {
      const node = element(kind.toLowerCase());
      if (ordered) node.start = Number(item[2]);
      if (level) level.node.lastChild.append(node);
      else top.push(node);
      level = { indent, node };
      open.push(level);
    }
    const entry = element('li');
    inline(entry, item[3]);
    level.node.append(entry);
  }
  const holder = document.createDocumentFragment();
  holder.append(...top);
  if (top.length === 1) return top[0];
  const box = element('div');
  box.append(holder);
  return box;
}

function cells(line) {
  return line.trim().replace(/^\|/, '').replace(/\|$/, '').split('|').map((cell) => cell.trim());
}

function table(lines) {
  const box = element('div', 'table');
  const node = element('table');
  lines.forEach((line, row) => {
    if (row === 1) return;
    const tr = element('tr');
    for (const cell of cells(line)) {
      const td = element(row === 0 ? 'th' : 'td');
      inline(td, cell);
      tr.append(td);
    }
    node.append(tr);
  });
  box.append(node);
  return box;
}

const FENCE = /^\s{0,3}(`{3,}|~{3,})/;
const RULE = /^\s{0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const underlines = (line) => /^[\s:|-]+$/.test(line) && line.includes('-') && line.includes('|');

// Cuts text into blocks {kind, source}; the same beginning always gives the same first blocks.
export function blocks(text) {
  const lines = text.split('\n');
  const out = [];
  let at = 0;
  const kindOf = (i) => {
    const line = lines[i];
    if (line.trim() === '') return 'blank';
    if (FENCE.test(line)) return 'code';
    if (HEADING.test(line)) return 'heading';
    if (RULE.test(line)) return 'rule';
    if (ITEM.test(line)) return 'list';
    if (line.startsWith('>')) return 'quote';
    if (line.includes('|') && underlines(lines[i + 1] ?? '')) return 'table';
    return 'text';
  };
  while (at < lines.length) {
    const kind = kindOf(at);
    const begin = at;
    at += 1;
    if (kind === 'blank') continue;
    if (kind === 'code') {
      const fence = FENCE.exec(lines[begin])[1];
      while (at < lines.length && !lines[at].trim().startsWith(fence)) at += 1;
      at = Math.min(at + 1, lines.length);
    } else if (kind === 'quote') {
      while (at < lines.length && lines[at].startsWith('>')) at += 1;
    } else if (kind === 'table') {
      while (at < lines.length && lines[at].includes('|')) at += 1;
    } else if (kind === 'list') {
      while (at < lines.length) {
        const next = kindOf(at);
        const goesOn = next === 'blank' && at + 1 < lines.length && kindOf(at + 1) === 'list';
        if (next !== 'list' && next !== 'text' && !goesOn) break;
        at += 1;
      }
    } else if (kind === 'text') {
      while (at < lines.length && kindOf(at) === 'text') at += 1;
    }
    out.push({ kind, source: lines.slice(begin, at).join('\n') });
  }
  return out;
}

function node(block, depth) {
  const lines = block.source.split('\n');
  switch (block.kind) {
    case 'code':
      return codeBlock(block.source);
    case 'heading': {
      const [, marks, text] = HEADING.exec(block.source);
      const heading = element(`h${Math.min(marks.length + 2, 6)}`);
      inline(heading, text);
      return heading;
    }
    case 'rule':
      return element('hr');
    case 'list':
      return list(lines.filter((line) => line.trim() !== ''));
    case 'table':
      return table(lines);
    case 'quote': {
      const quote = element('blockquote');
      const inner = lines.map((line) => line.replace(/^>\s?/, '')).join('\n');
      if (depth < MAX_DEPTH) {
        for (const part of blocks(inner)) quote.append(node(part, depth + 1));
      } else {
        quote.textContent = inner;
      }
      return quote;
    }
    default: {
      const paragraph = element('p');
      lines.forEach((line, i) => {
        if (i > 0) paragraph.append(element('br'));
        inline(paragraph, line);
      });
      return paragraph;
    }
  }
}

// Shows growing text in `parent`: only blocks that changed since the last call are made anew.
export class MarkdownView {
  constructor(parent) {
    this.parent = parent;
    this.sources = [];
  }

  update(text) {
    const wanted = blocks(text);
    wanted.forEach((block, i) => {
      const source = `${block.kind} ${block.source}`;
      if (this.sources[i] === source) return;
      const made = node(block, 0);
      const old = this.parent.children[i];
      if (old) old.replaceWith(made);
      else this.parent.append(made);
      this.sources[i] = source;
    });
    this.sources.length = wanted.length;
    while (this.parent.children.length > wanted.length) this.parent.lastElementChild.remove();
  }
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { check } from './checks.mjs';

const says = (expect, content) => check(expect, { content }).right;

test('text: but for case, white space and a full stop', () => {
  assert.ok(says({ kind: 'text', text: 'Run it now.' }, ' run it\nnow '));
  assert.ok(!says({ kind: 'text', text: 'Run it.' }, 'Run it twice.'));
});

test('number: the last one', () => {
  assert.ok(says({ kind: 'number', number: -3 }, '4 - 7 = -3.'));
  assert.ok(says({ kind: 'number', number: 12 }, 'That is 12.'));
  assert.ok(!says({ kind: 'number', number: 4 }, '4 or 5'));
  assert.ok(!says({ kind: 'number', number: 4 }, 'four'));
});

test('words: all, whatever their case', () => {
  assert.ok(says({ kind: 'words', words: ['red', '7'] }, 'A Red 7.'));
  assert.ok(!says({ kind: 'words', words: ['red', '7'] }, 'A red 8.'));
});

test('json: valid, and the value apart', () => {
  const expect = { kind: 'json', value: { a: [1, 'x'] } };
  assert.deepEqual(check(expect, { content: '{"a": [1, "x"]}' }), { right: true, value: true });
  assert.deepEqual(check(expect, { content: '{"a": 2}' }), { right: true, value: false });
  assert.deepEqual(check(expect, { content: '{"a": ' }), { right: false, value: false });
});

test('calls: names and arguments in order', () => {
  const call = (name, args) => ({ type: 'function', function: { name, arguments: args } });
  const expect = { kind: 'calls', calls: [{ name: 'f', arguments: { x: 1, y: 'a' } }] };
  assert.ok(check(expect, { tool_calls: [call('f', '{"y": "a", "x": 1}')] }).right);
  assert.ok(!check(expect, { tool_calls: [call('f', '{"y": "a", "x": "1"}')] }).right);
  assert.ok(!check(expect, { tool_calls: [call('g', '{"y": "a", "x": 1}')] }).right);
  assert.ok(!check(expect, { content: 'no call' }).right);
});

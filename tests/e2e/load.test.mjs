// Many requests at once, more than fit, and clients that leave. Slots and queue are small, steps
// slow, so that what is tested happens while something runs.
import Anthropic from '@anthropic-ai/sdk';
import assert from 'node:assert/strict';
import {suite, test} from 'node:test';
import OpenAI, {RateLimitError} from 'openai';

import {Cedra, failure} from './cedra.mjs';

const kOff = {thinking: {type: 'disabled'}};
const user = (content) => [{role: 'user', content}];
const endless = {answers: [{text: 'again and '.repeat(5000)}]};

// Runs `body` beside a server on `script`, which must leave cleanly afterwards.
async function serving(script, body) {
  const cedra = await Cedra.start({script});
  try {
    await body(cedra, {
      openai: (more) => new OpenAI({
        baseURL: `${cedra.url}/v1`, apiKey: 'x', maxRetries: 0, ...more,
      }),
      anthropic: (more) => new Anthropic({
        baseURL: cedra.url, apiKey: 'x', maxRetries: 0, ...more,
      }),
    });
  } finally {
    await cedra.stop();
  }
}

test('50 parallel streams of two clients, each with its own answer', async () => {
  const names = Array.from({length: 50}, (_, i) => `case ${i + 100}.`);
  const answers = names.map((name) => ({when: name, text: `This is the answer to ${name}`}));
  await serving({answers, max_num_seqs: 8}, async (cedra, {openai, anthropic}) => {
    const chat = openai(), messages = anthropic();
    const got = await Promise.all(names.map(async (name, i) => {
      if (i % 2) {
        const stream = messages.messages.stream(
          {model: cedra.model, max_tokens: 500, messages: user(name), ...kOff});
        return stream.finalText();
      }
      let text = '', last;
      for await (const {choices: [choice]} of await chat.chat.completions.create(
        {model: cedra.model, messages: user(name), stream: true, ...kOff})) {
        text += choice.delta.content ?? '';
        last = choice.finish_reason;
      }
      assert.equal(last, 'stop');
      return text;
    }));
    assert.deepEqual(got, answers.map((answer) => answer.text));
    const metrics = await cedra.until((m) => m['vllm:num_requests_running'] === 0);
    assert.equal(metrics['vllm:request_success_total'], 50);
    assert.equal(metrics['cedra:requests_refused_total'], 0);
  });
});

suite('leaving in mid-stream frees the slot within one step', () => {
  const leave = {
    'OpenAI chat': async (cedra, {openai}) => {
      const stream = await openai().chat.completions.create(
        {model: cedra.model, messages: user('Hi'), stream: true});
      return [stream, () => stream.controller.abort()];
    },
    'OpenAI responses': async (cedra, {openai}) => {
      const stream = await openai().responses.create(
        {model: cedra.model, input: 'Hi', stream: true});
      return [stream, () => stream.controller.abort()];
    },
    'Anthropic messages': async (cedra, {anthropic}) => {
      const stream = await anthropic().messages.create(
        {model: cedra.model, max_tokens: 9000, messages: user('Hi'), stream: true});
      return [stream, () => stream.controller.abort()];
    },
  };
  for (const [name, open] of Object.entries(leave)) {
    test(name, async () => {
      // Steps take so long that the news of the leaving is there before the next one ends.
      const script = {...endless, token_delay_ms: 1500, max_num_seqs: 1};
      await serving(script, async (cedra, clients) => {
        const [stream, abort] = await open(cedra, clients);
        // The answer's first token: from here on the engine decodes.
        await cedra.until((m) => m['vllm:generation_tokens_total'] >= 1);
        abort();
        const {'cedra:engine_steps_total': before, 'vllm:generation_tokens_total': tokens} =
          await cedra.metrics();
        const after = await cedra.until((m) => m['cedra:requests_cancelled_total'] === 1);
        assert.equal(after['vllm:num_requests_running'], 0);
        assert.ok(after['cedra:engine_steps_total'] - before <= 1, 'steps went on');
        assert.ok(after['vllm:generation_tokens_total'] - tokens <= 1, 'tokens went on');
        // The loop ends without an error or with the client's own word for it.
        try {
          for await (const event of stream) assert.ok(event);
        } catch (error) {
          assert.match(`${error.name} ${error.message}`, /abort/i);
        }
      });
    });
  }
});

suite('more requests than fit', () => {
  const full = {...endless, token_delay_ms: 50, max_num_seqs: 1, max_queue: 1};
  // Takes the slot and the queue's place; gives what ends both.
  async function fill(cedra, client) {
    const streams = [];
    const ask = (wanted) => {
      const controller = new AbortController();
      client.chat.completions.create(
        {model: cedra.model, messages: user('Hi'), stream: true, ...kOff},
        {signal: controller.signal}).catch((error) => assert.match(error.name + error, /abort/i));
      streams.push(controller);
      return cedra.until(wanted);
    };
    await ask((m) => m['vllm:num_requests_running'] === 1);
    await ask((m) => m['vllm:num_requests_waiting'] === 1);
    return () => streams.forEach((controller) => controller.abort());
  }

  test('are refused before the stream begins, with Retry-After', async () => {
    await serving(full, async (cedra, {openai, anthropic}) => {
      const leave = await fill(cedra, openai());
      for (const stream of [false, true]) {
        const chat = await failure(openai().chat.completions.create(
          {model: cedra.model, messages: user('Hi'), stream}));
        assert.ok(chat instanceof RateLimitError, `${chat}`);
        assert.equal(chat.headers.get('retry-after'), '1');
        const message = await failure(anthropic().messages.create(
          {model: cedra.model, max_tokens: 9, messages: user('Hi'), stream}));
        assert.equal(message.status, 429);
        assert.equal(message.error.error.type, 'rate_limit_error');
      }
      leave();
    });
  });

  test('succeed when the client tries again', async () => {
    const answers = [{when: 'in vain', text: 'At last.'}, ...endless.answers];
    await serving({...full, answers}, async (cedra, {openai, anthropic}) => {
      const leave = await fill(cedra, openai());
      const answer = openai({maxRetries: 9}).chat.completions.create(
        {model: cedra.model, messages: user('in vain'), ...kOff});
      await cedra.until((m) => m['cedra:requests_refused_total'] === 1);
      const message = anthropic({maxRetries: 9}).messages.create(
        {model: cedra.model, max_tokens: 99, messages: user('in vain'), ...kOff});
      await cedra.until((m) => m['cedra:requests_refused_total'] >= 2);
      leave();
      assert.equal((await answer).choices[0].message.content, 'At last.');
      assert.equal((await message).content[0].text, 'At last.');
    });
  });
});

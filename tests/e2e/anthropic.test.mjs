// Anthropic's own client: messages and token counts.
import Anthropic, {APIError, AuthenticationError, BadRequestError} from '@anthropic-ai/sdk';
import {zodOutputFormat} from '@anthropic-ai/sdk/helpers/zod';
import assert from 'node:assert/strict';
import {after, before, suite, test} from 'node:test';

import {refusesPicture, Cedra, failure, kPicture} from './cedra.mjs';
import {z} from 'zod';

import {kCity, kHello, script} from './script.mjs';

const kOff = {thinking: {type: 'disabled'}};
const kOn = {thinking: {type: 'enabled', budget_tokens: 1024}};
const kTool = {
  name: 'get_weather',
  description: 'Weather of a city',
  input_schema: {
    type: 'object',
    properties: {city: {type: 'string'}, days: {type: 'integer'}},
    required: ['city'],
  },
};
const user = (content) => [{role: 'user', content}];
const of = (message, type) => message.content.filter((block) => block.type === type);
const text = (message) => of(message, 'text').map((block) => block.text).join('');

let cedra, client;
before(async () => {
  cedra = await Cedra.start({script, args: ['--api-key', 'secret']});
  client = new Anthropic({baseURL: cedra.url, apiKey: 'secret', maxRetries: 0});
});
after(() => cedra.stop());

const body = (more) => ({model: cedra.model, max_tokens: 2000, ...more});
const create = (more) => client.messages.create(body(more));

suite('messages', () => {
  test('text, with and without thinking', async () => {
    const thought = await create({messages: user('Hi'), ...kOn});
    assert.deepEqual(thought.content.map((block) => block.type), ['thinking', 'text']);
    assert.equal(thought.content[0].thinking, 'A greeting.');
    assert.equal(text(thought), kHello);
    assert.equal(thought.stop_reason, 'end_turn');
    assert.ok(thought.usage.input_tokens > 0 && thought.usage.output_tokens > 5);
    const plain = await create({messages: user('Hi'), ...kOff});
    assert.deepEqual(plain.content.map((block) => block.type), ['text']);
  });

  test('stream through the helper', async () => {
    const stream = client.messages.stream(body({messages: user('Hi'), ...kOn}));
    let pieces = 0, thinking = '';
    stream.on('text', () => ++pieces);
    stream.on('thinking', (piece) => (thinking += piece));
    const final = await stream.finalMessage();
    assert.deepEqual([thinking, text(final)], ['A greeting.', kHello]);
    assert.ok(pieces > 1, 'the text came in one piece');
    assert.ok(of(final, 'thinking')[0].signature);
    const plain = await create({messages: user('Hi'), ...kOn});
    assert.equal(final.usage.output_tokens, plain.usage.output_tokens);
    assert.equal(final.usage.input_tokens, plain.usage.input_tokens);
  });

  test('tools, loop run by the client', async () => {
    const seen = [];
    const tool = {...kTool, type: 'custom', run: (input) => (seen.push(input), '18 degrees')};
    for (const stream of [false, true]) {
      const runner = client.beta.messages.toolRunner(
        body({stream, messages: user('The weather in Berlin?'), tools: [tool], ...kOff}));
      assert.equal(text(await runner.runUntilDone()), 'It is 18 degrees.');
    }
    assert.deepEqual(seen, Array(2).fill({city: 'Berlin', days: 2}));
  });

  test('thinking that the client sends back reaches the model', async () => {
    const messages = user('The weather in Berlin?');
    const first = await client.messages.stream(body({messages, tools: [kTool], ...kOn}))
      .finalMessage();
    assert.equal(first.stop_reason, 'tool_use');
    const [use] = of(first, 'tool_use');
    assert.deepEqual(use.input, {city: 'Berlin', days: 2});
    messages.push({role: 'assistant', content: first.content});
    const result = {type: 'tool_result', tool_use_id: use.id, content: '18 degrees'};
    messages.push({role: 'user', content: [result]});
    const second = await create({messages, tools: [kTool], ...kOn});
    assert.equal(of(second, 'thinking')[0].thinking, 'I remember why I looked.');
    assert.equal(text(second), 'It is 18 degrees.');
  });

  test('parallel calls, results in any order', async () => {
    const messages = user('The weather in two cities?');
    const first = await create({messages, tools: [kTool], ...kOn});
    const uses = of(first, 'tool_use');
    assert.deepEqual(uses.map((use) => use.input),
                     [{city: 'Berlin', days: 2}, {city: 'Bern "on" <Aare>\n', days: 1}]);
    messages.push({role: 'assistant', content: first.content}, {
      role: 'user',
      content: [1, 0].map((i) => ({
        type: 'tool_result', tool_use_id: uses[i].id, content: ['18 degrees', '21 degrees'][i],
      })),
    });
    assert.equal(text(await create({messages, tools: [kTool], ...kOn})),
                 '18 in Berlin, 21 in Bern.');
  });

  test('a picture as base64 is refused', async () => {
    const content = [
      {type: 'text', text: 'Which colour?'},
      {type: 'image', source: {type: 'base64', media_type: 'image/png', data: kPicture}},
    ];
    await refusesPicture(create({messages: user(content)}));
  });

  test('an answer by a schema', async () => {
    const format = zodOutputFormat(z.object({city: z.string(), degrees: z.int()}));
    for (const thinking of [kOff, kOn]) {
      const parsed = await client.messages.parse(
        body({messages: user('Report as JSON'), output_config: {format}, ...thinking}));
      assert.deepEqual(parsed.parsed_output, kCity);
    }
    const beta = await client.beta.messages.parse(
      body({messages: user('Report as JSON'), output_format: format, ...kOff}));
    assert.deepEqual(beta.parsed_output, kCity);
    const schema = {type: 'object', not: {}};
    const bad = await failure(create(
      {messages: user('x'), output_config: {format: {type: 'json_schema', schema}}}));
    assert.ok(bad instanceof BadRequestError, `${bad}`);
    assert.match(bad.message, /output_config.format.schema: the keyword/);
  });

  test('stop sequences and max_tokens', async () => {
    const count = {messages: user('Count'), ...kOff};
    const stopped = await create({...count, stop_sequences: ['never', 'three']});
    assert.equal(text(stopped), 'one two ');
    assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', 'three']);
    const cut = await create({...count, max_tokens: 2});
    assert.equal(cut.stop_reason, 'max_tokens');
  });

  test('count_tokens is what a request then uses', async () => {
    const messages = user('Count the tokens of this');
    const counted = await client.messages.countTokens(
      {model: cedra.model, system: 'Be brief.', messages, ...kOff});
    const {usage} = await create({system: 'Be brief.', messages, ...kOff});
    assert.equal(counted.input_tokens, usage.input_tokens);
  });

  test('errors have the client\'s own classes', async () => {
    const bad = await failure(create({messages: user('Hi'), max_tokens: -1}));
    assert.ok(bad instanceof BadRequestError, `${bad}`);
    assert.match(bad.message, /max_tokens/);
    assert.equal(bad.error.error.type, 'invalid_request_error');
    const stranger = new Anthropic({baseURL: cedra.url, apiKey: 'other', maxRetries: 0});
    const refused = await failure(stranger.messages.create(body({messages: user('Hi')})));
    assert.ok(refused instanceof AuthenticationError, `${refused}`);
    assert.equal(refused.error.error.type, 'authentication_error');
  });

  test('an engine that breaks within a stream', async () => {
    const stream = client.messages.stream(body({messages: user('break'), ...kOff}));
    let seen = '';
    stream.on('text', (piece) => (seen += piece));
    const broken = await failure(stream.finalMessage());
    assert.ok(broken instanceof APIError, `${broken}`);
    assert.match(broken.message, /the engine broke/);
    assert.equal(seen, 'half an ans');
  });

  test('models', async () => {
    const models = [];
    for await (const model of client.models.list()) models.push(model.id);
    assert.deepEqual(models, [cedra.model]);
  });
});

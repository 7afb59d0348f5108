// The bundled checkpoint: a real engine behind the same clients. Its weights are random, so what is
// compared is not what it says but that all ways of asking give the same.
import Anthropic from '@anthropic-ai/sdk';
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {ChatOpenAI} from '@langchain/openai';
import {generateText} from 'ai';
import assert from 'node:assert/strict';
import {after, before, suite, test} from 'node:test';
import OpenAI from 'openai';
import {z} from 'zod';

import {Cedra, kPicture} from './cedra.mjs';

const kOff = {thinking: {type: 'disabled'}};
const kGreedy = {temperature: 0, ...kOff};
const user = (content) => [{role: 'user', content}];

let cedra, openai, anthropic;
before(async () => {
  cedra = await Cedra.start({args: ['--memory-budget', '1G', '--max-num-seqs', '4', '--threads', '1']});
  openai = new OpenAI({baseURL: `${cedra.url}/v1`, apiKey: 'x', maxRetries: 0});
  anthropic = new Anthropic({baseURL: cedra.url, apiKey: 'x', maxRetries: 0});
});
after(() => cedra.stop());

const chat = (more) => openai.chat.completions.create(
  {model: cedra.model, messages: user('Tell me.'), max_tokens: 6, ...kGreedy, ...more});

test('every client and every route gets the same greedy text', async () => {
  const {choices: [{message: {content: expected}}], usage} = await chat();
  assert.ok(expected.length > 0 && usage.completion_tokens <= 6, `${expected}`);
  let streamed = '';
  for await (const {choices: [choice]} of await chat({stream: true})) {
    streamed += choice.delta.content ?? '';
  }
  assert.equal(streamed, expected);
  const message = await anthropic.messages.stream({
    model: cedra.model, max_tokens: 6, messages: user('Tell me.'), ...kGreedy,
  }).finalMessage();
  assert.equal(message.content.map((block) => block.text).join(''), expected);
  const response = await openai.responses.create({
    model: cedra.model, input: 'Tell me.', max_output_tokens: 6, temperature: 0,
    reasoning: {effort: 'none'},
  });
  assert.equal(response.output_text, expected);
  const langchain = new ChatOpenAI({
    model: cedra.model, apiKey: 'x', maxTokens: 6, temperature: 0, modelKwargs: kOff,
    configuration: {baseURL: `${cedra.url}/v1`},
  });
  assert.equal((await langchain.invoke('Tell me.')).content, expected);
  const provider = createOpenAICompatible({
    name: 'cedra', baseURL: `${cedra.url}/v1`, transformRequestBody: (body) => ({...body, ...kOff}),
  });
  const generated = await generateText({
    model: provider(cedra.model), prompt: 'Tell me.', maxOutputTokens: 6, temperature: 0,
  });
  assert.equal(generated.text, expected);
});

test('log probabilities are those of a distribution', async () => {
  const {choices: [{logprobs}]} = await chat({logprobs: true, top_logprobs: 20});
  assert.ok(logprobs.content.length > 0);
  for (const {logprob, top_logprobs: top} of logprobs.content) {
    assert.equal(logprob, top[0].logprob);  // greedy takes the likeliest
    const values = top.map((entry) => entry.logprob);
    assert.deepEqual(values, values.toSorted((a, b) => b - a));
    const sum = values.reduce((total, value) => total + Math.exp(value), 0);
    assert.ok(sum > 0 && sum <= 1 + 1e-4, `${sum}`);
  }
});

test('n choices are those of seeds that follow one another', async () => {
  const many = await chat({n: 3, temperature: 1, seed: 7});
  assert.equal(new Set(many.choices.map((c) => c.message.content)).size, 3);
  for (const {index, message} of many.choices) {
    const one = await chat({temperature: 1, seed: 7 + index});
    assert.equal(one.choices[0].message.content, message.content);
  }
});

test('a stop string cuts the same text', async () => {
  const full = (await chat()).choices[0].message.content;
  const stop = [...full].slice(2, 4).join('');
  const {choices: [cut]} = await chat({stop});
  assert.equal(cut.message.content, full.slice(0, full.indexOf(stop)));
  assert.equal(cut.finish_reason, 'stop');
});

test('leaving in mid-stream frees the slot', async () => {
  const stream = await chat({stream: true, max_tokens: 900, ignore_eos: true});
  for await (const {choices: [choice]} of stream) {
    if (choice.delta.content) break;  // ends the request
  }
  const {'vllm:generation_tokens_total': tokens} =
    await cedra.until((m) => m['cedra:requests_cancelled_total'] === 1);
  assert.ok(tokens < 800, `${tokens}`);
  await cedra.until((m) => m['vllm:num_requests_running'] === 0);
});

// Three routes, three ways to write the same picture.
test('a picture', async () => {
  const url = `data:image/png;base64,${kPicture}`;
  const ask = {type: 'text', text: 'Which colour?'};
  const blind = await chat({messages: user([ask])});
  const seen = await chat({messages: user([ask, {type: 'image_url', image_url: {url}}])});
  assert.ok(seen.usage.prompt_tokens > blind.usage.prompt_tokens);
  const text = seen.choices[0].message.content;
  const source = {type: 'base64', media_type: 'image/png', data: kPicture};
  const message = await anthropic.messages.create({
    model: cedra.model, max_tokens: 6, messages: user([ask, {type: 'image', source}]), ...kGreedy,
  });
  assert.equal(message.content.map((block) => block.text).join(''), text);
  const response = await openai.responses.create({
    model: cedra.model, max_output_tokens: 6, temperature: 0, reasoning: {effort: 'none'},
    input: user([{...ask, type: 'input_text'},
                 {type: 'input_image', detail: 'auto', image_url: url}]),
  });
  assert.equal(response.output_text, text);
});

// A model of random weights keeps to a schema only if it is held to it.
suite('answers by a schema', () => {
  const shape = z.strictObject({kind: z.enum(['cat', 'dog']), old: z.boolean()});
  const schema = z.toJSONSchema(shape);

  test('OpenAI', async () => {
    for (const temperature of [0, 1]) {
      const answer = await chat({
        temperature, seed: 3, max_tokens: 200,
        response_format: {type: 'json_schema', json_schema: {name: 'pet', strict: true, schema}},
      });
      assert.equal(answer.choices[0].finish_reason, 'stop');
      shape.parse(JSON.parse(answer.choices[0].message.content));
    }
  });

  test('Anthropic', async () => {
    for (const temperature of [0, 1]) {
      const answer = await anthropic.messages.create({
        model: cedra.model, messages: user('Tell me.'), ...kOff, temperature, max_tokens: 200,
        output_config: {format: {type: 'json_schema', schema}},
      });
      assert.equal(answer.stop_reason, 'end_turn');
      shape.parse(JSON.parse(answer.content.map((block) => block.text).join('')));
    }
  });
});

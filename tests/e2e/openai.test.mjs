// OpenAI's own client: chat, completions, responses.
import assert from 'node:assert/strict';
import {after, before, suite, test} from 'node:test';
import OpenAI, {
  APIError, AuthenticationError, BadRequestError, NotFoundError,
} from 'openai';
import {zodResponseFormat} from 'openai/helpers/zod';
import {z} from 'zod';

import {refusesPicture, Cedra, failure, kPicture} from './cedra.mjs';
import {kCity, kHello, script} from './script.mjs';

const kOff = {thinking: {type: 'disabled'}};
const kSchema = z.object({city: z.string(), degrees: z.number()});
const kTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Weather of a city',
    parameters: {
      type: 'object',
      properties: {city: {type: 'string'}, days: {type: 'integer'}},
      required: ['city'],
    },
  },
};
const user = (content) => [{role: 'user', content}];

let cedra, client;
before(async () => {
  cedra = await Cedra.start({script, args: ['--served-model-name', 'flash', '--api-key', 'secret']});
  client = new OpenAI({baseURL: `${cedra.url}/v1`, apiKey: 'secret', maxRetries: 0});
});
after(() => cedra.stop());

const chat = (body, options) => client.chat.completions.create({model: 'flash', ...body}, options);

suite('chat', () => {
  test('text, with and without reasoning', async () => {
    const thought = await chat({messages: user('Hi')});
    assert.equal(thought.choices[0].message.reasoning_content, 'A greeting.');
    assert.equal(thought.choices[0].message.content, kHello);
    assert.equal(thought.choices[0].finish_reason, 'stop');
    const {usage} = thought;
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.ok(usage.completion_tokens_details.reasoning_tokens > 0);
    const plain = await chat({messages: user('Hi'), ...kOff});
    assert.equal(plain.choices[0].message.content, kHello);
    assert.equal(plain.choices[0].message.reasoning_content ?? null, null);
  });

  test('stream, raw and through the helper', async () => {
    const stream = await chat({
      messages: user('Hi'), stream: true, stream_options: {include_usage: true},
    });
    let text = '', reasoning = '', usage, finish;
    for await (const {choices: [choice], usage: last} of stream) {
      text += choice?.delta.content ?? '';
      reasoning += choice?.delta.reasoning_content ?? '';
      finish = choice?.finish_reason ?? finish;
      if (!choice) usage = last;
    }
    assert.deepEqual([reasoning, text, finish], ['A greeting.', kHello, 'stop']);
    assert.ok(usage.completion_tokens > 5);
    const helper = client.chat.completions.stream({model: 'flash', messages: user('Hi')});
    let pieces = 0;
    helper.on('content', () => ++pieces);
    const final = await helper.finalChatCompletion();
    assert.equal(final.choices[0].message.content, kHello);
    assert.ok(pieces > 1, 'the text came in one piece');
  });

  test('tools, loop run by the client', async () => {
    const seen = [];
    const tool = {
      ...kTool,
      function: {
        ...kTool.function,
        parse: JSON.parse,
        function: (args) => (seen.push(args), '18 degrees'),
      },
    };
    for (const stream of [false, true]) {
      const runner = client.chat.completions.runTools(
        {model: 'flash', stream, messages: user('The weather in Berlin?'), tools: [tool], ...kOff});
      assert.equal(await runner.finalContent(), 'It is 18 degrees.');
    }
    assert.deepEqual(seen, Array(2).fill({city: 'Berlin', days: 2}));
  });

  test('reasoning that the client sends back reaches the model', async () => {
    const messages = user('The weather in Berlin?');
    const first = await chat({messages, tools: [kTool]});
    const {message, finish_reason: finish} = first.choices[0];
    assert.equal(finish, 'tool_calls');
    assert.equal(message.reasoning_content, 'I must look.');
    messages.push(message,
                  {role: 'tool', tool_call_id: message.tool_calls[0].id, content: '18 degrees'});
    const second = await chat({messages, tools: [kTool]});
    assert.equal(second.choices[0].message.reasoning_content, 'I remember why I looked.');
    assert.equal(second.choices[0].message.content, 'It is 18 degrees.');
  });

  test('parallel calls in a stream, results in any order', async () => {
    const messages = user('The weather in two cities?');
    const stream = client.chat.completions.stream({model: 'flash', messages, tools: [kTool]});
    const {message} = (await stream.finalChatCompletion()).choices[0];
    const args = message.tool_calls.map((call) => JSON.parse(call.function.arguments));
    assert.deepEqual(
      args, [{city: 'Berlin', days: 2}, {city: 'Bern "on" <Aare>\n', days: 1}]);
    const [berlin, bern] = message.tool_calls.map((call) => call.id);
    assert.notEqual(berlin, bern);
    messages.push(message, {role: 'tool', tool_call_id: bern, content: '21 degrees'},
                  {role: 'tool', tool_call_id: berlin, content: '18 degrees'});
    const last = await chat({messages, tools: [kTool]});
    assert.equal(last.choices[0].message.content, '18 in Berlin, 21 in Bern.');
  });

  test('a picture as a data URL is refused', async () => {
    const content = [
      {type: 'text', text: 'Which colour?'},
      {type: 'image_url', image_url: {url: `data:image/png;base64,${kPicture}`}},
    ];
    await refusesPicture(chat({messages: user(content)}));
  });

  test('json_schema', async () => {
    const parsed = await client.chat.completions.parse({
      model: 'flash', messages: user('Report as JSON'), ...kOff,
      response_format: zodResponseFormat(kSchema, 'report'),
    });
    assert.deepEqual(parsed.choices[0].message.parsed, kCity);
  });

  test('json_object', async () => {
    const {choices} = await chat({
      messages: user('Report as JSON'), ...kOff, response_format: {type: 'json_object'},
    });
    assert.deepEqual(JSON.parse(choices[0].message.content), kCity);
  });

  test('log probabilities', async () => {
    const {choices: [{logprobs, message}]} = await chat({
      messages: user('Hi'), ...kOff, logprobs: true, top_logprobs: 3,
    });
    const bytes = logprobs.content.flatMap((token) => token.bytes);
    assert.equal(Buffer.from(bytes).toString(), message.content);
    for (const token of logprobs.content) {
      assert.equal(token.logprob, -0.5);
      assert.deepEqual(token.top_logprobs.map((top) => top.logprob), [-0.5, -1.5, -2.5]);
      assert.equal(token.top_logprobs[0].token, token.token);
    }
    let streamed = 0;
    for await (const {choices: [choice]} of await chat({
      messages: user('Hi'), ...kOff, logprobs: true, stream: true,
    })) {
      streamed += choice?.logprobs?.content?.length ?? 0;
    }
    assert.equal(streamed, logprobs.content.length);
  });

  test('n choices', async () => {
    const body = {messages: user('Hi'), ...kOff, n: 3};
    const {choices, usage} = await chat(body);
    assert.deepEqual(choices.map((c) => [c.index, c.message.content]),
                     [0, 1, 2].map((i) => [i, kHello]));
    const single = await chat({...body, n: 1});
    assert.equal(usage.completion_tokens, 3 * single.usage.completion_tokens);
    assert.equal(usage.prompt_tokens, single.usage.prompt_tokens);
    const texts = ['', '', ''];
    for await (const chunk of await chat({...body, stream: true})) {
      for (const {index, delta} of chunk.choices) texts[index] += delta.content ?? '';
    }
    assert.deepEqual(texts, Array(3).fill(kHello));
  });

  test('stop strings and max_tokens', async () => {
    const count = {messages: user('Count'), ...kOff};
    const stopped = (await chat({...count, stop: ['ree fo', 'never']})).choices[0];
    assert.deepEqual([stopped.message.content, stopped.finish_reason], ['one two th', 'stop']);
    const stream = client.chat.completions.stream({model: 'flash', ...count, stop: 'two'});
    assert.equal(await stream.finalContent(), 'one ');
    const cut = (await chat({...count, max_tokens: 2})).choices[0];
    assert.equal(cut.finish_reason, 'length');
    assert.ok('one two three four five'.startsWith(cut.message.content));
  });

  test('errors have the client\'s own classes', async () => {
    const bad = await failure(chat({messages: user('Hi'), temperature: 9}));
    assert.ok(bad instanceof BadRequestError, `${bad}`);
    assert.match(bad.message, /temperature/);
    assert.ok(await failure(chat({messages: user('Hi'), model: 'absent'})) instanceof NotFoundError);
    const stranger = new OpenAI({baseURL: `${cedra.url}/v1`, apiKey: 'other', maxRetries: 0});
    assert.ok(await failure(stranger.models.list()) instanceof AuthenticationError);
    const long = await failure(chat({messages: user('long '.repeat(60000))}));
    assert.equal(long.code, 'context_length_exceeded');
  });

  test('an engine that breaks: 500 before the stream, an error within it', async () => {
    const body = {messages: user('break'), ...kOff};
    const plain = await failure(chat(body));
    assert.equal(plain.status, 500);
    let text = '';
    const broken = await failure((async () => {
      for await (const {choices} of await chat({...body, stream: true})) {
        text += choices[0]?.delta.content ?? '';
      }
    })());
    assert.ok(broken instanceof APIError, `${broken}`);
    assert.match(broken.message, /the engine broke/);
    assert.equal(text, 'half an ans');
  });
});

test('one model', async () => {
  assert.equal((await client.models.retrieve('flash')).id, 'flash');
});

test('models and completions', async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model);
  assert.deepEqual(models.map((m) => m.id), ['flash']);
  const prompt = ['The capital of France is', 'And the capital of France is'];
  const {choices} = await client.completions.create({model: 'flash', prompt, logprobs: 1});
  assert.deepEqual(choices.map((c) => c.text), [' Paris', ' Paris']);
  assert.equal(choices[0].logprobs.tokens.join(''), ' Paris');
  let text = '';
  for await (const chunk of await client.completions.create(
    {model: 'flash', prompt: prompt[0], stream: true})) {
    text += chunk.choices[0]?.text ?? '';
  }
  assert.equal(text, ' Paris');
});

suite('responses', () => {
  const tools = [{type: 'function', strict: false, ...kTool.function}];
  const create = (body) => client.responses.create({model: 'flash', ...body});

  test('text, and a stream whose events add up', async () => {
    const plain = await create({input: 'Hi'});
    assert.equal(plain.output_text, kHello);
    assert.deepEqual(plain.output.map((item) => item.type), ['reasoning', 'message']);
    const stream = client.responses.stream({model: 'flash', input: 'Hi'});
    let text = '', number = -1;
    for await (const event of stream) {
      assert.equal(event.sequence_number, ++number);
      if (event.type === 'response.output_text.delta') text += event.delta;
    }
    assert.equal(text, kHello);
    const final = await stream.finalResponse();
    assert.equal(final.status, 'completed');
    assert.equal(final.output_text, kHello);
    assert.equal(final.usage.output_tokens, plain.usage.output_tokens);
  });

  for (const kept of [true, false]) {
    test(`tool loop, conversation kept by the ${kept ? 'server' : 'client'}`, async () => {
      const input = user('The weather in Berlin?');
      const stream = client.responses.stream({
        model: 'flash', input, tools, store: kept, include: ['reasoning.encrypted_content'],
      });
      const first = await stream.finalResponse();
      const call = first.output.find((item) => item.type === 'function_call');
      assert.equal(call.name, 'get_weather');
      assert.deepEqual(JSON.parse(call.arguments), {city: 'Berlin', days: 2});
      const result = {type: 'function_call_output', call_id: call.call_id, output: '18 degrees'};
      const second = await create(
        kept ? {input: [result], tools, previous_response_id: first.id}
             : {input: [...input, ...first.output, result], tools, store: false});
      assert.equal(second.output_text, 'It is 18 degrees.');
      const reasoning = second.output.find((item) => item.type === 'reasoning');
      assert.equal(reasoning.content[0].text, 'I remember why I looked.');
    });
  }

  test('a picture as a data URL is refused', async () => {
    const input = user([
      {type: 'input_text', text: 'Which colour?'},
      {type: 'input_image', detail: 'auto', image_url: `data:image/png;base64,${kPicture}`},
    ]);
    await refusesPicture(create({input}));
  });

  test('a kept response is read and deleted', async () => {
    const made = await create({input: 'Hi', metadata: {topic: 'greeting'}});
    const kept = await client.responses.retrieve(made.id);
    assert.deepEqual({...kept, output_text: made.output_text}, {...made});
    assert.equal(kept.output_text, kHello);
    const stream = client.responses.stream({model: 'flash', input: 'Hi'});
    const final = await stream.finalResponse();
    assert.deepEqual((await client.responses.retrieve(final.id)).output_text, kHello);
    await client.responses.delete(made.id);
    for (const gone of [client.responses.retrieve(made.id), client.responses.delete(made.id)]) {
      const error = await failure(gone);
      assert.ok(error instanceof NotFoundError, `${error}`);
      assert.match(error.message, new RegExp(made.id));
    }
    assert.equal((await failure(
      create({input: 'Hi', previous_response_id: made.id}))).status, 404);
    const unkept = await create({input: 'Hi', store: false});
    assert.equal((await failure(client.responses.retrieve(unkept.id))).status, 404);
  });

  test('errors', async () => {
    assert.ok(await failure(create({input: 'Hi', max_output_tokens: -1})) instanceof BadRequestError);
    const unknown = await failure(create({input: 'Hi', previous_response_id: 'resp_absent'}));
    assert.ok([400, 404].includes(unknown.status), `${unknown}`);
  });
});

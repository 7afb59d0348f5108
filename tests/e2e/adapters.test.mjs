// Clients that speak OpenAI's chat on behalf of an application: the AI SDK and LangChain.
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {HumanMessage, ToolMessage} from '@langchain/core/messages';
import {tool as langchainTool} from '@langchain/core/tools';
import {ChatOpenAI} from '@langchain/openai';
import {generateText, Output, stepCountIs, streamText, tool} from 'ai';
import assert from 'node:assert/strict';
import {after, before, suite, test} from 'node:test';
import {z} from 'zod';

import {refusesPicture, Cedra, failure, kPicture} from './cedra.mjs';
import {kCity, kHello, script} from './script.mjs';

const kArgs = z.object({city: z.string(), days: z.number().optional()});
const kReport = z.object({city: z.string(), degrees: z.number()});

let cedra;
before(async () => {
  cedra = await Cedra.start({script});
});
after(() => cedra.stop());

suite('AI SDK', () => {
  let model, plain;
  before(() => {
    const provider = (more) => createOpenAICompatible({
      name: 'cedra', baseURL: `${cedra.url}/v1`, apiKey: 'x', includeUsage: true, ...more,
    })(cedra.model);
    model = provider();
    plain = provider({
      supportsStructuredOutputs: true,
      transformRequestBody: (body) => ({...body, thinking: {type: 'disabled'}}),
    });
  });

  test('text and reasoning', async () => {
    const result = await generateText({model, prompt: 'Hi', maxRetries: 0});
    assert.deepEqual([result.reasoningText, result.text], ['A greeting.', kHello]);
    assert.equal(result.finishReason, 'stop');
    assert.ok(result.usage.inputTokens > 0 && result.usage.outputTokens > 5);
  });

  test('stream', async () => {
    const result = streamText({model, prompt: 'Hi', maxRetries: 0});
    let text = '', reasoning = '', pieces = 0;
    for await (const part of result.fullStream) {
      assert.notEqual(part.type, 'error', `${part.error}`);
      if (part.type === 'text-delta') (text += part.text, ++pieces);
      if (part.type === 'reasoning-delta') reasoning += part.text;
    }
    assert.deepEqual([reasoning, text], ['A greeting.', kHello]);
    assert.ok(pieces > 1, 'the text came in one piece');
    assert.ok((await result.usage).outputTokens > 5);
  });

  test('tools, loop run by the client', async () => {
    for (const ask of [generateText, streamText]) {
      const seen = [];
      const tools = {
        get_weather: tool({
          description: 'Weather of a city',
          inputSchema: kArgs,
          execute: (args) => (seen.push(args), '18 degrees'),
        }),
      };
      const result = await ask({
        model, tools, prompt: 'The weather in Berlin?', stopWhen: stepCountIs(3), maxRetries: 0,
      });
      assert.equal(await result.text, 'It is 18 degrees.');
      // It sends reasoning back as reasoning_content.
      assert.equal(await result.reasoningText, 'I remember why I looked.');
      assert.deepEqual(seen, [{city: 'Berlin', days: 2}]);
      assert.equal((await result.steps).length, 2);
    }
  });

  test('a picture as data is refused', async () => {
    const content = [
      {type: 'text', text: 'Which colour?'},
      {type: 'image', image: Buffer.from(kPicture, 'base64'), mediaType: 'image/png'},
    ];
    await refusesPicture(
      generateText({model, messages: [{role: 'user', content}], maxRetries: 0}));
  });

  test('an object by its schema', async () => {
    const result = await generateText({
      model: plain, prompt: 'Report as JSON', maxRetries: 0,
      output: Output.object({schema: kReport}),
    });
    assert.deepEqual(result.output, kCity);
  });

  test('stop strings and errors', async () => {
    const {text} = await generateText(
      {model: plain, prompt: 'Count', stopSequences: ['three'], maxRetries: 0});
    assert.equal(text.trim(), 'one two');
    const bad = await failure(
      generateText({model, prompt: 'Hi', temperature: 9, maxRetries: 0}));
    assert.equal(bad.statusCode, 400);
    assert.match(bad.message, /temperature/);
  });
});

suite('LangChain', () => {
  const open = (more) => new ChatOpenAI({
    model: cedra.model, apiKey: 'x', maxRetries: 0,
    configuration: {baseURL: `${cedra.url}/v1`}, ...more,
  });
  const plain = (more) => open({modelKwargs: {thinking: {type: 'disabled'}}, ...more});
  const weather = langchainTool(() => '18 degrees', {
    name: 'get_weather', description: 'Weather of a city', schema: kArgs,
  });

  test('text', async () => {
    const answer = await open().invoke('Hi');
    assert.equal(answer.content, kHello);
    assert.ok(answer.usage_metadata.output_tokens > 5);
  });

  test('stream', async () => {
    let all, pieces = 0;
    for await (const piece of await open().stream('Hi')) {
      all = all ? all.concat(piece) : piece;
      ++pieces;
    }
    assert.equal(all.content, kHello);
    assert.ok(pieces > 3, 'the text came in one piece');
    assert.ok(all.usage_metadata.output_tokens > 5);
  });

  test('tools, full loop', async () => {
    const bound = plain().bindTools([weather]);
    const messages = [new HumanMessage('The weather in Berlin?')];
    const first = await bound.invoke(messages);
    assert.deepEqual(first.tool_calls.map(({name, args}) => [name, args]),
                     [['get_weather', {city: 'Berlin', days: 2}]]);
    const result = await weather.invoke(first.tool_calls[0]);
    assert.ok(result instanceof ToolMessage);
    assert.equal((await bound.invoke([...messages, first, result])).content, 'It is 18 degrees.');
  });

  test('calls in a stream', async () => {
    let all;
    for await (const piece of await open().bindTools([weather]).stream('weather in two cities')) {
      all = all ? all.concat(piece) : piece;
    }
    assert.deepEqual(all.tool_calls.map((call) => call.args),
                     [{city: 'Berlin', days: 2}, {city: 'Bern "on" <Aare>\n', days: 1}]);
  });

  test('a picture as a data URL is refused', async () => {
    const content = [
      {type: 'text', text: 'Which colour?'},
      {type: 'image_url', image_url: {url: `data:image/png;base64,${kPicture}`}},
    ];
    await refusesPicture(open().invoke([new HumanMessage({content})]));
  });

  test('an object by its schema', async () => {
    const report = await plain().withStructuredOutput(kReport, {method: 'jsonSchema'})
      .invoke('Report as JSON');
    assert.deepEqual(report, kCity);
  });

  test('log probabilities and stop strings', async () => {
    const answer = await plain({logprobs: true, topLogprobs: 2}).invoke('Hi');
    const {content} = answer.response_metadata.logprobs;
    assert.equal(Buffer.from(content.flatMap((token) => token.bytes)).toString(), kHello);
    assert.equal((await plain().invoke('Count', {stop: ['three']})).content, 'one two ');
  });
});

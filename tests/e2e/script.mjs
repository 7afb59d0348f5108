// What the scripted model answers in the tests of single requests.
import {calls, kNoThinking} from './cedra.mjs';

export const kCity = {city: 'Berlin', degrees: 18};

const weather = calls({name: 'get_weather', args: {city: 'Berlin', days: 2}});
const two = calls({name: 'get_weather', args: {city: 'Berlin', days: 2}},
                  {name: 'get_weather', args: {city: 'Bern "on" <Aare>\n', days: 1}});

// `when` looks at the whole prompt: that an answer comes shows that results and reasoning came back.
export const script = {
  answers: [
    {when: ['weather in two cities', '<tool_result>18 degrees', '<tool_result>21 degrees'],
     text: 'Both known.</think>18 in Berlin, 21 in Bern.'},
    {when: 'weather in two cities', unless: '<tool_result>', text: `Two calls.</think>${two}`},
    {when: ['weather in Berlin', '<tool_result>18 degrees', kNoThinking],
     text: 'It is 18 degrees.'},
    {when: ['weather in Berlin', '<tool_result>18 degrees', '<think>I must look.</think>'],
     text: 'I remember why I looked.</think>It is 18 degrees.'},
    {when: ['weather in Berlin', '<tool_result>18 degrees'],
     text: 'Reasoning was not sent back.</think>It is 18 degrees.'},
    {when: ['weather in Berlin', kNoThinking], unless: '<tool_result>', text: weather},
    {when: 'weather in Berlin', unless: '<tool_result>', text: `I must look.</think>${weather}`},
    {when: ['Report as JSON', kNoThinking], text: JSON.stringify(kCity)},
    {when: 'Report as JSON', text: `Fill it in.</think>${JSON.stringify(kCity)}`},
    {when: ['Count', kNoThinking], text: 'one two three four five'},
    {when: ['break', kNoThinking], text: 'half an ans', error: 'the engine broke'},
    {when: 'capital', text: ' Paris'},
    {when: kNoThinking, text: 'Hello – 你好 🦊'},
    {text: 'A greeting.</think>Hello – 你好 🦊'},
  ],
};

export const kHello = 'Hello – 你好 🦊';

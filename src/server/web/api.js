// The server's API, as far as the page uses it. Paths are relative, so that the page also works
// behind a proxy that serves it below another path.

// `status` is 0 if the server could not be reached.
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function call(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server cannot be reached. Is it running?', 0);
  }
  if (response.ok) return response;
  let message = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    message = (await response.json()).error.message || message;
  } catch { /* no JSON: the status must do */ }
  throw new ApiError(message, response.status);
}

function post(path, key, body, signal) {
  return call(path, key, {
    method: 'POST', body: JSON.stringify(body), signal,
    headers: { 'Content-Type': 'application/json' },
  });
}

// [{id, max_model_len}]
export async function models(key) {
  return (await (await call('v1/models', key)).json()).data;
}

// Tokens that a picture (a data URL) adds to a prompt.
export async function imageTokens(key, url) {
  const [, type, data] = /^data:([^;,]+);base64,(.*)$/s.exec(url);
  const text = { type: 'text', text: 'x' };
  const image = { type: 'image', source: { type: 'base64', media_type: type, data } };
  const counts = [[image, text], [text]].map(async (content) => {
    const body = { messages: [{ role: 'user', content }], max_tokens: 1 };
    return (await (await post('v1/messages/count_tokens', key, body)).json()).input_tokens;
  });
  const [with_, without] = await Promise.all(counts);
  return with_ - without;
}

// The data of server-sent events, one after the other.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data: ')) yield line.slice(6).trimEnd();
    }
  }
}

// Streams a chat completion into `take`, which gets
//   {delta, finish}, {usage}, {warnings}
// Throws ApiError for every way that does not end in [DONE], AbortError if `signal` stopped it.
export async function chat(key, body, signal, take) {
  const response = await post('v1/chat/completions', key, body, signal);
  try {
    for await (const data of events(response)) {
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(event.error.message ?? 'the request failed', 500);
      if (event.warnings) take({ warnings: event.warnings });
      if (event.usage) take({ usage: event.usage });
      const choice = event.choices?.[0];
      if (choice) take({ delta: choice.delta ?? {}, finish: choice.finish_reason });
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === 'AbortError') throw error;
    throw new ApiError('The connection broke while the answer came.', 0);
  }
  throw new ApiError('The server ended the answer before it was complete.', 0);
}

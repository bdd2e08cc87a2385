// One chat completion as a stream: requests, parses server-sent events, measures.

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function errorOf(response) {
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not OpenAI's shape (a proxy, perhaps): the status has to do.
  }
  return new ApiError(message, response.status);
}

// Yields the JSON of each `data:` line. Events are separated by empty lines.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}

// Streams an answer. Calls onStart with the workers' names and onText with each piece;
// returns the figures. Throws ApiError, or AbortError when stopped.
export async function complete({ body, key, signal, onStart, onText }) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const begun = performance.now();
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers,
    signal,
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  if (!response.ok) throw await errorOf(response);
  onStart({
    prefill: response.headers.get("x-baton-prefill"),
    decode: response.headers.get("x-baton-decode"),
  });
  const figures = { ttftMs: null, tpotMs: null, usage: null, finish: null };
  let last = begun;
  for await (const chunk of events(response.body)) {
    if (chunk.error) throw new ApiError(chunk.error.message, 0);
    if (chunk.usage) figures.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) continue;
    if (choice.finish_reason) figures.finish = choice.finish_reason;
    if (choice.delta.content) {
      last = performance.now();
      figures.ttftMs ??= last - begun;
      onText(choice.delta.content);
    }
  }
  if (!figures.finish) throw new ApiError("The answer broke off.", 0);
  const gaps = (figures.usage?.completion_tokens ?? 0) - 1;
  if (figures.ttftMs !== null && gaps > 0) figures.tpotMs = (last - begun - figures.ttftMs) / gaps;
  return figures;
}

export async function modelName(key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch("/v1/models", { headers });
  if (!response.ok) throw await errorOf(response);
  return (await response.json()).data[0].id;
}

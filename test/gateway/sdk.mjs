// Asks the gateway through the package openai and writes what it got, one JSON
// object. The key and the address come from the environment, as they do for any
// program that uses the package.
import OpenAI from "openai";

const client = new OpenAI();
const messages = [{ role: "user", content: "one" }];
const got = {};

// refused is what the package makes of a refusal, and how often it asked.
async function refused(ask, options = {}) {
  let requests = 0;
  const counting = new OpenAI({
    ...options,
    fetch: (...args) => {
      requests++;
      return fetch(...args);
    },
  });
  try {
    await ask(counting);
    return { none: true };
  } catch (e) {
    const { status, code, param, type } = e;
    return { class: e.constructor.name, status, code, param, type, requests };
  }
}

got.models = (await client.models.list()).data.map((m) => m.id);
got.model = (await client.models.retrieve("chatty")).id;

const { data: first, response } = await client.chat.completions
  .create({ model: "auto", messages, temperature: 0.5 })
  .withResponse();
got.first = first;
got.headers = Object.fromEntries([...response.headers].filter(([name]) => name.startsWith("x-allod-")));

// The answer goes back as it came.
const second = await client.chat.completions.create({
  model: "chatty",
  messages: [...messages, first.choices[0].message, { role: "user", content: [{ type: "text", text: "long" }] }],
});
got.second = { text: second.choices[0].message.content, finish: second.choices[0].finish_reason };

const stream = await client.chat.completions.create({
  model: "auto",
  messages: [{ role: "user", content: "streamed" }],
  stream: true,
  stream_options: { include_usage: true },
});
got.chunks = [];
for await (const chunk of stream) got.chunks.push(chunk);

// The package's own helper puts a stream together again.
const runner = client.chat.completions.stream({ model: "auto", messages: [{ role: "user", content: "helped" }] });
got.helped = await runner.finalContent();

const text = await client.completions.create({ model: "auto", prompt: "once" });
got.text = text.choices[0].text;
got.pieces = [];
for await (const piece of await client.completions.create({ model: "auto", prompt: "once", stream: true })) {
  got.pieces.push(piece.choices[0].text);
}

const chat = (more) => (c) => c.chat.completions.create({ model: "auto", messages, ...more });
got.refused = {
  maxTokens: await refused(chat({ max_tokens: 5 })),
  image: await refused(chat({ messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }] })),
  model: await refused(chat({ model: "gpt-4o" })),
  key: await refused(chat({}), { apiKey: "canary" }),
  responses: await refused((c) => c.responses.create({ model: "auto", input: "x" })),
  embeddings: await refused((c) => c.embeddings.create({ model: "auto", input: "x" })),
  nobody: await refused(chat({ user: "bob" }), { apiKey: process.env.EVERYONE, maxRetries: 0 }),
  stream: await refused(
    async (c) => {
      for await (const chunk of await chat({ user: "bob", stream: true })(c)) got.heard = chunk;
    },
    { apiKey: process.env.EVERYONE, maxRetries: 0 },
  ),
  pending: await refused(chat({ messages: [{ role: "user", content: "held" }] }), {
    defaultHeaders: { Prefer: "wait=1", "X-Allod-Cancel-On-Disconnect": "true" },
  }),
};

console.log(JSON.stringify(got));

// An app that runs the published server of the AI contract, with its store in
// memory. It is led from outside: a command is one line of JSON on stdin, its
// answer one on stdout.
//
//     node peer-server.mjs --keys FILE [--port N] [--lease MS] [--poll MS]
//
// The first line on stdout says where it listens. The keys are made when the
// file is absent, so that a second process can be the same site.
import fs from "node:fs";
import http from "node:http";
import process from "node:process";
import readline from "node:readline";
import { parseArgs } from "node:util";
import { ByollmApp, MemoryStore, createFetchHandler, generateSiteKeys } from "@byollm/server";
import { fingerprint } from "@byollm/protocol";

const { values: flags } = parseArgs({
  options: { keys: { type: "string" }, port: { type: "string" }, lease: { type: "string" }, poll: { type: "string" } },
});
if (!fs.existsSync(flags.keys)) fs.writeFileSync(flags.keys, JSON.stringify(generateSiteKeys()), { mode: 0o600 });
const siteKeys = JSON.parse(fs.readFileSync(flags.keys, "utf8"));

let port = Number(flags.port ?? 0);
const store = new MemoryStore();
const app = new ByollmApp({ store, siteKeys });
let handler;

// What was asked of this server: [endpoint, status, time].
let asked = [];

async function serve(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const answer = await handler(
    new Request(`http://${request.headers.host}${request.url}`, {
      method: request.method,
      headers: request.headers,
      body: ["GET", "HEAD"].includes(request.method) ? undefined : Buffer.concat(chunks),
    }),
  );
  asked.push([request.url.split("/").at(-1), answer.status, Date.now()]);
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(Buffer.from(await answer.arrayBuffer()));
}

let server;
function listen() {
  server = http.createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => {
      port = server.address().port;
      handler = createFetchHandler({
        store,
        siteKeys,
        verificationUrl: `http://127.0.0.1:${port}/pair`,
        ...(flags.lease && { leaseMs: Number(flags.lease) }),
        ...(flags.poll && { pollIntervalMs: Number(flags.poll) }),
      });
      resolve();
    });
  });
}

const commands = {
  pending: ({ code }) => app.pendingPairing(code),
  approve: ({ code, owner }) => app.approvePairing({ userCode: code, owner }),
  runners: ({ owner }) => app.runners(owner),
  revoke: ({ runner }) => app.revokeRunner(runner),
  enqueue: async ({ job }) => (await app.enqueue(job)).id,
  job: ({ id }) => app.result(id),
  cancel: ({ id }) => app.cancel(id),
  available: ({ query }) => app.runnerAvailability(query),
  // What was asked since the last time.
  asked: () => asked.splice(0),
  // The network is cut: nothing listens, and every connection breaks.
  cut: () =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    }),
  mend: () => listen(),
};

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
await listen();
say({ listening: `127.0.0.1:${port}`, site: fingerprint(siteKeys.identityPublic) });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  try {
    say({ ok: (await commands[name](rest)) ?? null });
  } catch (error) {
    say({ error: String(error?.message ?? error) });
  }
}
process.exit(0);

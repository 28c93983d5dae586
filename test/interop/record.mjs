// Records how the published programs of the AI contract answer at protocol
// version "2", as cases for the tests of wire/ai:
//
//     node record.mjs OUTDIR
//
// The inputs are ours. The key sets, the addresses and the version texts are
// those of the recordings of version "0", so that the two can be compared.
import fs from "node:fs";
import path from "node:path";
import crypto from "node:crypto";
import { fileURLToPath } from "node:url";
import { randomness } from "./randomness.mjs";
import * as p from "@byollm/protocol";

const outdir = process.argv[2];
if (!outdir) {
  console.error("usage: node record.mjs OUTDIR");
  process.exit(2);
}
fs.mkdirSync(outdir, { recursive: true });
const testdata = path.join(path.dirname(fileURLToPath(import.meta.url)), "../../wire/ai/testdata");
const recorded = (file) => JSON.parse(fs.readFileSync(path.join(testdata, file), "utf8"));

const installed = (name) =>
  JSON.parse(fs.readFileSync(path.join(path.dirname(fileURLToPath(import.meta.url)), "node_modules", name, "package.json"), "utf8")).version;

const VERSION = "2";
const b64 = (bytes) => Buffer.from(bytes).toString("base64");
const ascii = (text) =>
  text.replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const line = (value) => ascii(JSON.stringify(value));

function write(file, head, cases) {
  const seen = new Set();
  for (const c of cases) {
    if (seen.has(c.name)) throw new Error(`${file} has two cases named ${c.name}`);
    seen.add(c.name);
  }
  const rows = Object.entries(head).map(([name, value]) => ` ${line(name)}: ${line(value)},`);
  const text = ["{", ...rows, ' "cases": [', cases.map((c) => "  " + line(c)).join(",\n"), " ]", "}", ""].join("\n");
  fs.writeFileSync(path.join(outdir, file), text);
  console.log(`${file}: ${cases.length} cases`);
}

// expand replaces {"$repeat":[text,n]} and {"$array":[item,n]}.
function expand(v) {
  if (Array.isArray(v)) return v.map(expand);
  if (v === null || typeof v !== "object") return v;
  const names = Object.keys(v);
  if (names.length === 1 && names[0] === "$repeat") return v.$repeat[0].repeat(v.$repeat[1]);
  if (names.length === 1 && names[0] === "$array") return Array.from({ length: v.$array[1] }, () => expand(v.$array[0]));
  return Object.fromEntries(names.map((n) => [n, expand(v[n])]));
}
const repeat = (text, n) => ({ $repeat: [text, n] });
const array = (item, n) => ({ $array: [item, n] });
const hasMark = (v) => /"\$(repeat|array)":/.test(JSON.stringify(v) ?? "");

// What a value that holds marks was read as, when only a default was added.
function expanded(value, data) {
  const out = { ...value };
  for (const n of Object.keys(data)) out[n] ??= data[n];
  if (!same(expand(out), data)) throw new Error("a marked value was read in a way that the recording cannot write");
  return out;
}

// A comparison that does not look at the order of members.
function sorted(v) {
  if (Array.isArray(v)) return v.map(sorted);
  if (v === null || typeof v !== "object") return Object.is(v, -0) ? 0 : v;
  return Object.keys(v).sort().map((n) => [n, sorted(v[n])]);
}
const same = (a, b) => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));

const keys = Object.fromEntries(
  recorded("keys.json").cases.filter((c) => c.kind === "keys").map((c) => [c.key, c.stored]),
);
const idOf = (name) => p.keyId(keys[name].identityPublic);

// ---- schemas ----------------------------------------------------------------

const ident = { identity: "a", encryption: "b", encryptionSig: "c" };
const envelope = { ciphertext: "c", recipientKeyId: "r", senderKeyId: "s", direction: "payload", deadlineAt: 1 };
const capability = { kind: "llm.chat", service: "v", backendId: "ollama", backendClass: "http", model: "m", offerScope: "private" };
const capabilityFull = { ...capability, knownModels: ["m", "n"], offerScope: "team" };
const withheld = { kind: "llm.chat", claimants: [{ service: "v", offer: "private" }, { service: "w", offer: "team" }] };
const ref = { jobId: "j", leaseId: "l" };
const lease = { id: "L", runnerId: "r", expiresAt: 1 };
const grant = { grantId: "g", jobId: "j", site: "s", user: "u", owner: "o", purpose: "p", kind: "llm.chat", service: "v", issuedAt: 1, signature: "x" };
const link = { identity: ident, signature: "x" };
const stub = { id: "j", kind: "llm.chat", owner: "o", site: "s", audience: "private", sizeClass: "small", streaming: false, deadlineAt: 1 };
const stubFull = { ...stub, audience: "team", purpose: "p" };
const ran = { model: "m", backendClass: "http", durationMs: 0 };
const ranFull = { ...ran, stop: "end", stopReported: true };
const okOutcome = { outcome: "ok", text: "t", artifactUrl: "https://a.example/x" };
const errOutcome = { outcome: "error", code: "c", message: "m", retryable: false };
const provenance = { audience: "private", runnerId: "r", runnerOwner: "o", backendClass: "http", model: "m", untrusted: false };
const v = { protocolVersion: VERSION };
const chat = { messages: [{ role: "user", content: "c" }] };
const deviceCode = "d".repeat(20);
const daemon = { version: "1", label: "l", platform: "linux" };

// Each schema with the examples that are mutated. The last is the fullest.
const examples = {
  PublicIdentity: [ident],
  StoredKeys: [{ version: 1, identityPublic: "a", identityPrivate: "b", encryptionPublic: "c", encryptionPrivate: "d", encryptionSig: "e", createdAt: 1 }],
  RequestSignature: [{ runnerId: "r", issuedAt: 1, signature: "s" }],
  SealedEnvelope: [envelope],
  Capability: [capability, capabilityFull],
  CapabilityMatrix: [[], [capabilityFull]],
  WithheldKind: [withheld],
  GrantRef: [ref],
  ChatMessage: [{ role: "user", content: "c" }],
  GeneratePayload: [{ prompt: "p" }, { prompt: "p", system: "s" }],
  ChatPayload: [chat, { ...chat, system: "s" }],
  JobPayload: [{ prompt: "p", system: "s" }, { ...chat, system: "s" }],
  KindedPayload: [{ kind: "llm.generate", payload: { prompt: "p", system: "s" } }, { kind: "llm.chat", payload: { ...chat, system: "s" } }],
  Lease: [lease],
  SignedGrant: [grant],
  Succession: [link],
  JobStub: [stub, stubFull],
  ClaimedStub: [{ ...stub, lease }, { ...stubFull, lease, grant }],
  ClaimedJob: [
    { id: "j", kind: "llm.chat", payload: chat, audience: "private", owner: "o", lease },
    { id: "j", kind: "llm.chat", payload: chat, audience: "team", owner: "o", site: "s", service: "v", deadlineAt: 1, lease },
  ],
  ResultProvenance: [provenance, { ...provenance, audience: "team", untrusted: true, stop: "length", stopReported: false }],
  RunMetadata: [ran, ranFull],
  JobResultOk: [{ outcome: "ok", text: "" }, okOutcome],
  JobResultError: [errOutcome],
  JobResultCanceled: [{ outcome: "canceled" }],
  JobOutcome: [okOutcome, errOutcome, { outcome: "canceled" }],
  JobRefused: [{ outcome: "refused", reason: "default-ambiguity", message: "m" }],
  SealedOutcome: [{ outcome: { outcome: "canceled" }, ran }, { outcome: okOutcome, ran: ranFull }],
  DeliveredResult: [
    { jobId: "j", state: "queued" },
    { jobId: "j", state: "ok", outcome: okOutcome, provenance: { ...provenance, stop: "end", stopReported: true }, fallback: true },
  ],
  PairStartRequest: [{ ...v, action: "start", daemon, device: ident, capabilities: [capability] }],
  PairPollRequest: [{ ...v, action: "poll", deviceCode }],
  PairRequest: [{ ...v, action: "start", daemon, device: ident, capabilities: [] }, { ...v, action: "poll", deviceCode }],
  PairStartResponse: [{ deviceCode, userCode: "ABCD", verificationUrl: "https://a.example/x", expiresAt: 1, pollIntervalMs: 500 }],
  PairPollResponse: [
    { status: "pending" },
    { status: "denied" },
    { status: "expired" },
    { status: "approved", runnerId: "r", owner: "o", sites: { S: ident } },
    { status: "approved", runnerId: "r", owner: "o", ownerLabel: "l", sites: { S: ident }, controlPlanePublic: "k" },
  ],
  ClaimRequest: [{ ...v, runnerId: "r", capabilities: [], max: 1 }, { ...v, runnerId: "r", capabilities: [capabilityFull], max: 64 }],
  ClaimResponse: [{ jobs: [], leaseMs: 1 }, { jobs: [{ ...stubFull, lease, grant }], leaseMs: 1 }],
  FetchRequest: [{ ...v, runnerId: "r", ...ref }],
  FetchResponse: [{ envelope }],
  HeartbeatRequest: [
    { ...v, runnerId: "r", daemonVersion: "1", capabilities: [], activeLeases: [] },
    { ...v, runnerId: "r", daemonVersion: "1", capabilities: [capabilityFull], withheld: [withheld], activeLeases: [ref] },
  ],
  HeartbeatResponse: [
    { sites: {}, cancel: [], lost: [], serverTime: 1, awaitingConsent: [] },
    {
      sites: { S: ident }, successions: { S: { succeeds: [link], retiringUntil: 1 } },
      cancel: [ref], lost: [ref], serverTime: 1, awaitingConsent: ["x"], updateTo: "1.2.3",
    },
  ],
  ResultRequest: [{ ...v, runnerId: "r", ...ref, envelope: { ...envelope, direction: "result" }, disposition: "ok" }],
  ResultResponse: [{ accepted: true, state: "ok" }, { accepted: true, duplicate: true, state: "ok" }],
  ReleaseRequest: [{ ...v, runnerId: "r", leases: [], reason: "shutdown" }, { ...v, runnerId: "r", leases: [ref], reason: "refused" }],
  ReleaseResponse: [{ released: [] }, { released: ["j"] }],
  WireError: [
    { error: "bad-request", message: "m" },
    { error: "rate-limited", message: "m", retryAfter: 0 },
    { error: "clock-skew", message: "m", serverTime: 1, maxSkewMs: 1 },
    { error: "daemon-below-floor", message: "m", floor: "1.0.0" },
    { error: "unsupported-protocol-version", message: "m", supported: ["2"], minimum: "2" },
  ],
  Purpose: [{ label: "l", kinds: ["llm.chat"] }, { label: "l", description: "d", kinds: ["llm.generate", "llm.chat"], routing: "site-fixed" }],
  Manifest: [{ a: { label: "l", kinds: ["llm.chat"] } }],
};

// Words that a text may have to be one of, by the last name on its path.
const words = new Set([
  "kind", "backendId", "backendClass", "offerScope", "offer", "role", "audience", "sizeClass", "direction", "stop", "outcome",
  "state", "status", "action", "platform", "disposition", "reason", "error", "protocolVersion", "routing", "kinds[]",
]);
const enums = {
  Audience: p.Audience, OfferScope: p.OfferScope, BackendClass: p.BackendClass, BackendCost: p.BackendCost,
  BackendIdSchema: p.BackendIdSchema, EnvelopeDirection: p.EnvelopeDirection, JobKind: p.JobKind, JobState: p.JobState,
  MatchRefusal: p.MatchRefusal, ResultDisposition: p.ResultDisposition, SizeClass: p.SizeClass, WireErrorCode: p.WireErrorCode,
  StopReasonSchema: p.StopReasonSchema, RefusalReason: p.RefusalReason, PurposeRouting: p.PurposeRouting,
};

// One place in an example, with what replaces it.
function* places(value, at = []) {
  yield [at, value];
  if (Array.isArray(value)) {
    for (const [i, item] of value.entries()) yield* places(item, [...at, i]);
  } else if (value !== null && typeof value === "object") {
    for (const [name, item] of Object.entries(value)) yield* places(item, [...at, name]);
  }
}
const GONE = Symbol("gone");
function replaced(value, at, by) {
  if (at.length === 0) return by;
  const [step, ...rest] = at;
  if (Array.isArray(value)) {
    const list = value.slice();
    if (rest.length === 0 && by === GONE) list.splice(step, 1);
    else list[step] = replaced(value[step], rest, by);
    return list;
  }
  const out = {};
  for (const [name, item] of Object.entries(value)) {
    if (name !== step) out[name] = item;
    else if (rest.length > 0 || by !== GONE) out[name] = replaced(item, rest, by);
  }
  return out;
}
const nameOf = (at) =>
  at.length === 0 ? "(top)" : at.map((s, i) => (typeof s === "number" ? `[${s}]` : (i ? "." : "") + s)).join("");

function* mutations(at, value) {
  const own = at.length <= 1;
  const last = at.length === 0 ? "" : typeof at.at(-1) === "number" ? `${at.at(-2)}[]` : at.at(-1);
  if (at.length > 0) yield ["missing", GONE];
  yield ["is null", null];
  if (typeof value !== "string") yield ["is text", "x"];
  if (typeof value !== "number") yield ["is a number", 1];
  if (own || typeof value === "boolean") if (typeof value !== "boolean") yield ["is true", true];
  if (own && !Array.isArray(value)) yield ["is an array", []];
  if (own && (value === null || typeof value !== "object" || Array.isArray(value))) yield ["is an object", {}];
  if (typeof value === "object" && !Array.isArray(value)) {
    yield ["has an unknown key", { ...value, zzz: 1 }];
    if (at.length > 0) yield ["is empty", {}];
  }
  if (Array.isArray(value)) {
    if (value.length > 0) {
      if (at.length > 0) yield ["is empty", []];
      yield ["twice the same", [...value, ...value]];
      yield ["holds null", [...value, null]];
      yield ["holds text", [...value, "x"]];
      yield ["holds empty text", [...value, ""]];
      yield ["holds an array", [...value, []]];
    }
  }
  if (typeof value === "string") {
    yield ["is empty text", ""];
    if (words.has(last)) {
      yield ["is not a member", "zzz"];
      yield ["in upper case", value.toUpperCase()];
      yield ["with a space", value + " "];
    } else if (own) yield ["is one space", " "];
  }
  if (typeof value === "boolean") {
    yield ["is the other one", !value];
    yield ["is the text", String(value)];
    yield ["is zero", 0];
  }
  if (typeof value === "number") {
    yield ["is zero", 0];
    yield ["is negative", -1];
    yield ["is a fraction", 1.5];
    yield ["is two", 2];
    yield ["is 2^53-1", 9007199254740991];
    yield ["is 2^53", 9007199254740992];
    yield ["is the number as text", "1"];
  }
}

// Boundaries and odd values by schema: [name, value].
const bare = (value, changes) => ({ ...value, ...changes });
const start = examples.PairStartRequest[0];
const startResponse = examples.PairStartResponse[0];
const claim = examples.ClaimRequest[0];
const beat = examples.HeartbeatRequest[0];
const beatAnswer = examples.HeartbeatResponse[0];
const approved = examples.PairPollResponse[3];
const withDaemon = (changes) => bare(start, { daemon: { ...daemon, ...changes } });
const purpose = examples.Purpose[0];
const boundaries = {
  GeneratePayload: [
    ["prompt of the largest length", { prompt: repeat("x", 1000000) }],
    ["prompt one too long", { prompt: repeat("x", 1000001) }],
    ["prompt of the largest length in two-unit characters", { prompt: repeat("\u{1f600}", 500000) }],
    ["prompt one two-unit character too long", { prompt: repeat("\u{1f600}", 500001) }],
    ["prompt of a million three-byte characters", { prompt: repeat("\u20ac", 1000000) }],
    ["system of the largest length", { prompt: "p", system: repeat("x", 1000000) }],
    ["system one too long", { prompt: "p", system: repeat("x", 1000001) }],
    ["prompt is a lone surrogate", { prompt: "\ud800" }],
    ["both texts of the largest length", { prompt: repeat("x", 1000000), system: repeat("y", 1000000) }],
  ],
  ChatPayload: [
    ["256 messages", { messages: array({ role: "user", content: "c" }, 256) }],
    ["257 messages", { messages: array({ role: "user", content: "c" }, 257) }],
    ["4000000 units in all", { messages: array({ role: "user", content: repeat("x", 1000000) }, 4) }],
    ["4000001 units in all", { messages: array({ role: "user", content: repeat("x", 1000000) }, 4), system: "y" }],
    ["one content too long", { messages: [{ role: "user", content: repeat("x", 1000001) }] }],
    ["content empty", { messages: [{ role: "user", content: "" }] }],
    ["only a system message", { messages: [{ role: "system", content: "c" }] }],
    ["ends with the assistant", { messages: [{ role: "assistant", content: "c" }] }],
    ["role tool", { messages: [{ role: "tool", content: "c" }] }],
    ["content a list of parts", { messages: [{ role: "user", content: [{ type: "text", text: "c" }] }] }],
    ["no messages", { messages: [] }],
  ],
  JobPayload: [
    ["both shapes at once", { prompt: "p", messages: [{ role: "user", content: "c" }] }],
    ["empty object", {}],
    ["a model besides the prompt", { prompt: "p", model: "m" }],
  ],
  KindedPayload: [
    ["the other kind's payload", { kind: "llm.generate", payload: chat }],
    ["the other kind's payload, other way", { kind: "llm.chat", payload: { prompt: "p" } }],
    ["a service besides", { kind: "llm.generate", payload: { prompt: "p" }, service: "v" }],
  ],
  Capability: [
    ["no known models", bare(capability, { knownModels: [] })],
    ["a known model empty", bare(capability, { knownModels: [""] })],
    ["known models without the model", bare(capability, { knownModels: ["n"] })],
    ["known models null", bare(capability, { knownModels: null })],
    ["service with a control character", bare(capability, { service: "\u0007" })],
    ["old offer scope self", bare(capability, { offerScope: "self" })],
    ["old offer scope named", bare(capability, { offerScope: "named" })],
    ["old offer scope public", bare(capability, { offerScope: "public" })],
    ["class that the backend does not have", bare(capability, { backendId: "claude-cli", backendClass: "http" })],
    ["backend codex-cli", bare(capability, { backendId: "codex-cli", backendClass: "process" })],
    ["no service, as in version 0", replaced(capability, ["service"], GONE)],
    ["1000 known models", bare(capability, { knownModels: array("m", 1000) })],
  ],
  CapabilityMatrix: [
    ["two services of one kind", [capability, bare(capability, { service: "w" })]],
    ["one service with two kinds", [capability, bare(capability, { kind: "llm.generate" })]],
    ["one service of one kind twice", [capability, capability]],
    ["1000 capabilities", array(capability, 1000)],
  ],
  WithheldKind: [
    ["one claimant", bare(withheld, { claimants: [withheld.claimants[0]] })],
    ["the same claimant twice", bare(withheld, { claimants: [withheld.claimants[0], withheld.claimants[0]] })],
    ["1000 claimants", bare(withheld, { claimants: array(withheld.claimants[0], 1000) })],
    ["old offer scope", bare(withheld, { claimants: [{ service: "v", offer: "self" }, { service: "w", offer: "named" }] })],
  ],
  JobStub: [
    ["purpose null", bare(stub, { purpose: null })],
    ["streaming true", bare(stub, { streaming: true })],
    ["size class unbounded", bare(stub, { sizeClass: "unbounded" })],
    ["audience self", bare(stub, { audience: "self" })],
    ["audience named", bare(stub, { audience: "named" })],
    ["audience public", bare(stub, { audience: "public" })],
    ["service besides", bare(stub, { service: "v" })],
    ["audienceAllow besides", bare(stub, { audienceAllow: ["o"] })],
    ["grant on a plain stub", bare(stub, { grant })],
    ["purpose with spaces", bare(stub, { purpose: "Any text" })],
  ],
  ClaimedStub: [
    ["grant null", { ...stub, lease, grant: null }],
    ["grant for another job", { ...stub, lease, grant: { ...grant, jobId: "other" } }],
    ["grant without a purpose on the stub", { ...stub, lease, grant }],
    ["payload besides", { ...stub, lease, payload: chat }],
  ],
  ClaimedJob: [
    ["kind and payload disagree", { id: "j", kind: "llm.chat", payload: { prompt: "p" }, audience: "private", owner: "o", lease }],
    ["audienceAllow besides", { id: "j", kind: "llm.chat", payload: chat, audience: "private", owner: "o", lease, audienceAllow: ["o"] }],
    ["purpose besides", { id: "j", kind: "llm.chat", payload: chat, audience: "private", owner: "o", lease, purpose: "p" }],
    ["grant besides", { id: "j", kind: "llm.chat", payload: chat, audience: "private", owner: "o", lease, grant }],
  ],
  RunMetadata: [
    ...["end", "length", "stop-sequence", "unknown", "stop", "content-filter"].map((s) => [`stop ${s}`, bare(ran, { stop: s })]),
    ["stop without stopReported", bare(ran, { stop: "end" })],
    ["stopReported without stop", bare(ran, { stopReported: true })],
    ["stop unknown though reported", bare(ran, { stop: "unknown", stopReported: true })],
    ["stop end though not reported", bare(ran, { stop: "end", stopReported: false })],
  ],
  ResultProvenance: [
    ["untrusted against the audience", bare(provenance, { untrusted: true })],
    ["trusted team result", bare(provenance, { audience: "team" })],
    ["deviceKeyId besides", bare(provenance, { deviceKeyId: "d" })],
    ...["self", "named", "public"].map((a) => [`audience ${a}`, bare(provenance, { audience: a })]),
  ],
  JobResultError: [["details besides", bare(errOutcome, { details: "d" })]],
  JobOutcome: [["refused", examples.JobRefused[0]], ["ok with an error's members", { ...okOutcome, code: "c" }]],
  JobRefused: [
    ["reason default-unusable", { outcome: "refused", reason: "default-unusable", message: "m" }],
    ["service besides", { outcome: "refused", reason: "default-unusable", message: "m", service: "v" }],
  ],
  SealedOutcome: [["refused outcome", { outcome: examples.JobRefused[0], ran }]],
  DeliveredResult: [
    ["fallback false", { jobId: "j", state: "ok", fallback: false }],
    ["ok without an outcome", { jobId: "j", state: "ok" }],
    ["queued with an outcome", { jobId: "j", state: "queued", outcome: okOutcome }],
    ["state and outcome disagree", { jobId: "j", state: "error", outcome: okOutcome }],
    ["refused outcome", { jobId: "j", state: "error", outcome: examples.JobRefused[0] }],
  ],
  PairStartRequest: [
    ["label of 120", withDaemon({ label: repeat("l", 120) })],
    ["label of 121", withDaemon({ label: repeat("l", 121) })],
    ["label of 60 two-unit characters", withDaemon({ label: repeat("\u{1f600}", 60) })],
    ["label of 61 two-unit characters", withDaemon({ label: repeat("\u{1f600}", 61) })],
    ...["darwin", "win32", "freebsd", "windows"].map((o) => [`platform ${o}`, withDaemon({ platform: o })]),
    ["daemon with another key", withDaemon({ arch: "arm64" })],
    ["a version before", bare(start, { protocolVersion: "1" })],
    ["version 0", bare(start, { protocolVersion: "0" })],
    ["a version after", bare(start, { protocolVersion: "3" })],
    ["version as a number", bare(start, { protocolVersion: 2 })],
    ["capability of version 0", bare(start, { capabilities: [replaced(capability, ["service"], GONE)] })],
    ["withheld besides", bare(start, { withheld: [] })],
  ],
  PairPollRequest: [
    ["device code of 19", { ...v, action: "poll", deviceCode: repeat("d", 19) }],
    ["device code of 10 two-unit characters", { ...v, action: "poll", deviceCode: repeat("\u{1f600}", 10) }],
    ["device code of 9 two-unit characters", { ...v, action: "poll", deviceCode: repeat("\u{1f600}", 9) }],
    ["device code of a million", { ...v, action: "poll", deviceCode: repeat("d", 1000000) }],
    ["version 0", { protocolVersion: "0", action: "poll", deviceCode }],
  ],
  PairRequest: [["start and poll at once", { ...start, deviceCode }], ["another action", { ...v, action: "stop" }]],
  PairStartResponse: [
    ["device code of 19", bare(startResponse, { deviceCode: repeat("d", 19) })],
    ["user code of 3", bare(startResponse, { userCode: "ABC" })],
    ["user code of 16", bare(startResponse, { userCode: "ABCDEFGHIJKLMNOP" })],
    ["user code of 17", bare(startResponse, { userCode: "ABCDEFGHIJKLMNOPQ" })],
    ...[499, 60000, 60001].map((n) => [`poll interval ${n}`, bare(startResponse, { pollIntervalMs: n })]),
  ],
  PairPollResponse: [
    ["approved without sites", replaced(approved, ["sites"], GONE)],
    ["approved with no site", bare(approved, { sites: {} })],
    ["approved with a site without a name", bare(approved, { sites: { "": ident } })],
    ["approved with two sites", bare(approved, { sites: { S: ident, T: ident } })],
    ["approved with a runner token", bare(approved, { runnerToken: "t" })],
    ["approved with the control plane's key null", bare(approved, { controlPlanePublic: null })],
    ["approved with an empty owner label", bare(approved, { ownerLabel: "" })],
    ["pending with a runner id", { status: "pending", runnerId: "r" }],
    ["revoked", { status: "revoked" }],
  ],
  ClaimRequest: [
    ...[0, 1, 64, 65].map((n) => [`max ${n}`, bare(claim, { max: n })]),
    ["version 0", bare(claim, { protocolVersion: "0" })],
    ["withheld besides", bare(claim, { withheld: [] })],
    ["daemonVersion besides", bare(claim, { daemonVersion: "1" })],
  ],
  ClaimResponse: [
    ["65 jobs", { jobs: array({ ...stub, lease }, 65), leaseMs: 1 }],
    ["the same job twice", { jobs: [{ ...stub, lease }, { ...stub, lease }], leaseMs: 1 }],
    ["serverTime besides", { jobs: [], leaseMs: 1, serverTime: 1 }],
  ],
  FetchRequest: [["version 0", { protocolVersion: "0", runnerId: "r", ...ref }]],
  HeartbeatRequest: [
    ["withheld empty", bare(beat, { withheld: [] })],
    ["withheld null", bare(beat, { withheld: null })],
    ["withheld with one claimant", bare(beat, { withheld: [{ ...withheld, claimants: [withheld.claimants[0]] }] })],
    ["active lease with another key", bare(beat, { activeLeases: [{ ...ref, zzz: 1 }] })],
    ["active leases as job ids", bare(beat, { activeLeases: ["j"] })],
    ["65 active leases", bare(beat, { activeLeases: array(ref, 65) })],
    ["version 0", bare(beat, { protocolVersion: "0" })],
  ],
  HeartbeatResponse: [
    ["successions empty", bare(beatAnswer, { successions: {} })],
    ["successions null", bare(beatAnswer, { successions: null })],
    ["succession without links", bare(beatAnswer, { successions: { S: { succeeds: [] } } })],
    ["succession of 64 links", bare(beatAnswer, { successions: { S: { succeeds: array(link, 64) } } })],
    ["succession of 65 links", bare(beatAnswer, { successions: { S: { succeeds: array(link, 65) } } })],
    ["succession without a name", bare(beatAnswer, { successions: { "": { succeeds: [link] } } })],
    ["succession of a site that is not listed", bare(beatAnswer, { successions: { T: { succeeds: [link] } } })],
    ["site without a name", bare(beatAnswer, { sites: { "": ident } })],
    ["leases besides", bare(beatAnswer, { leases: [] })],
    ["revoked besides", bare(beatAnswer, { revoked: true })],
    ["updateTo that is no version", bare(beatAnswer, { updateTo: "latest" })],
    ["cancel as job ids", bare(beatAnswer, { cancel: ["j"] })],
    ["awaiting consent twice the same", bare(beatAnswer, { awaitingConsent: ["x", "x"] })],
  ],
  ResultRequest: [
    ["envelope of the payload direction", bare(examples.ResultRequest[0], { envelope })],
    ["disposition refused", bare(examples.ResultRequest[0], { disposition: "refused" })],
    ["model besides", bare(examples.ResultRequest[0], { model: "m" })],
    ["version 0", bare(examples.ResultRequest[0], { protocolVersion: "0" })],
  ],
  ResultResponse: [["state that is none", { accepted: true, state: "zzz" }], ["duplicate false", { accepted: true, duplicate: false, state: "ok" }]],
  ReleaseRequest: [
    ...["shutdown", "pause", "revoked", "backend-down", "refused", "canceled"].map((r) => [`reason ${r}`, { ...v, runnerId: "r", leases: [ref], reason: r }]),
    ["version 0", { protocolVersion: "0", runnerId: "r", leases: [ref], reason: "pause" }],
    ["outcome besides", { ...v, runnerId: "r", leases: [ref], reason: "refused", outcome: examples.JobRefused[0] }],
  ],
  SignedGrant: [
    ["expiresAt besides", bare(grant, { expiresAt: 2 })],
    ["siteId instead of site", { ...replaced(grant, ["site"], GONE), siteId: "s" }],
    ["kind that is none", bare(grant, { kind: "zzz" })],
    ["purpose that is no slug", bare(grant, { purpose: "Any text" })],
    ["no signature", replaced(grant, ["signature"], GONE)],
  ],
  Succession: [["retiringUntil besides", bare(link, { retiringUntil: 1 })]],
  Purpose: [
    ["label of 80", bare(purpose, { label: repeat("l", 80) })],
    ["label of 81", bare(purpose, { label: repeat("l", 81) })],
    ["label of 40 two-unit characters", bare(purpose, { label: repeat("\u{1f600}", 40) })],
    ["label of 41 two-unit characters", bare(purpose, { label: repeat("\u{1f600}", 41) })],
    ["description of 280", bare(purpose, { description: repeat("d", 280) })],
    ["description of 281", bare(purpose, { description: repeat("d", 281) })],
    ["label blank", bare(purpose, { label: "  " })],
    ["label a no-break space", bare(purpose, { label: "\u00a0" })],
    ["label with a newline", bare(purpose, { label: "a\nb" })],
    ["label with a direction override", bare(purpose, { label: "a\u202eb" })],
    ["label with a zero-width space", bare(purpose, { label: "a\u200bb" })],
    ["label with a soft hyphen", bare(purpose, { label: "a\u00adb" })],
    ["label with a line separator", bare(purpose, { label: "a\u2028b" })],
    ["label with a private-use character", bare(purpose, { label: "a\ue000b" })],
    ["label with a lone surrogate", bare(purpose, { label: "a\ud800b" })],
    ["label with an unassigned character", bare(purpose, { label: "a\u0378b" })],
    ["label with an accent", bare(purpose, { label: "caf\u00e9" })],
    ["label with a joined emoji", bare(purpose, { label: "\u{1f469}\u200d\u{1f4bb}" })],
    ["no kinds", bare(purpose, { kinds: [] })],
    ["one kind twice", bare(purpose, { kinds: ["llm.chat", "llm.chat"] })],
    ...["user-choice", "site-fixed", "user-first-with-fallback"].map((r) => [`routing ${r}`, bare(purpose, { routing: r })]),
  ],
  Manifest: [
    ["no purpose", {}],
    ["32 purposes", Object.fromEntries(Array.from({ length: 32 }, (_, i) => [`p${i}`, purpose]))],
    ["33 purposes", Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`p${i}`, purpose]))],
    ...["default", "A", "a_b", "-a", "a-", "9", "a.b", "caf\u00e9", "a".repeat(64), "a".repeat(65), "a\n", ""].map((k) => [`key ${JSON.stringify(k)}`, { [k]: purpose }]),
  ],
};

// Exact texts: [schema, name, text].
const raws = [];
const addRaw = (schema, name, text) => raws.push([schema, name, text]);
for (const [name, number] of [
  ["with a zero fraction", "1750000000000.0"], ["with an exponent", "1.75e12"], ["with a capital exponent and sign", "175E+10"],
  ["with a negative exponent that is still whole", "17500e-2"], ["2^53-1", "9007199254740991"], ["2^53", "9007199254740992"],
  ["2^53+1", "9007199254740993"], ["just below 2^53-1 with a fraction that rounds to a whole number", "9007199254740990.9"],
  ["1 with a fraction too small to keep", "1.00000000000000000001"], ["1e400", "1e400"], ["-0", "-0"], ["1e-400", "1e-400"],
  ["with a leading zero", "01"], ["with a plus sign", "+1"], ["NaN", "NaN"], ["hexadecimal", "0x1"], ["with a lone point", "1."],
]) {
  addRaw("Lease", `expiresAt ${name}`, `{"id":"L1","runnerId":"r1","expiresAt":${number}}`);
  addRaw("SignedGrant", `issuedAt ${name}`, JSON.stringify(grant).replace('"issuedAt":1', `"issuedAt":${number}`));
}
addRaw("RunMetadata", "durationMs -0", '{"model":"m","backendClass":"http","durationMs":-0}');
addRaw("ClaimRequest", "max 6.4e1", '{"protocolVersion":"2","runnerId":"r","capabilities":[],"max":6.4e1}');
for (const [name, text] of [
  ["duplicate key, valid one last", '{"id":"","id":"L1","runnerId":"r1","expiresAt":1}'],
  ["duplicate key, valid one first", '{"id":"L1","id":"","runnerId":"r1","expiresAt":1}'],
  ["duplicate key by an escape", '{"id":"","\\u0069d":"L1","runnerId":"r1","expiresAt":1}'],
  ["white space around", ' \n\t{ "id" : "L1" , "runnerId" : "r1" , "expiresAt" : 1 } \r\n'],
  ["byte order mark first", '\ufeff{"id":"L1","runnerId":"r1","expiresAt":1}'],
  ["no-break space first", '\u00a0{"id":"L1","runnerId":"r1","expiresAt":1}'],
  ["form feed first", '\f{"id":"L1","runnerId":"r1","expiresAt":1}'],
  ["trailing comma", '{"id":"L1","runnerId":"r1","expiresAt":1,}'],
  ["text after the value", '{"id":"L1","runnerId":"r1","expiresAt":1}{}'],
  ["single quotes", "{'id':'L1','runnerId':'r1','expiresAt':1}"],
  ["comment", '{"id":"L1",/*x*/"runnerId":"r1","expiresAt":1}'],
  ["newline inside a text", '{"id":"L\n1","runnerId":"r1","expiresAt":1}'],
  ["DEL and U+2028 inside a text", '{"id":"L\u007f\u2028","runnerId":"r1","expiresAt":1}'],
  ["unknown escape", '{"id":"\\x41","runnerId":"r1","expiresAt":1}'],
  ["escaped solidus", '{"id":"a\\/b","runnerId":"r1","expiresAt":1}'],
  ["escaped field name", '{"\\u0069d":"L1","runnerId":"r1","expiresAt":1}'],
  ["id is a lone surrogate", '{"id":"\\ud800","runnerId":"r1","expiresAt":1}'],
  ["id is NUL", '{"id":"\\u0000","runnerId":"r1","expiresAt":1}'],
  ["field name in another case", '{"ID":"L1","runnerId":"r1","expiresAt":1}'],
  ["right field plus the same in another case", '{"id":"L1","ID":"","runnerId":"r1","expiresAt":1}'],
  ["field name with a long s", '{"id":"L1","runnerId":"r1","expire\u017fAt":1}'],
  ["key __proto__", '{"id":"L1","runnerId":"r1","expiresAt":1,"__proto__":{"x":1}}'],
  ["key __proto__ holding a number", '{"id":"L1","runnerId":"r1","expiresAt":1,"__proto__":1}'],
  ["required fields only inside __proto__", '{"__proto__":{"id":"L1","runnerId":"r1","expiresAt":1}}'],
  ["key constructor", '{"id":"L1","runnerId":"r1","expiresAt":1,"constructor":1}'],
  ["empty key", '{"id":"L1","runnerId":"r1","expiresAt":1,"":1}'],
  ["nothing", ""],
  ["only white space", "  "],
  ["cut short", '{"id":"L1"'],
]) addRaw("Lease", name, text);
const one = JSON.stringify(ident);
for (const [name, text] of [
  ["sites keyed __proto__", `{"__proto__":${one}}`], ["sites keyed constructor", `{"constructor":${one}}`],
  ["sites with a duplicate key", `{"S":${one},"S":${one.replace('"a"', '"z"')}}`], ["sites with an integer-like key", `{"7":${one}}`],
]) {
  addRaw("HeartbeatResponse", name, `{"sites":${text},"cancel":[],"lost":[],"serverTime":1,"awaitingConsent":[]}`);
  addRaw("PairPollResponse", name, `{"status":"approved","runnerId":"r","owner":"o","sites":${text}}`);
}
addRaw("HeartbeatResponse", "successions keyed __proto__", '{"sites":{},"successions":{"__proto__":{"succeeds":[]}},"cancel":[],"lost":[],"serverTime":1,"awaitingConsent":[]}');
addRaw("CapabilityMatrix", "array with a hole", "[,]");
addRaw("Manifest", "keyed __proto__", `{"a":${JSON.stringify(purpose)},"__proto__":${JSON.stringify(purpose)}}`);
// For every message: a member written twice, and a member that is no member.
for (const [schema, list] of Object.entries(examples)) {
  const full = list.at(-1);
  if (schema === "Lease" || Array.isArray(full)) continue;
  const [name] = Object.keys(full);
  const text = JSON.stringify(full);
  addRaw(schema, `duplicate ${name}, the same twice`, `{${JSON.stringify(name)}:${JSON.stringify(full[name])},${text.slice(1)}`);
  addRaw(schema, `duplicate ${name}, null first`, `{${JSON.stringify(name)}:null,${text.slice(1)}`);
  addRaw(schema, `duplicate ${name}, null last`, `${text.slice(0, -1)},${JSON.stringify(name)}:null}`);
  addRaw(schema, "key __proto__ besides", `${text.slice(0, -1)},"__proto__":{"x":1}}`);
}

function recordSchemas() {
  const cases = [];
  const loose = new Set();
  const names = new Set();
  const add = (schema, name, c, again) => {
    let full = `${schema}: ${name}`;
    if (names.has(full) && again) full = `${schema}: (${again}) ${name}`;
    if (names.has(full)) throw new Error(`twice: ${full}`);
    names.add(full);
    const read = p[schema];
    const out = { schema, name: full, ...c };
    let input;
    if (c.raw !== undefined) {
      try {
        input = JSON.parse(c.raw);
      } catch {
        return cases.push({ ...out, ok: false, notJson: true });
      }
    } else input = c.expand ? expand(c.value) : JSON.parse(JSON.stringify(c.value));
    const result = read.safeParse(input);
    out.ok = result.success;
    if (result.success && !same(result.data, input)) {
      out.parsed = c.expand ? expanded(c.value, result.data) : result.data;
      if (name.endsWith(" has an unknown key")) loose.add(full.replace(/ has an unknown key$/, ""));
    }
    cases.push(out);
  };
  const value = (schema, name, val, again) => add(schema, name, hasMark(val) ? { value: val, ok: undefined, expand: true } : { value: val }, again);
  for (const [schema, read] of Object.entries(enums)) {
    for (const word of read.options) value(schema, `is ${word}`, word);
    const word = read.options.at(-1);
    for (const [name, val] of [
      ["is not a member", "zzz"], ["in upper case", word.toUpperCase()], ["with a space", word + " "], ["is empty text", ""],
      ["is null", null], ["is a number", 1], ["is true", true], ["is an array", [word]], ["is an object", {}],
    ]) value(schema, name, val);
    if (schema === "Audience" || schema === "OfferScope") for (const old of ["self", "named", "public"]) value(schema, `is ${old}, as in version 0`, old);
    for (const name of ["toString", "__proto__", "constructor"]) value(schema, `is ${name}`, name);
  }
  for (const [schema, list] of Object.entries(examples)) {
    list.forEach((example, i) => {
      const label = list.length === 1 ? "full" : i === 0 ? "minimal" : i === list.length - 1 ? "full" : `example ${i + 1}`;
      value(schema, label, example);
    });
    // Of several shapes each is mutated; of one that only grows, the fullest.
    const shapes = list.filter((e, i) => i === list.length - 1 || !Object.keys(e).every((k) => Object.keys(list.at(-1)).includes(k)) || ["JobOutcome", "PairPollResponse", "KindedPayload", "WireError"].includes(schema));
    shapes.reverse().forEach((example, i) => {
      for (const [at, item] of places(example)) {
        if (i > 0 && at.length > 1) continue;
        if (i > 0 && at.length === 0) continue;
        for (const [what, by] of mutations(at, item)) {
          if (schema === "Manifest" && at.length === 1 && what === "missing") continue;
          value(schema, `${nameOf(at)} ${what}`, replaced(example, at, by), i > 0 ? `shape ${i + 1}` : "");
        }
      }
    });
    if (!Array.isArray(list.at(-1))) value(schema, "(top) is an empty object", {});
    for (const [name, val] of boundaries[schema] ?? []) value(schema, name, val);
  }
  // Which members an error must have and must not have.
  const members = { supported: ["2"], minimum: "2", floor: "1.0.0", serverTime: 1, maxSkewMs: 1, retryAfter: 1 };
  const optional = Object.keys(members);
  for (const code of p.WireErrorCode.options) {
    for (let bits = 0; bits < 1 << optional.length; bits++) {
      const chosen = optional.filter((_, i) => bits & (1 << i));
      value("WireError", `${code} with ${chosen.join(", ") || "nothing more"}`, {
        error: code, message: "m", ...Object.fromEntries(chosen.map((n) => [n, members[n]])),
      });
    }
  }
  // The addresses of version 0's recording.
  for (const c of recorded("schemas.json").cases) {
    if (c.expand || c.raw !== undefined || c.value === null || typeof c.value !== "object") continue;
    for (const [schema, member] of [["JobResultOk", "artifactUrl"], ["PairStartResponse", "verificationUrl"]]) {
      if (c.schema !== schema || typeof c.value[member] !== "string" || c.value[member] === "https://a.example/x") continue;
      if (c.value[member] === "") continue;
      const name = `${member} ${JSON.stringify(c.value[member])}`;
      if (names.has(`${schema}: ${name}`)) continue;
      value(schema, name, { ...examples[schema].at(-1), [member]: c.value[member] });
    }
  }
  for (const [schema, name, raw] of raws) add(schema, `raw ${name}`, { raw });
  write("schemas.json", {
    about: "Accept/refuse outcomes for every schema of a message that the lane reads or writes at version \"2\": examples, systematic mutations, boundaries and exact JSON texts. Every object refuses unknown keys except those listed in acceptsUnknownKeys.",
    acceptsUnknownKeys: [...loose].sort(),
    fields: "A case has value (a JSON value) or raw (the exact JSON text); ok says whether it is accepted; parsed is present only when the accepted result differs from the input; notJson marks a raw text that is not JSON; expand marks a value that holds {\"$repeat\":[text,n]} or {\"$array\":[item,n]}.",
    library: `zod ${installed("zod")}`,
    lengths: "A string's minimum and maximum count Unicode code points with this version of the library, and UTF-16 code units with 4.4.3; the totals of a payload count UTF-16 code units with both.",
  }, cases);
}

// ---- audience, cost, provenance ---------------------------------------------

const spends = {
  absent: undefined, none: { acknowledged: false }, ack: { acknowledged: true },
  "ack+open": { acknowledged: true, ceilingReached: false }, "ack+ceiling": { acknowledged: true, ceilingReached: true },
  "none+ceiling": { acknowledged: false, ceilingReached: true },
};
const allows = { absent: undefined, includes: ["zed", "bob"], excludes: ["zed"], empty: [] };
const given = (name, value) => (value === undefined ? {} : { [name]: value });

function recordAudience() {
  const cases = [];
  const costs = p.BackendCost.options;
  for (const scope of p.OFFER_SCOPES) for (const cost of costs) for (const spend of Object.keys(spends)) {
    cases.push({ name: `scope ${scope}/${cost}/${spend}`, kind: "effectiveOfferScope", in: [scope, cost, spend], out: p.effectiveOfferScope(scope, cost, spends[spend]) });
  }
  const verdict = (m) => (m.ok ? "ok" : m.refusal);
  for (const audience of p.AUDIENCES) for (const scope of p.OFFER_SCOPES) for (const cost of costs)
    for (const sameOwner of [true, false]) for (const admits of [true, false]) for (const allow of Object.keys(allows)) for (const spend of Object.keys(spends)) {
      const out = p.matchAudience(
        { owner: sameOwner ? "bob" : "alice", audience, ...given("audienceAllow", allows[allow]) },
        { owner: "bob", offerScope: scope, cost, admits: () => admits, ...given("spend", spends[spend]) },
      );
      cases.push({ name: `match ${audience}/${scope}/${cost}/${sameOwner ? "same" : "other"}/${admits ? "admitted" : "not admitted"}/${allow}/${spend}`, kind: "matchAudience", in: [audience, scope, cost, sameOwner, admits, allow, spend], out: verdict(out) });
    }
  for (const [name, job, daemon, admitted] of [
    ["the device is asked about the job's owner", { owner: "alice", audience: "team" }, { owner: "bob", offerScope: "team", cost: "free" }, ["alice"]],
    ["admitting the device's owner does not help", { owner: "alice", audience: "team" }, { owner: "bob", offerScope: "team", cost: "free" }, ["bob"]],
    ["the device is not asked about its own owner", { owner: "bob", audience: "team" }, { owner: "bob", offerScope: "team", cost: "free" }, []],
    ["the device is not asked on a private offer", { owner: "alice", audience: "team" }, { owner: "bob", offerScope: "private", cost: "free" }, ["alice"]],
    ["a private job of its owner runs on a team offer", { owner: "bob", audience: "private" }, { owner: "bob", offerScope: "team", cost: "metered" }, []],
    ["the app's list is not looked at for the owner's own job", { owner: "bob", audience: "team", audienceAllow: [] }, { owner: "bob", offerScope: "team", cost: "free" }, []],
    ["owners are compared as they are written", { owner: "Bob", audience: "private" }, { owner: "bob", offerScope: "private", cost: "free" }, []],
  ]) {
    const asked = [];
    const out = p.matchAudience(job, { ...daemon, admits: (o) => (asked.push(o), admitted.includes(o)) });
    cases.push({ name: `explicit ${name}`, kind: "matchAudienceExplicit", job, daemon, locallyAllowed: admitted, asked, out: verdict(out) });
  }
  write("audience.json", {
    about: "effectiveOfferScope and matchAudience over the full product of their inputs, plus a few explicit cases.",
    scopeInputs: ["configured", "cost", "spend"],
    matchInputs: ["audience", "offerScope", "cost", "sameOwner", "admits", "audienceAllow", "spend"],
    spend: Object.fromEntries(Object.entries(spends).map(([k, s]) => [k, s ?? null])),
    audienceAllow: Object.fromEntries(Object.entries(allows).map(([k, s]) => [k, s ?? null])),
    owners: { daemon: "bob", jobWhenSame: "bob", jobWhenOther: "alice" },
    out: "\"ok\" or a refusal id; null in the spend and audienceAllow tables means the value is absent.",
  }, cases);
}

function recordCost() {
  const cases = [];
  const old = recorded("cost.json").cases;
  for (const c of old) if (c.kind === "isLocalHost") cases.push({ ...c, out: p.isLocalHost(c.in) });
  for (const id of [...new Set([...p.BACKEND_IDS, ...old.filter((c) => c.kind === "isBackendId").map((c) => c.in)])]) {
    cases.push({ name: `isBackendId ${JSON.stringify(id)}`, kind: "isBackendId", in: id, out: p.isBackendId(id) });
  }
  const tags = [
    "gemma4:26b", "gpt-oss:120b-cloud", "gpt-oss:cloud", "cloud", "cloud:latest", "m:cloud:latest", "m:latest:cloud", "m:CLOUD", "m:Cloud",
    "m:cloud ", " m:cloud", "m:cloud\n", "m:notcloud", "m:xcloudx", "m:cloudy", ":cloud", "m:", "", "m-cloud", "m/cloud", "m:20b-cloud", "m\n:cloud",
    "m:clou\u0501", "m:\u200bcloud", "host:5000/m:cloud", "m@sha256:cloud",
  ];
  for (const tag of tags) cases.push({ name: `isCloudTaggedModel ${JSON.stringify(tag)}`, kind: "isCloudTaggedModel", in: tag, out: p.isCloudTaggedModel(tag) });
  const cost = (id, baseUrl, model) => {
    let hostname;
    if (baseUrl !== undefined) try { hostname = new URL(baseUrl).hostname; } catch { hostname = null; }
    const name = `resolveCost ${id === "" ? '""' : id} ${baseUrl === undefined ? "(no URL)" : JSON.stringify(baseUrl)}${model === undefined ? "" : ` model ${JSON.stringify(model)}`}`;
    let out;
    try { out = p.classifyCost(id, baseUrl, model).cost; if (p.resolveCost(id, baseUrl, model) !== out) throw new Error("resolveCost and classifyCost disagree: " + name); } catch (e) { if (/disagree/.test(e.message)) throw e; out = { throws: true }; }
    cases.push({ name, kind: "resolveCost", id, ...given("baseUrl", baseUrl), ...given("hostname", hostname), ...given("model", model), out });
  };
  for (const c of old) if (c.kind === "resolveCost") cost(c.id, c.baseUrl);
  for (const url of [undefined, "http://127.0.0.1:1234/v1", "https://api.example.com/v1", "not a url"]) cost("codex-cli", url);
  for (const id of p.BACKEND_IDS) for (const url of [undefined, "http://127.0.0.1:1234/v1", "https://api.example.com/v1"]) for (const model of ["gemma4:26b", "gpt-oss:120b-cloud", "m:cloud"]) cost(id, url, model);
  for (const model of tags) for (const id of ["ollama", "openai-http"]) if (!["gemma4:26b", "gpt-oss:120b-cloud", "m:cloud"].includes(model)) cost(id, "http://127.0.0.1:1234/v1", model);
  write("cost.json", {
    about: "Which hosts count as local, which model names count as run in a cloud, and which cost class a backend resolves to for a base URL and a model; hostname is what a WHATWG URL parser made of the address (null when it refused it).",
  }, cases);
}

function recordProvenance() {
  const cases = [];
  const at = { runnerId: "runner_1", runnerOwner: "alice", model: "gemma4:26b" };
  for (const audience of p.AUDIENCES) for (const backendClass of p.BACKEND_CLASSES) for (const stop of [undefined, ...p.StopReasonSchema.options]) for (const stopReported of [undefined, true, false]) {
    const input = { audience, ...at, backendClass, ...given("stop", stop), ...given("stopReported", stopReported) };
    const out = p.provenanceFor(input);
    cases.push({ name: `provenanceFor ${audience}/${backendClass}/stop ${stop ?? "absent"}/reported ${stopReported ?? "absent"}`, kind: "provenanceFor", in: input, out, passesSchema: p.ResultProvenance.safeParse(out).success });
  }
  for (const model of ["", " ", "x".repeat(1000)]) {
    const input = { audience: "private", ...at, backendClass: "http", model };
    const out = p.provenanceFor(input);
    cases.push({ name: `provenanceFor model of ${model.length} characters`, kind: "provenanceFor", in: input, out, passesSchema: p.ResultProvenance.safeParse(out).success });
  }
  write("provenance.json", { about: "Provenance built for a finished job; untrusted follows from the audience alone, and passesSchema says whether the built record would pass ResultProvenance." }, cases);
}

// ---- limits, version ----------------------------------------------------------

function recordLimits() {
  const finite = (o) => Object.fromEntries(Object.entries(o).map(([k, n]) => [k, n === Infinity ? "Infinity" : n]));
  const cases = [];
  const put = (name, value) => cases.push({ name, value });
  for (const name of [
    "PROTOCOL_VERSION", "SUPPORTED_PROTOCOL_VERSIONS", "MIN_PROTOCOL_VERSION", "PROTOCOL_PREFIX", "ENDPOINTS", "ENCRYPTION_KEY_CONTEXT",
    "ENVELOPE_MAX_AGE_MS", "ENVELOPE_BODY_VERSION", "MAX_ENVELOPE_BYTES", "MAX_CLOCK_SKEW_MS", "PAYLOAD_LIMITS", "AUDIENCES", "OFFER_SCOPES",
    "JOB_KINDS", "BACKEND_IDS", "BACKEND_CLASSES", "SIZE_CLASSES", "TERMINAL_STATES", "ERROR_STATUS", "GRANT_CONTEXT", "GRANT_MAX_AGE_MS",
    "GRANT_SIGNED_FIELDS", "CLOCK_SKEW_WARN_MS", "CLOCK_ATTRIBUTION_MS", "SUCCESSION_CONTEXT", "MAX_SUCCESSION_CHAIN", "RETIREMENT_WINDOW_MS",
    "RESERVED_PURPOSE", "MAX_PURPOSES", "DEFAULT_ROUTING", "UPDATE_OFFER_SINCE", "MUST_IDS",
  ]) {
    if (p[name] === undefined) throw new Error(`no ${name}`);
    put(name, p[name]);
  }
  put("SIZE_CLASS_LIMITS", finite(p.SIZE_CLASS_LIMITS));
  for (const c of p.SIZE_CLASSES) put(`sizeClassCeiling ${c}`, finite({ c: p.sizeClassCeiling(c) }).c);
  for (const n of [0, 1, 4000, 4001, 64000, 64001, 1000000, 4000000]) put(`sizeClassOf ${n}`, p.sizeClassOf(n));
  for (const [name, read] of Object.entries(enums)) put(`enum ${name}`, read.options);
  put("MatchRefusal ids with a message", Object.keys(p.REFUSAL_MESSAGES));
  put("RefusalReason ids with a text", Object.keys(p.REFUSAL_TEXT));
  for (const id of p.BACKEND_IDS) {
    const { label, ...row } = p.BACKENDS[id];
    put(`backend ${id}`, row);
  }
  for (const s of p.JobState.options) put(`isTerminal ${s}`, p.isTerminal(s));
  for (const from of p.JobState.options) for (const to of p.JobState.options) put(`canTransition ${from} -> ${to}`, p.canTransition(from, to));
  for (const kind of ["llm.generate", "llm.chat", "llm.embed", "", "LLM.CHAT"]) put(`isJobKind ${JSON.stringify(kind)}`, p.isJobKind(kind));
  for (const id of p.MUST_IDS) {
    const m = p.MUSTS[id];
    put(`MUST ${id}`, { id: m.id, enforcedBy: m.enforcedBy, verifiedBy: p.kindsOf(m), source: m.source });
  }
  for (const proof of ["conformance", "adversarial", "construction", "operator"]) put(`MUSTs verified by ${proof}`, p.mustsVerifiedBy(proof));
  const by = {};
  for (const id of p.MUST_IDS) (by[p.MUSTS[id].enforcedBy] ??= []).push(id);
  put("MUSTs by enforcer", by);
  for (const [version, offer] of [
    ["0.1.0", "0.1.1"], ["0.1.1", "0.1.1"], ["0.1.2", "0.1.1"], ["0.1.0-alpha.82", "0.1.1"], ["0.1.0-alpha.83", "0.1.1"], ["0.1.0-alpha.100", "0.1.1"],
    ["0.1.0-beta", "0.1.1"], ["dev", "0.1.1"], ["0.1.0", "latest"], ["0.1.0", "^0.1.1"], ["0.1.0", "0.1.1-rc.1"], ["0.1.0+build", "0.1.1"], ["v0.1.0", "0.1.1"],
  ]) put(`updateOffer ${version} offered ${offer}`, p.updateOfferFor({ offer, daemonVersion: version }));
  for (const [version, floor] of [["0.1.0", "0.1.1"], ["0.1.1", "0.1.1"], ["0.1.1-rc.1", "0.1.1"], ["dev", "0.1.1"], ["0.1.1", "none"], ["1.0.0", "0.9.9"]]) {
    put(`daemonFloor ${version} against ${floor}`, p.checkDaemonFloor({ daemonVersion: version, floor, upgradeCommand: "x" })?.error ?? null);
  }
  write("limits.json", { about: "Exported constants, enumerations and tables as data; the text \"Infinity\" stands for no upper bound, and verifiedBy is always given as a list." }, cases);
}

function recordVersion() {
  const cases = [];
  // What was version "0" there is "2" here, and the other way round.
  const asTwo = (value) => JSON.parse(JSON.stringify(value ?? null).replaceAll(/"([^"]*)"/g, (m, t) => JSON.stringify(({ 0: "2", " 0": " 2", "0 ": "2 ", 2: "0", "00": "02" })[t] ?? t)).replaceAll('"protocolVersion":0', '"protocolVersion":2'));
  const answer = (r) => r === null ? null : {
    error: r.error, supported: r.supported, minimum: r.minimum, messagePresent: r.message !== "",
    advises: /Upgrade the daemon/.test(r.message) ? "upgrade the caller" : /server needs upgrading/.test(r.message) ? "upgrade this server" : "neither",
  };
  const names = (body, r) => {
    const d = body?.protocolVersion;
    return r === null || typeof d !== "string" || d.length <= 1 ? false : r.message.includes(d);
  };
  const seen = new Set();
  for (const c of recorded("version.json").cases) {
    const body = c.bodyAbsent || c.body === undefined ? undefined : asTwo(c.body);
    let name = c.name.replace("declared as 0", "declared as 2").replace(/"( ?)(0|00|2)( ?)"/, (m, a, d, b) => `"${a}${d === "2" ? "0" : d === "00" ? "02" : "2"}${b}"`);
    while (seen.has(name)) name += " again";
    seen.add(name);
    if (c.kind === "checkProtocolVersion") {
      const r = p.checkProtocolVersion(body);
      const result = answer(r);
      if (result !== null) result.namesDeclaredVersion = names(body, r);
      cases.push({ name, kind: c.kind, ...(c.bodyAbsent ? { bodyAbsent: true } : { body }), result });
      continue;
    }
    const query = c.query?.replaceAll(/=(\+?)0(?=&|$)/g, "=$1 2").replaceAll("=%30", "=%32").replaceAll(" 2", "2");
    const declared = p.declaredVersion({ body, ...given("query", query === undefined ? undefined : new URLSearchParams(query)) });
    cases.push({ name, kind: "declaredVersion", ...(body === undefined ? {} : { body }), ...given("query", query), ...(declared === undefined ? { absent: true } : { declared }), accepted: p.checkProtocolVersion({ protocolVersion: declared }) === null });
  }
  write("version.json", {
    about: "The version handshake: what a request declares, and whether it is accepted or refused with which machine fields.",
    fields: "result null means accepted; advises tells which side the refusal's message sends to upgrade; accepted on a declared case is the outcome of checking the declared value.",
    supported: p.SUPPORTED_PROTOCOL_VERSIONS, minimum: p.MIN_PROTOCOL_VERSION,
  }, cases);
}

// ---- grants and successions -----------------------------------------------------

function recordGrant() {
  const cases = [];
  const claims = { grantId: "grant_1", jobId: "job_1", site: idOf("site"), user: "alice", owner: "bob", purpose: "default", kind: "llm.chat", service: "local", issuedAt: 1750000000000 };
  const texts = [
    ["plain", claims],
    ["members in another order", Object.fromEntries(Object.entries(claims).reverse())],
    ["quotes, backslash and controls", { ...claims, user: "a\"b\\c\n\t\u0001\u007f" }],
    ["letters beyond ASCII", { ...claims, user: "caf\u00e9 \u{1f600} \u2028" }],
    ["lone surrogate", { ...claims, user: "\ud800" }],
    ["markup", { ...claims, user: "<a href='x'>&</a>" }],
    ["solidus", { ...claims, user: "a/b" }],
    ["largest time", { ...claims, issuedAt: 9007199254740991 }],
    ["a text that looks like a number", { ...claims, user: "1750000000000" }],
    ["long text", { ...claims, user: "u".repeat(300) }],
  ];
  for (const [name, c] of texts) {
    const signed = p.signGrant(keys.other, c);
    cases.push({ name: `statement ${name}`, kind: "grantStatement", claims: c, statementB64: b64(p.grantStatement(c)) });
    cases.push({ name: `sign ${name}`, kind: "signGrant", key: "other", claims: c, signature: signed.signature });
  }
  cases.push({ name: "statement with a signature besides", kind: "grantStatement", claims: { ...claims, signature: "x" }, statementB64: b64(p.grantStatement({ ...claims, signature: "x" })) });
  const good = p.signGrant(keys.other, claims);
  const now = claims.issuedAt;
  const check = (name, changes = {}) => {
    const { grant: changed, ...rest } = changes;
    const c = { grant: changed ?? good, controlPlane: "other", owner: "bob", jobId: "job_1", now, ...rest };
    const controlPlanePublic = keys[c.controlPlane]?.identityPublic ?? c.controlPlane;
    let result;
    try {
      result = p.verifyGrant({ grant: c.grant, controlPlanePublic, owner: c.owner, jobId: c.jobId, now: c.now, ...given("maxAgeMs", c.maxAgeMs) });
    } catch {
      result = { throws: true };
    }
    cases.push({ name: `verify ${name}`, kind: "verifyGrant", ...c, result });
  };
  check("good");
  for (const [name, ms] of [["119999 ms old", 119999], ["120000 ms old", 120000], ["120001 ms old", 120001], ["29999 ms ahead", -29999], ["30000 ms ahead", -30000], ["30001 ms ahead", -30001], ["a day old", 86400000]]) check(name, { now: now + ms });
  check("older than a chosen age", { now: now + 1001, maxAgeMs: 1000 });
  check("as old as a chosen age", { now: now + 1000, maxAgeMs: 1000 });
  check("another owner", { owner: "alice" });
  check("another job", { jobId: "job_2" });
  check("another owner and another job", { owner: "alice", jobId: "job_2" });
  check("another owner and old", { owner: "alice", now: now + 999999 });
  check("old and badly signed", { now: now + 999999, grant: { ...good, signature: "AAAA" } });
  check("another key", { controlPlane: "mallory" });
  check("a key that is none", { controlPlane: "zzz" });
  check("an empty key", { controlPlane: "" });
  for (const name of Object.keys(claims)) {
    if (name === "issuedAt") check("issuedAt changed by one", { grant: { ...good, issuedAt: good.issuedAt + 1 } });
    else check(`${name} changed`, { grant: { ...good, [name]: good[name] + "x" }, ...(name === "owner" ? { owner: "bobx" } : name === "jobId" ? { jobId: "job_1x" } : {}) });
  }
  check("purpose and kind exchanged", { grant: { ...good, purpose: good.kind, kind: good.purpose } });
  check("owner and user exchanged", { grant: { ...good, owner: good.user, user: good.owner }, owner: "alice" });
  check("signature empty", { grant: { ...good, signature: "" } });
  check("signature cut", { grant: { ...good, signature: good.signature.slice(0, -1) } });
  check("signature padded", { grant: { ...good, signature: good.signature + "==" } });
  check("signature in the standard alphabet", { grant: { ...good, signature: good.signature.replaceAll("-", "+").replaceAll("_", "/") } });
  check("signature of another statement", { grant: { ...good, signature: p.signWith(keys.other, Buffer.from("x")) } });
  check("signed by the site", { grant: p.signGrant(keys.site, claims) });
  check("a member that is not signed", { grant: { ...good, zzz: 1 } });
  write("grant.json", {
    about: "The bytes that a control plane signs in a grant, its signatures, and the verdicts of a device; result null means accepted.",
    fields: "key and controlPlane name an entry of keys.json (controlPlane may also be literal text); statementB64 is standard base64.",
    context: p.GRANT_CONTEXT, signedFields: p.GRANT_SIGNED_FIELDS, maxAgeMs: p.GRANT_MAX_AGE_MS,
  }, cases);
}

function recordSuccession() {
  const cases = [];
  const ids = Object.fromEntries(Object.keys(keys).map((k) => [k, idOf(k)]));
  const sign = (previous, next) => p.signSuccession(keys[previous], p.publicIdentityOf(keys[next]));
  for (const [from, to] of [["site", "device"], ["device", "site"], ["site", "site"]]) {
    cases.push({ name: `statement ${from} to ${to}`, kind: "successionStatement", from: ids[from], to: ids[to], statementB64: b64(p.successionStatement(ids[from], ids[to])) });
    cases.push({ name: `sign ${from} to ${to}`, kind: "signSuccession", previous: from, next: to, link: sign(from, to) });
  }
  const link = sign("site", "device");
  const verify = (name, l, to = ids.device) => cases.push({ name: `link ${name}`, kind: "verifyLink", link: l, to, ok: p.verifyLink(l, to) });
  verify("good", link);
  verify("to another key", link, ids.other);
  verify("to an empty key id", link, "");
  verify("to itself", sign("site", "site"), ids.site);
  verify("signature of another key", { ...link, signature: sign("mallory", "device").signature });
  verify("identity of another key", { ...link, identity: p.publicIdentityOf(keys.mallory) });
  verify("turned around", sign("device", "site"));
  verify("encryption key exchanged", { ...link, identity: { ...link.identity, encryption: keys.mallory.encryptionPublic } });
  verify("signature empty", { ...link, signature: "" });
  verify("signature padded", { ...link, signature: link.signature + "==" });
  verify("identity not a key", { ...link, identity: { ...link.identity, identity: "zzz" } });
  // A chain of any length needs more keys than four: they are made from a seed.
  const made = (i) => {
    const seed = (what) => crypto.createHash("sha256").update(`succession ${what} ${i}`).digest();
    const priv = (prefix, s) => crypto.createPrivateKey({ key: Buffer.concat([Buffer.from(prefix, "hex"), s]), format: "der", type: "pkcs8" });
    const identity = priv("302e020100300506032b657004220420", seed("identity"));
    const encryption = priv("302e020100300506032b656e04220420", seed("encryption"));
    const raw = (k) => crypto.createPublicKey(k).export({ format: "jwk" }).x;
    const encryptionPublic = raw(encryption);
    return {
      version: 1, identityPublic: raw(identity), identityPrivate: identity.export({ type: "pkcs8", format: "der" }).toString("base64"),
      encryptionPublic, encryptionPrivate: encryption.export({ type: "pkcs8", format: "der" }).toString("base64"),
      encryptionSig: crypto.sign(null, Buffer.from(`${p.ENCRYPTION_KEY_CONTEXT}:${encryptionPublic}`), identity).toString("base64url"), createdAt: 1,
    };
  };
  const row = Array.from({ length: 66 }, (_, i) => made(i));
  const rowId = (i) => p.keyId(row[i].identityPublic);
  const rowLink = (i) => p.signSuccession(row[i], p.publicIdentityOf(row[i + 1]));
  const walk = (name, current, chain, approved) => {
    const asked = [];
    const r = p.walkSuccession({ current, chain, approved: (id) => (asked.push(id), approved.includes(id)) });
    cases.push({ name: `walk ${name}`, kind: "walkSuccession", current, chain, approved, asked, result: r });
  };
  const links = (from, to) => Array.from({ length: to - from }, (_, i) => rowLink(from + i));
  walk("no chain", rowId(0), [], [rowId(0)]);
  walk("one link, approved", rowId(1), links(0, 1), [rowId(0)]);
  walk("one link, not approved", rowId(1), links(0, 1), []);
  walk("one link, only the current key approved", rowId(1), links(0, 1), [rowId(1)]);
  walk("three links, the oldest approved", rowId(3), links(0, 3), [rowId(0)]);
  walk("three links, the middle approved", rowId(3), links(0, 3), [rowId(1)]);
  walk("three links, two approved", rowId(3), links(0, 3), [rowId(0), rowId(2)]);
  walk("three links, the other way round", rowId(3), links(0, 3).reverse(), [rowId(0)]);
  walk("three links, the middle one missing", rowId(3), [rowLink(0), rowLink(2)], [rowId(0)]);
  walk("three links, the newest broken", rowId(3), [rowLink(0), rowLink(1), { ...rowLink(2), signature: "AAAA" }], [rowId(0), rowId(2)]);
  walk("three links, the oldest broken, a newer one approved", rowId(3), [{ ...rowLink(0), signature: "AAAA" }, rowLink(1), rowLink(2)], [rowId(1)]);
  walk("three links, the oldest broken and approved", rowId(3), [{ ...rowLink(0), signature: "AAAA" }, rowLink(1), rowLink(2)], [rowId(0)]);
  walk("a link for another current key", rowId(5), links(0, 3), [rowId(0)]);
  walk("a link to itself", rowId(0), [p.signSuccession(row[0], p.publicIdentityOf(row[0]))], [rowId(0)]);
  walk("the same link twice", rowId(1), [rowLink(0), rowLink(0)], [rowId(7)]);
  walk("64 links, the oldest approved", rowId(64), links(0, 64), [rowId(0)]);
  walk("64 links, none approved", rowId(64), links(0, 64), []);
  walk("65 links", rowId(65), links(0, 65), [rowId(0)]);
  write("succession.json", {
    about: "How a site's key follows another: the signed bytes, single links, and walks along a chain (oldest link first) from the current key to one that is approved.",
    fields: "previous and next name an entry of keys.json; asked are the key ids of which the walk asked whether they are approved, in order; a result has from when an approved key was found, else failure.",
    context: p.SUCCESSION_CONTEXT, maxChain: p.MAX_SUCCESSION_CHAIN, retirementWindowMs: p.RETIREMENT_WINDOW_MS,
  }, cases);
}

// ---- envelopes --------------------------------------------------------------------

async function recordEnvelope() {
  await p.cryptoReady();
  const old = recorded("envelope.json").cases;
  const cases = [];
  const hash = (x) => crypto.createHash("sha256").update(x).digest("hex");
  for (const c of old.filter((c) => c.kind === "seal")) {
    const plaintext = expand(c.plaintext);
    randomness(c.ephemeralSecretHex);
    const envelope = await p.seal({
      senderKeys: keys[c.sender], recipientEncryptionPublic: keys[c.recipient].encryptionPublic, context: c.context, plaintext,
    });
    if (randomness() !== 0) throw new Error("the sealer drew from another source");
    const body = p.envelopeSignedBody(c.context, plaintext);
    const signature = p.signWith(keys[c.sender], Buffer.from(body));
    const inner = p.encodeEnvelopeInner(body, signature);
    const { ciphertext, ...labels } = envelope;
    const out = {
      name: c.name, kind: "seal", sender: c.sender, recipient: c.recipient, context: c.context, plaintext: c.plaintext,
      ephemeralSecretHex: c.ephemeralSecretHex, signature, bodySha256: hash(Buffer.from(body)), bodyBytes: body.length, innerSha256: hash(inner),
      ciphertextSha256: hash(ciphertext), ciphertextChars: ciphertext.length,
    };
    const agrees = ["signature", "bodySha256", "bodyBytes", "innerSha256", "ciphertextSha256", "ciphertextChars"].every((n) => out[n] === c[n]);
    cases.push({ ...out, ...(c.envelopeWithoutCiphertext ? { envelopeWithoutCiphertext: labels } : { body: Buffer.from(body).toString("utf8"), inner, envelope }), sameAsVersion0: agrees });
  }
  for (const c of old.filter((c) => c.kind === "open")) {
    const recipientKeys = typeof c.recipientKeys === "string" ? keys[c.recipientKeys] : c.recipientKeys;
    let result;
    try {
      result = await p.open({ recipientKeys, senderIdentityPublic: keys[c.senderIdentity]?.identityPublic ?? c.senderIdentity, envelope: c.envelope, expected: c.expected });
    } catch {
      result = { ok: false, throws: true };
    }
    const agrees = same(result.throws ? { ok: false, throws: true } : result, c.result.throws ? { ok: false, throws: true } : c.result);
    cases.push({ ...c, result, sameAsVersion0: agrees });
  }
  // Those that agree are told by their number; a few of each kind stay as cases.
  const kept = [];
  const count = {};
  for (const c of cases) {
    const group = c.sameAsVersion0 ? `${c.kind} ${c.result?.ok ?? ""} ${c.result?.reason ?? ""}` : "differs";
    count[group] = (count[group] ?? 0) + 1;
    if ((group === "differs" || count[group] <= 4) && JSON.stringify(c).length < 8000) kept.push(c);
  }
  write("envelope.json", {
    about: "The envelopes of version 0's recording, sealed and opened again by the programs of version \"2\": a few that answer as before, and every one that does not.",
    fields: "As in the recording of version 0; sameAsVersion0 says whether the answer is the one recorded there.",
    ran: cases.length, same: cases.filter((c) => c.sameAsVersion0).length, envelopeMaxAgeMs: p.ENVELOPE_MAX_AGE_MS,
  }, kept);
  console.log(`envelope.json: ${cases.length} ran, ${cases.filter((c) => !c.sameAsVersion0).length} differ from version 0`);
}

recordSchemas();
recordAudience();
recordCost();
recordProvenance();
recordLimits();
recordVersion();
recordGrant();
recordSuccession();
await recordEnvelope();

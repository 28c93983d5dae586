// Shows a site of Allod to the certification kit of the AI contract. The kit
// drives real devices against it; what the kit wants of the app goes through
// the app interface (docs/app-api.md), and over real HTTP.
//
// ALLOD_ORIGIN is where the site serves and ALLOD_APP_KEY the app's key.
import process from "node:process";

const origin = process.env.ALLOD_ORIGIN;
const appKey = process.env.ALLOD_APP_KEY;

// The kit asks for a clean slate before each check, and a site forgets nothing
// on demand. So each check gets people whom the site has never seen.
let round = 0;
let people = new Set();
let jobs = new Set();
const suffix = () => `-${round}`;
function person(name) {
  const id = name + suffix();
  people.add(id);
  return id;
}
const nameOf = (id) => (id.endsWith(suffix()) ? id.slice(0, -suffix().length) : id);

async function app(method, path, body) {
  const response = await fetch(origin + path, {
    method,
    headers: { authorization: `Bearer ${appKey}`, ...(body && { "content-type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
  return answer;
}

export default {
  name: "allod site serve",
  origin,
  // As the site is started, see certify_test.go.
  leaseMs: 2000,
  ttlMs: 1500,

  fetch: (request) => fetch(request),
  ownerId: (name) => Promise.resolve(person(name)),

  async enqueue({ owner, audienceAllow, ...rest }) {
    const job = await app("POST", "/v1/jobs", {
      ...rest,
      owner: person(owner),
      ...(audienceAllow && { allowedOwners: audienceAllow.map(person) }),
    });
    jobs.add(job.id);
    return { id: job.id };
  },

  async approvePairing(userCode, owner) {
    await app("POST", `/v1/pairings/${encodeURIComponent(userCode)}/approve`, { owner: person(owner) });
  },

  async revokeRunner(runnerId) {
    await app("POST", `/v1/runners/${encodeURIComponent(runnerId)}/revoke`);
  },

  async cancelJob(jobId) {
    await app("POST", `/v1/jobs/${encodeURIComponent(jobId)}/cancel`);
  },

  // A job that is not there is an error: the kit would read null as any state
  // that it hopes not to see.
  async job(jobId) {
    const { state, outcome, provenance } = await app("GET", `/v1/jobs/${encodeURIComponent(jobId)}`);
    return {
      state,
      ...(outcome && { outcome }),
      ...(provenance && { provenance: { ...provenance, runnerOwner: nameOf(provenance.runnerOwner) } }),
    };
  },

  async runnerAvailability({ kind, owner, audience }) {
    const query = new URLSearchParams({ kind, owner: person(owner), ...(audience && { audience }) });
    const { available, reason } = await app("GET", `/v1/availability?${query}`);
    return { available, ...(reason && { reason }) };
  },

  async sweep() {
    await app("POST", "/v1/sweep");
  },

  async reset() {
    for (const id of jobs) {
      const { state } = await app("GET", `/v1/jobs/${encodeURIComponent(id)}`);
      if (["queued", "claimed", "running"].includes(state)) await this.cancelJob(id);
    }
    for (const owner of people) {
      const { runners } = await app("GET", `/v1/runners?${new URLSearchParams({ owner })}`);
      for (const runner of runners) if (!runner.revokedAt) await this.revokeRunner(runner.id);
    }
    round++;
    people = new Set();
    jobs = new Set();
  },
};

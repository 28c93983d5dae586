-- +goose Up

-- One row a job. What is sealed lies in job_content, so that rows stay short and
-- a claim reads few pages.
CREATE TABLE jobs (
    seq              INTEGER PRIMARY KEY, -- order of arrival
    id               TEXT    NOT NULL UNIQUE,
    kind             TEXT    NOT NULL,
    owner            TEXT    NOT NULL,
    audience         TEXT    NOT NULL,
    allowed_owners   TEXT,                -- JSON list; NULL when the site named nobody
    size_class       TEXT    NOT NULL,
    state            TEXT    NOT NULL,
    reason           TEXT    NOT NULL DEFAULT '',
    attempts         INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    claimable_at     INTEGER,             -- NULL while it waits for other jobs
    ttl_ms           INTEGER NOT NULL,
    deadline_at      INTEGER,             -- NULL when the site set none
    lease_id         TEXT,                -- NULL unless claimed or running
    lease_runner     TEXT,
    lease_expires_at INTEGER,
    lease_request    BLOB,                -- digest of the request that made the grant
    done_lease       TEXT,                -- the grant under which it ended
    done_runner      TEXT,
    done_at          INTEGER,             -- NULL until it is over
    has_content      INTEGER NOT NULL DEFAULT 1
) STRICT;

-- Each of these answers one question of the sweep, the heartbeat or the quota.
CREATE INDEX jobs_lapse  ON jobs (lease_expires_at) WHERE lease_id IS NOT NULL;
CREATE INDEX jobs_holder ON jobs (lease_runner, id) WHERE lease_id IS NOT NULL;
CREATE INDEX jobs_ttl    ON jobs (claimable_at + ttl_ms) WHERE state = 'queued' AND claimable_at IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline_at) WHERE state = 'queued' AND deadline_at IS NOT NULL;
CREATE INDEX jobs_done    ON jobs (done_at) WHERE done_at IS NOT NULL;
CREATE INDEX jobs_content ON jobs (done_at) WHERE done_at IS NOT NULL AND has_content = 1;

-- How many unfinished jobs each owner has, so that a quota costs one look-up.
CREATE TABLE owners (
    owner TEXT    NOT NULL PRIMARY KEY,
    open  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sealed material. Both halves are removed before the row of the job is.
CREATE TABLE job_content (
    seq         INTEGER PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
    payload     TEXT, -- a sealed envelope as JSON, from the site to itself
    result      TEXT, -- a sealed envelope as JSON, from the device to the site
    device      TEXT, -- the public identity that signed the result, as JSON
    disposition TEXT
) STRICT;

-- The queues. A job that waits stands in one queue for each way of reaching it:
-- 'own' by its owner, 'open' for every other owner, or 'listed' by each owner the
-- site named. A claim reads the heads of the queues that fit the claimer and
-- never a job that does not.
CREATE TABLE queue (
    kind         TEXT    NOT NULL,
    reach        TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    claimable_at INTEGER NOT NULL,
    seq          INTEGER NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    PRIMARY KEY (kind, reach, name, claimable_at, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX queue_job ON queue (seq);

-- What a job waits for. A dependency may be named before it exists.
CREATE TABLE dependencies (
    seq   INTEGER NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    on_id TEXT    NOT NULL,
    PRIMARY KEY (seq, on_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_on ON dependencies (on_id);

-- Devices that gave a job back as refused and are not offered it again.
CREATE TABLE refusals (
    runner_id TEXT    NOT NULL,
    seq       INTEGER NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    PRIMARY KEY (runner_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX refusals_job ON refusals (seq);

-- Requests that were granted something. A repeat of one gets what is left of its
-- grants and nothing new.
CREATE TABLE claims (
    runner_id TEXT    NOT NULL,
    request   BLOB    NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (runner_id, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX claims_at ON claims (at);

CREATE TABLE runners (
    id               TEXT    NOT NULL PRIMARY KEY,
    owner            TEXT    NOT NULL,
    key_id           TEXT    NOT NULL, -- fingerprint of the device's identity
    device           TEXT    NOT NULL, -- its public identity as JSON
    label            TEXT    NOT NULL,
    platform         TEXT    NOT NULL,
    version          TEXT    NOT NULL,
    capabilities     TEXT    NOT NULL, -- JSON list
    paused           INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    seen_at          INTEGER NOT NULL, -- by the site's clock
    issued_at        INTEGER NOT NULL DEFAULT 0, -- newest heartbeat, by the device's clock
    revoked_at       INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX runners_owner ON runners (owner, created_at);
CREATE INDEX runners_key   ON runners (key_id) WHERE revoked_at IS NULL;
CREATE INDEX runners_live  ON runners (seen_at) WHERE revoked_at IS NULL;

CREATE TABLE pairings (
    device_code  BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the code; the code itself is not kept
    user_code    TEXT    NOT NULL UNIQUE,
    key_id       TEXT    NOT NULL,
    device       TEXT    NOT NULL,
    label        TEXT    NOT NULL,
    platform     TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    capabilities TEXT    NOT NULL,
    address      TEXT    NOT NULL, -- where the start came from
    state        TEXT    NOT NULL, -- pending, denied, approved, replaced
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    approved_at  INTEGER,
    runner_id    TEXT,
    collected    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX pairings_key ON pairings (key_id, state);
CREATE INDEX pairings_expiry ON pairings (expires_at);

-- The site's own keys, public halves only. One is current; the others still open
-- what was sealed to them.
CREATE TABLE site_keys (
    key_id     TEXT    NOT NULL PRIMARY KEY,
    identity   TEXT    NOT NULL, -- public identity as JSON
    added_at   INTEGER NOT NULL,
    is_current INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX site_keys_current ON site_keys (is_current) WHERE is_current = 1;

-- Rows that could not be read. They are named here and do not run; the row
-- itself stays where it was.
CREATE TABLE set_aside (
    what TEXT    NOT NULL, -- job, runner, pairing or key
    id   TEXT    NOT NULL,
    why  TEXT    NOT NULL,
    at   INTEGER NOT NULL,
    PRIMARY KEY (what, id)
) STRICT, WITHOUT ROWID;

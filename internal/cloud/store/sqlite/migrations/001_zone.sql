-- +goose Up

-- Nothing here refers to anything by a foreign key: what belongs to what is
-- decided by the packages beside the store, in the transaction that writes it.
-- Instants are Unix milliseconds. Texts are compared by bytes.

CREATE TABLE organizations (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE operators (
    id           TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    installation INTEGER NOT NULL, -- 1 for who administers the whole controller
    generation   INTEGER NOT NULL, -- of the operator's tokens
    disabled     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
    organization TEXT NOT NULL,
    operator     TEXT NOT NULL,
    role         TEXT NOT NULL,
    PRIMARY KEY (organization, operator)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_operator ON members (operator, organization);

CREATE TABLE login_links (
    code       BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the code; the code itself is not kept
    operator   TEXT    NOT NULL,
    generation INTEGER NOT NULL, -- the operator's when it was made
    made_by    TEXT    NOT NULL, -- an operator, '' for nobody with a token
    made_by_generation INTEGER NOT NULL, -- theirs when it was made
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL -- 0 until then
) STRICT, WITHOUT ROWID;
CREATE INDEX login_links_expiry ON login_links (expires_at, code);

CREATE TABLE clusters (
    id           TEXT    NOT NULL PRIMARY KEY,
    organization TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    revision     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX clusters_organization ON clusters (organization, id);

-- Beside the clusters, so that no change of a cluster reaches it.
CREATE TABLE runtimes (
    cluster    TEXT    NOT NULL PRIMARY KEY,
    phase      TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    changed_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    id           TEXT    NOT NULL PRIMARY KEY,
    cluster      TEXT    NOT NULL,
    organization TEXT    NOT NULL,
    hostname     TEXT    NOT NULL,
    joined_at    INTEGER NOT NULL,
    removed_at   INTEGER NOT NULL -- 0 while it is one
) STRICT, WITHOUT ROWID;
CREATE INDEX nodes_cluster ON nodes (cluster, id);

-- What each node said last. It changes every few seconds, so it has a table of its
-- own: a commit writes the pages that changed, and pages of reports hold nothing
-- else. Rows are long, so they hang on a number and not on the name.
CREATE TABLE reports (
    node        TEXT    NOT NULL PRIMARY KEY,
    accepted_at INTEGER NOT NULL,
    generation  INTEGER NOT NULL, -- of the credential that it came with
    report      BLOB    NOT NULL, -- JSON
    receipt     BLOB    NOT NULL  -- JSON
) STRICT;

CREATE TABLE credentials (
    node       TEXT    NOT NULL,
    purpose    TEXT    NOT NULL,
    hash       BLOB    UNIQUE,   -- SHA-256 of the bearer; NULL for none
    generation INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    issued_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    rotate     INTEGER NOT NULL, -- 1 when an operator asked for a new bearer
    request    BLOB,             -- digest of the request that made it by rotation; NULL for none
    receipt    BLOB    NOT NULL, -- the answer to that, JSON
    PRIMARY KEY (node, purpose)
) STRICT, WITHOUT ROWID;

CREATE TABLE invitations (
    code       BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the code
    cluster    TEXT    NOT NULL,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    enrollment TEXT    NOT NULL -- that used it, '' until then
) STRICT, WITHOUT ROWID;
CREATE INDEX invitations_expiry ON invitations (expires_at, code);

CREATE TABLE enrollments (
    id           TEXT    NOT NULL PRIMARY KEY,
    digest       BLOB,             -- NULL for none
    node         TEXT    NOT NULL,
    proposal     BLOB    NOT NULL, -- JSON
    answer       BLOB    NOT NULL, -- JSON, byte for byte as it was sent
    committed_at INTEGER NOT NULL
) STRICT;

CREATE TABLE services (
    id           TEXT    NOT NULL PRIMARY KEY,
    organization TEXT    NOT NULL,
    cluster      TEXT    NOT NULL, -- '' for none yet
    name         TEXT    NOT NULL,
    revision     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX services_organization ON services (organization, id);

CREATE TABLE machines (
    service      TEXT    NOT NULL PRIMARY KEY,
    organization TEXT    NOT NULL,
    hash         BLOB    UNIQUE, -- SHA-256 of the bearer; NULL once revoked
    generation   INTEGER NOT NULL,
    authority    TEXT    NOT NULL, -- the grant
    state        TEXT    NOT NULL,
    changed_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was answered to mutations.
CREATE TABLE receipts (
    scope  TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    input  BLOB,             -- digest of the method and the request; NULL for none
    answer BLOB    NOT NULL, -- JSON
    at     INTEGER NOT NULL,
    PRIMARY KEY (scope, id)
) STRICT;
CREATE INDEX receipts_age ON receipts (at, scope, id);

CREATE TABLE audit (
    seq          INTEGER PRIMARY KEY, -- from 1 and without gaps, since nothing is removed
    at           INTEGER NOT NULL,
    actor        TEXT    NOT NULL,
    organization TEXT    NOT NULL, -- '' for the installation
    action       TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    detail       TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_organization ON audit (organization, seq);

-- Rows that could not be read. They are named here; the row itself stays where it
-- was.
CREATE TABLE set_aside (
    what TEXT    NOT NULL, -- the kind of record, as in node
    id   TEXT    NOT NULL,
    why  TEXT    NOT NULL,
    at   INTEGER NOT NULL, -- when it was first met
    PRIMARY KEY (what, id)
) STRICT, WITHOUT ROWID;

-- +goose Up

-- The keys by which apps are known. A removed one keeps its row, so that the same
-- key is never taken again.
CREATE TABLE app_keys (
    seq        INTEGER PRIMARY KEY,  -- order of arrival
    id         TEXT    NOT NULL UNIQUE,
    hash       BLOB    NOT NULL UNIQUE, -- SHA-256 of the key's text; the text is not kept
    name       TEXT    NOT NULL,
    scopes     TEXT    NOT NULL, -- words with spaces between them
    owner      TEXT,             -- NULL when the key is for everybody
    created_at INTEGER NOT NULL,
    removed_at INTEGER           -- NULL until it is removed
) STRICT;
CREATE UNIQUE INDEX app_keys_name ON app_keys (name) WHERE removed_at IS NULL;

-- An app lists one owner's jobs, the newest first. The row's own number, which is
-- the order of arrival, follows in each entry by itself.
CREATE INDEX jobs_owner ON jobs (owner);

-- +goose Up

-- Links by which one owner decides one pairing. They are few and short-lived, so
-- none is kept for longer than its own time.
CREATE TABLE pairing_links (
    token      BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the token; the token itself is not kept
    owner      TEXT    NOT NULL,
    user_code  TEXT,             -- NULL where the person types the code on the page
    misses     INTEGER NOT NULL DEFAULT 0, -- typed codes under which no device waited
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER           -- NULL until a pairing was decided by it
) STRICT, WITHOUT ROWID;
CREATE INDEX pairing_links_owner  ON pairing_links (owner, created_at);
CREATE INDEX pairing_links_expiry ON pairing_links (expires_at);

-- +goose Up

-- One row a job that was reserved.
CREATE TABLE jobs (
    id      INTEGER PRIMARY KEY,
    lease   BLOB    NOT NULL UNIQUE, -- digest of server and lease
    job     TEXT    NOT NULL,
    server  TEXT    NOT NULL,
    owner   TEXT    NOT NULL,
    own     INTEGER NOT NULL,
    backend TEXT    NOT NULL,        -- the name that the agent's owner gave it
    model   TEXT    NOT NULL,
    cost    TEXT    NOT NULL,
    hold    INTEGER NOT NULL CHECK (hold >= 0)
) STRICT;

-- The ledger. Each entry carries the balances as they are after it, so that a
-- window costs two look-ups however much it holds.
CREATE TABLE entries (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,                           -- ledger time, in milliseconds; it never goes back
    wall       INTEGER NOT NULL,                           -- what the clock on the wall said
    what       TEXT    NOT NULL CHECK (what IN ('reserved', 'begun', 'settled', 'released', 'time')),
    job        INTEGER REFERENCES jobs (id),               -- NULL for 'time'
    prompt     INTEGER NOT NULL CHECK (prompt >= 0),       -- tokens
    completion INTEGER NOT NULL CHECK (completion >= 0),   -- tokens
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    estimated  INTEGER NOT NULL,                           -- 1 where the backend did not count
    -- Over all jobs and backends.
    open       INTEGER NOT NULL CHECK (open >= 0),         -- jobs that have not ended
    waiting    INTEGER NOT NULL CHECK (waiting >= 0),      -- others' jobs that are reserved and not begun
    begun      INTEGER NOT NULL CHECK (begun >= 0),        -- others' jobs that ever began
    begins     INTEGER NOT NULL,                           -- 1 where this entry raised begun
    -- Others' money on one metered backend; NULL where the entry moves none.
    metered    TEXT,
    reserved   INTEGER CHECK (reserved >= 0),
    spent      INTEGER CHECK (spent >= 0)                  -- ever
) STRICT;

CREATE UNIQUE INDEX entries_begun ON entries (job) WHERE what = 'begun';
CREATE UNIQUE INDEX entries_ended ON entries (job) WHERE what IN ('settled', 'released');
CREATE INDEX entries_begins ON entries (at) WHERE begins = 1;
CREATE INDEX entries_money ON entries (metered, at) WHERE metered IS NOT NULL;
CREATE INDEX entries_settled ON entries (wall) WHERE what = 'settled';

-- Rows are inserted and stay. The last two hold for INSERT OR REPLACE, which
-- deletes without a word.
-- +goose StatementBegin
CREATE TRIGGER jobs_stay BEFORE UPDATE ON jobs
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER jobs_remain BEFORE DELETE ON jobs
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_remain BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER jobs_once BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs WHERE id = NEW.id) OR EXISTS (SELECT 1 FROM jobs WHERE lease = NEW.lease)
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_once BEFORE INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries WHERE seq = NEW.seq)
    OR NEW.what = 'begun' AND EXISTS (SELECT 1 FROM entries WHERE job = NEW.job AND what = 'begun')
    OR NEW.what IN ('settled', 'released')
        AND EXISTS (SELECT 1 FROM entries WHERE job = NEW.job AND what IN ('settled', 'released'))
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- +goose StatementEnd

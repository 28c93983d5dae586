-- +goose Up

-- Who is told when a job ends. The list follows the configuration. A URL may hold
-- secrets, so only its digest is kept.
CREATE TABLE webhooks (
    id          TEXT    NOT NULL PRIMARY KEY,
    some_owners INTEGER NOT NULL, -- 1 when the owners in webhook_filters narrow it
    some_states INTEGER NOT NULL, -- 1 when the states there narrow it
    left_at     INTEGER           -- NULL while it is configured
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_filters (
    webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    what    TEXT NOT NULL, -- owner or state
    value   TEXT NOT NULL,
    PRIMARY KEY (webhook, what, value)
) STRICT, WITHOUT ROWID;

-- What is still to be told. An event says of a job only what its row says, and is
-- pointless once nobody can fetch the job, so it goes with the row.
CREATE TABLE webhook_outbox (
    seq        INTEGER NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
    webhook    TEXT    NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER NOT NULL,
    last_error TEXT, -- a word of ours for the latest attempt that failed
    PRIMARY KEY (seq, webhook)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_outbox_due ON webhook_outbox (webhook, next_at, seq);

-- Each end of a job sets done_at once, whatever ends it. A trigger misses none.
-- +goose StatementBegin
CREATE TRIGGER jobs_told AFTER UPDATE OF done_at ON jobs
WHEN new.done_at IS NOT NULL AND old.done_at IS NULL
BEGIN
    INSERT INTO webhook_outbox (seq, webhook, next_at)
    SELECT new.seq, w.id, new.done_at FROM webhooks w WHERE w.left_at IS NULL
    AND (w.some_owners = 0 OR EXISTS (SELECT 1 FROM webhook_filters f
        WHERE f.webhook = w.id AND f.what = 'owner' AND f.value = new.owner))
    AND (w.some_states = 0 OR EXISTS (SELECT 1 FROM webhook_filters f
        WHERE f.webhook = w.id AND f.what = 'state' AND f.value = new.state));
END;
-- +goose StatementEnd

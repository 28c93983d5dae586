-- +goose Up

-- Jobs that have ended and whose dependents are still to be settled. One commit
-- settles few of them, and this is where the next one goes on.
CREATE TABLE settling (
    n         INTEGER PRIMARY KEY, -- the newest is gone on with first
    on_id     TEXT    NOT NULL,
    after_seq INTEGER NOT NULL     -- dependents up to this one are settled
) STRICT;

-- Each start of a pairing asks how many codes wait, and which approvals nobody has
-- collected in time.
CREATE INDEX pairings_waiting ON pairings (expires_at) WHERE state = 'pending';
CREATE INDEX pairings_uncollected ON pairings (expires_at) WHERE state = 'approved' AND collected = 0;

-- +goose Up

-- A result lies in a table of its own. Beside the payload it would make that row
-- grow, and split the page that it lies in.
CREATE TABLE job_results (
    seq         INTEGER PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
    result      TEXT NOT NULL, -- a sealed envelope as JSON, from the device to the site
    device      TEXT,          -- the public identity that signed the result, as JSON
    disposition TEXT
) STRICT;
INSERT INTO job_results (seq, result, device, disposition)
SELECT seq, result, device, disposition FROM job_content WHERE result IS NOT NULL;
ALTER TABLE job_content DROP COLUMN result;
ALTER TABLE job_content DROP COLUMN device;
ALTER TABLE job_content DROP COLUMN disposition;

-- A reference makes each removal collect in a table of its own what it removes,
-- and one job in a queue is removed at each grant. So a trigger does what the
-- reference did.
CREATE TABLE queue_new (
    kind         TEXT    NOT NULL,
    reach        TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    claimable_at INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    PRIMARY KEY (kind, reach, name, claimable_at, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO queue_new SELECT kind, reach, name, claimable_at, seq FROM queue;
DROP TABLE queue;
ALTER TABLE queue_new RENAME TO queue;
CREATE INDEX queue_job ON queue (seq);
-- +goose StatementBegin
CREATE TRIGGER jobs_gone AFTER DELETE ON jobs
BEGIN
    DELETE FROM queue WHERE seq = old.seq;
END;
-- +goose StatementEnd

-- Owners without an unfinished job are removed when jobs are.
CREATE INDEX owners_idle ON owners (owner) WHERE open <= 0;

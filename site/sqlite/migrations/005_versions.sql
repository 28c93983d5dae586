-- +goose Up

-- The version of the protocol that a device spoke in its newest heartbeat; empty
-- until then.
ALTER TABLE runners ADD COLUMN protocol TEXT NOT NULL DEFAULT '';

-- Some versions have no word for public jobs, so these wait in queues of their
-- own: a device that cannot be told of them never meets one.
UPDATE queue SET reach = 'own-public' WHERE reach = 'own' AND seq IN (SELECT seq FROM jobs WHERE audience = 'public');
UPDATE queue SET reach = 'public' WHERE reach = 'open' AND seq IN (SELECT seq FROM jobs WHERE audience = 'public');

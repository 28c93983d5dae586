-- +goose Up
-- Rebuilding a table that others refer to works only while foreign keys are not enforced.
CREATE TABLE items_new(
	id    INTEGER PRIMARY KEY,
	name  TEXT NOT NULL UNIQUE,
	body  BLOB NOT NULL DEFAULT x'',
	color TEXT NOT NULL DEFAULT 'none'
) STRICT;
INSERT INTO items_new(id, name, body) SELECT id, name, body FROM items;
DROP TABLE items;
ALTER TABLE items_new RENAME TO items;

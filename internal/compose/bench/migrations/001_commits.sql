-- +goose Up

-- What single commits are timed with.
CREATE TABLE commits (
    id   INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

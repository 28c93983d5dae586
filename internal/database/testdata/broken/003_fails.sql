-- +goose Up
INSERT INTO counters VALUES ('half', 1);
INSERT INTO nowhere VALUES (1);

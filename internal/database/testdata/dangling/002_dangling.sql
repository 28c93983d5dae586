-- +goose Up
INSERT INTO parts(id, item) VALUES (1, 999999);

-- +goose Up
ALTER TABLE items ADD COLUMN color TEXT NOT NULL DEFAULT 'none';

-- +goose Up
-- +goose StatementBegin
CREATE TRIGGER count_items AFTER INSERT ON items BEGIN
	INSERT INTO counters VALUES ('items', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1;
END;
-- +goose StatementEnd

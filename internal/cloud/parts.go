package cloud

import (
	"context"
	"path/filepath"

	"github.com/allodhq/allod/internal/backup"
	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/cloud/token"
)

// Parts are what a backup of a controller's folder holds: a consistent copy of the
// store, which is made in the folder scratch, the authority, and the keys of tokens.
// Public certificates are not among them: they are got anew. The caller holds the
// lock of the folder. It returns the refusals of package database.
func Parts(ctx context.Context, data, scratch string) ([]backup.Part, error) {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(data, Database)})
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(scratch, Database)
	err = s.Backup(ctx, copied)
	if closing := s.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	parts := []backup.Part{{Name: Database, Path: copied}}
	for _, name := range []string{ca.File, token.OperatorFile, token.MachineFile} {
		parts = append(parts, backup.Part{Name: name, Path: filepath.Join(data, name)})
	}
	return parts, nil
}

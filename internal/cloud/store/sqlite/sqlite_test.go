package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/cloud/store/storetest"
)

var engine = storetest.Engine{
	Open: func(dir string) (store.Store, error) {
		return sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(dir, "zone.db")})
	},
	Durable: true, Beside: true,
}

func TestMain(m *testing.M) {
	storetest.Child(engine)
	os.Exit(m.Run())
}

func TestStore(t *testing.T) { storetest.Run(t, engine) }

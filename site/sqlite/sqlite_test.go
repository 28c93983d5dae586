package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
)

var engine = storetest.Engine{Open: open, Damage: spoil}

func open(dir string) (site.Store, error) {
	return sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(dir, "site.db")})
}

func spoil(dir string, id ai.JobID) error {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "site.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(`UPDATE jobs SET kind = 'nonsense' WHERE id = ?`, id)
	return err
}

func TestMain(m *testing.M) {
	storetest.Child(engine)
	os.Exit(m.Run())
}

func TestStore(t *testing.T) { storetest.Run(t, engine) }

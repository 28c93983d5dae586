package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
)

// ErrFolder refuses a folder that cannot be made or read.
var ErrFolder = refusal.NewKind("site-folder", 500,
	"The site's folder cannot be made or read.",
	"Give a folder that this user owns.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "A site's folder", Kinds: []*refusal.Kind{ErrFolder}}

// The files of a site's folder.
const (
	DatabaseFile = "site.db"
	KeyFile      = "site-keys.json"
)

// OpenSite opens a site that keeps everything in one folder: its database and,
// unless c.Keys is set, its key file. Both are made the first time, readable by
// this user only. c.Store is ignored, and closing the site closes the store. The
// errors are those of [Open], site.Open and the key files.
func OpenSite(ctx context.Context, dir string, c site.Config) (*site.Site, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, ErrFolder.Because(err)
	}
	if len(c.Keys) == 0 {
		path := filepath.Join(dir, KeyFile)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if _, err := site.CreateKeys(path, rand.Reader, time.Now()); err != nil {
				return nil, err
			}
		}
		var err error
		if c.Keys, err = site.LoadKeys(path); err != nil {
			return nil, err
		}
	}
	store, err := Open(ctx, Config{Path: filepath.Join(dir, DatabaseFile), Clock: c.Clock, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	c.Store, c.CloseStore = store, true
	s, err := site.Open(ctx, c)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

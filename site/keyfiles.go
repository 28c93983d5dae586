package site

import (
	"io"
	"time"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
)

// LoadKeys reads key files for Config.Keys: the current key first, then those
// that still open older material. The errors are named as docs/refusals.md lists
// them under key files.
func LoadKeys(current string, older ...string) ([]key.SiteKeys, error) {
	var keys []key.SiteKeys
	for _, path := range append([]string{current}, older...) {
		k, err := keyfile.Load[key.SiteRole](path)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// CreateKeys makes new keys from rand, writes them to a new key file that only
// this user can read, and returns their public side. It never writes over a
// file.
func CreateKeys(path string, rand io.Reader, now time.Time) (key.Site, error) {
	k, err := key.NewKeys[key.SiteRole](rand, now)
	if err != nil {
		return key.Site{}, err
	}
	if err := keyfile.Create(path, k); err != nil {
		return key.Site{}, err
	}
	return k.Identity(), nil
}

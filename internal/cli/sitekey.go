package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
)

// What the commands that speak to a site's folder refuse.
var (
	ErrNoSite = refusal.NewKind("site-absent", 404,
		"No site was ever started in this folder.",
		"Check the path, or start the site once with allod site serve.")
	ErrSiteSilent = refusal.NewKind("site-no-answer", 503,
		"A site or another command holds the folder and does not answer on its admin socket.",
		"Wait a moment if it is just starting or stopping; else look in its log.")
	ErrSiteRequest = refusal.NewKind("site-request", 400,
		"The running site does not know this request.",
		"Use the command of the same version as the site, or start the site again.")
)

func newSiteKey(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "key",
		Short: "Make, list and remove the keys by which apps are known",
		Long: `An app key is for an app's server. Its scopes say what it may do: enqueue asks and
cancels, read looks at jobs and answers, pair decides pairings and lists and revokes
devices, admin does all of it. A key with an owner is for that owner only.

The site may run meanwhile: what is done here counts from the next request on.`,
		Example: "  allod site key add --data /var/lib/allod --name web --scope enqueue,read\n" +
			"  allod site key ls --data /var/lib/allod\n" +
			"  allod site key rm web --data /var/lib/allod",
	}, newSiteKeyAdd(env), newSiteKeyList(env), newSiteKeyRemove(env))
}

// siteFolder are the flags that say whose keys are meant.
type siteFolder struct{ data, config string }

func (f *siteFolder) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.data, "data", "", "the site's folder")
	cmd.Flags().StringVar(&f.config, "config", "", "a configuration file whose section \"site\" names the folder")
}

// keys opens the keys of the folder. close lets go of it.
func (f *siteFolder) keys(ctx context.Context) (k appKeys, close func(), err error) {
	dir := f.data
	if dir == "" && f.config != "" {
		m, err := readMachine(f.config)
		if err != nil {
			return nil, nil, err
		}
		if m.Site != nil {
			dir = m.Site.Data
		}
	}
	if dir == "" {
		return nil, nil, ErrUsage.With("Name the site's folder by --data, or by --config and a file that does.")
	}
	return openAppKeys(ctx, dir)
}

// keyReport is a key as the commands and the admin socket show it.
type keyReport struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Scopes    []site.Scope `json:"scopes"`
	Owner     ai.Owner     `json:"owner,omitzero"`
	CreatedAt ai.Millis    `json:"createdAt"`
}

func reportOf(k site.AppKey) keyReport {
	return keyReport{k.ID, k.Name, k.Scopes, k.Owner, k.CreatedAt}
}

func (r keyReport) key() site.AppKey {
	return site.AppKey{ID: r.ID, Name: r.Name, Scopes: r.Scopes, Owner: r.Owner, CreatedAt: r.CreatedAt}
}

// newKeyReport is a key at the one time when it is shown.
type newKeyReport struct {
	keyReport
	Key string `json:"key"`
}

type keysReport struct {
	Keys []keyReport `json:"keys"`
}

func newSiteKeyAdd(env Env) *cobra.Command {
	var (
		f           siteFolder
		name, owner string
		scopes      []string
	)
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Make an app key and show it once",
		Long: `Makes an app key and prints it. It is kept as a hash only, so it cannot be shown
again: store it where the app reads its secrets.`,
		Example: "  allod site key add --data /var/lib/allod --name web --scope enqueue,read\n" +
			"  allod site key add --data /var/lib/allod --name alice-laptop --scope enqueue,read --owner alice",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" || len(scopes) == 0 {
				return ErrUsage.With("The flags --name and --scope are needed.")
			}
			if cmd.Flags().Changed("owner") && owner == "" {
				return ErrUsage.With("The flag --owner is empty, and a key that is bound to nobody needs no such flag.")
			}
			keys, close, err := f.keys(cmd.Context())
			if err != nil {
				return err
			}
			defer close()
			k, err := appapi.NewKey(rand.Reader)
			if err != nil {
				return err
			}
			r := appapi.KeyRequest{Hash: k.Hash(), Name: name, Owner: ai.Owner(owner)}
			for _, s := range scopes {
				r.Scopes = append(r.Scopes, site.Scope(s))
			}
			// The same words for what no key can be, whether the site runs or not.
			n := site.NewAppKey{Name: r.Name, Scopes: r.Scopes, Owner: r.Owner}
			if err := n.Check(); err != nil {
				return err
			}
			added, err := keys.Add(cmd.Context(), r)
			if err != nil {
				return err
			}
			err = print(cmd, env, newKeyReport{reportOf(added), k.Text()}, func(w io.Writer) error {
				if _, err := fmt.Fprintln(w, k.Text()); err != nil {
					return err
				}
				_, err := fmt.Fprintf(env.Err, "Made the key %s, %s. It was shown this once.\n", added.ID, rights(added))
				return err
			})
			if err != nil {
				// A key that nobody has seen is of no use to anybody.
				_, undone := keys.Remove(cmd.Context(), added.ID)
				return errors.Join(err, undone)
			}
			return nil
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what the operator calls the key, at most 64 characters long")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "what it may do: enqueue, read, pair and admin, with commas between them")
	cmd.Flags().StringVar(&owner, "owner", "", "the one owner whom the key is for; by default everybody")
	return cmd
}

// rights says in words what a key may do.
func rights(k site.AppKey) string {
	return "which may " + words(k.Scopes) + " for " + ownerWords(k.Owner)
}

func words(scopes []site.Scope) string {
	list := make([]string, len(scopes))
	for i, s := range scopes {
		list[i] = string(s)
	}
	return strings.Join(list, ",")
}

func ownerWords(o ai.Owner) string {
	if o == "" {
		return "everybody"
	}
	return inert(string(o))
}

func newSiteKeyList(env Env) *cobra.Command {
	var f siteFolder
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the app keys, the oldest first",
		Example: "  allod site key ls --data /var/lib/allod --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, close, err := f.keys(cmd.Context())
			if err != nil {
				return err
			}
			defer close()
			list, err := keys.List(cmd.Context())
			if err != nil {
				return err
			}
			return print(cmd, env, reportsOf(list), func(w io.Writer) error { return writeKeys(w, list) })
		},
	}
	f.flags(cmd)
	return cmd
}

func writeKeys(w io.Writer, list []site.AppKey) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "The site has no app keys. Make one: allod site key add")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tSCOPES\tOWNER\tMADE")
	for _, k := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", k.ID, inert(k.Name), words(k.Scopes), ownerWords(k.Owner), k.CreatedAt.Time().UTC().Format(time.RFC3339))
	}
	return t.Flush()
}

func reportsOf(list []site.AppKey) keysReport {
	r := keysReport{Keys: make([]keyReport, len(list))}
	for i, k := range list {
		r.Keys[i] = reportOf(k)
	}
	return r
}

func newSiteKeyRemove(env Env) *cobra.Command {
	var f siteFolder
	cmd := &cobra.Command{
		Use:   "rm ID|NAME",
		Short: "Remove an app key for good",
		Long: `Removes an app key. It counts no more from the next request on and can never come
back: not by starting the site again, and not by the file app-key.`,
		Example: "  allod site key rm web --data /var/lib/allod",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return ErrUsage.With("Give the id or the name of one key.")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, close, err := f.keys(cmd.Context())
			if err != nil {
				return err
			}
			defer close()
			removed, err := keys.Remove(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return print(cmd, env, reportOf(removed), func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Removed the key %s (%s).\n", removed.ID, inert(removed.Name))
				return err
			})
		},
	}
	f.flags(cmd)
	return cmd
}

// appKeys are a site's keys, of a site that runs or of one that is opened for a
// command. An appapi.Keys is the second and has the rules.
type appKeys interface {
	Add(ctx context.Context, r appapi.KeyRequest) (site.AppKey, error)
	List(ctx context.Context) ([]site.AppKey, error)
	Remove(ctx context.Context, idOrName string) (site.AppKey, error)
}

// openAppKeys reaches the keys of a folder. close lets go of it.
func openAppKeys(ctx context.Context, dir string) (k appKeys, close func(), err error) {
	if !exists(filepath.Join(dir, siteDatabase)) {
		return nil, nil, ErrNoSite
	}
	if err := datadir.Prepare(dir); err != nil {
		return nil, nil, err
	}
	var release func()
	err = httpd.TakeFolder(ctx, dir, func() (err error) {
		release, err = datadir.Lock(dir)
		return err
	})
	switch {
	case errors.Is(err, datadir.ErrRunning):
		return running(dir), func() {}, nil
	case err != nil:
		return nil, nil, err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, siteDatabase)})
	if err != nil {
		release()
		return nil, nil, err
	}
	close = func() { _ = store.Close(); release() }
	// A folder from before there were keys has one in its file, which must be the
	// first.
	keys := appapi.NewKeys(store.AppKeys(), nil)
	if _, err := firstAppKey(ctx, keys, dir); err != nil {
		close()
		return nil, nil, err
	}
	return keys, close, nil
}

// siteRegisters have every refusal that a running site answers these requests
// with.
var siteRegisters = []refusal.Registry{site.StoreKinds, Kinds, database.Kinds, refusal.Kinds}

const (
	keysPath      = "/site/keys"
	keyRemovePath = "/site/keys/remove"
)

// keyOrder is a key to be added. The key itself is not in it: the command that
// makes it keeps it.
type keyOrder struct {
	hash, name string
	scopes     []site.Scope
	owner      ai.Owner
}

var (
	keyOrderShape = exact.Shape[keyOrder]{Fields: func(o *exact.Object, k *keyOrder) {
		exact.Text(o, "hash", &k.hash, 1, 0)
		exact.Text(o, "name", &k.name, 0, 0)
		exact.Texts(o, "scopes", &k.scopes)
		exact.OptText(o, "owner", &k.owner, 1, 0)
	}}
	keyRemoveShape = exact.Shape[string]{Fields: func(o *exact.Object, idOrName *string) {
		exact.Text(o, "key", idOrName, 0, 0)
	}}
	keyLimits = exact.Limits{Bytes: 64 << 10, Depth: 2, Values: 64}
)

// serveAppKeys adds the requests of these commands to a site's admin socket.
func serveAppKeys(keys appKeys, log *slog.Logger) func(*http.ServeMux) {
	return func(mux *http.ServeMux) {
		mux.HandleFunc("GET "+keysPath, func(w http.ResponseWriter, r *http.Request) {
			list, err := keys.List(r.Context())
			httpd.Reply(w, reportsOf(list), err)
		})
		mux.HandleFunc("POST "+keysPath, func(w http.ResponseWriter, r *http.Request) {
			o, err := readAdmin(r, keyOrderShape)
			request := appapi.KeyRequest{Name: o.name, Scopes: o.scopes, Owner: o.owner}
			if hash, bad := hex.DecodeString(o.hash); bad != nil || len(hash) != len(request.Hash) {
				err = ErrSiteRequest
			} else {
				copy(request.Hash[:], hash)
			}
			var k site.AppKey
			if err == nil {
				k, err = keys.Add(r.Context(), request)
			}
			if err == nil {
				log.InfoContext(r.Context(), "app key added", "key", k.ID, "scopes", words(k.Scopes), "bound", k.Owner != "")
			}
			httpd.Reply(w, reportOf(k), err)
		})
		mux.HandleFunc("POST "+keyRemovePath, func(w http.ResponseWriter, r *http.Request) {
			idOrName, err := readAdmin(r, keyRemoveShape)
			var k site.AppKey
			if err == nil {
				k, err = keys.Remove(r.Context(), idOrName)
			}
			if err == nil {
				log.InfoContext(r.Context(), "app key removed", "key", k.ID)
			}
			httpd.Reply(w, reportOf(k), err)
		})
	}
}

// readAdmin reads a request. It returns [ErrSiteRequest].
func readAdmin[T any](r *http.Request, s exact.Shape[T]) (v T, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(keyLimits.Bytes)+1))
	if err == nil {
		v, err = s.Read(body, keyLimits)
	}
	if err != nil {
		return v, ErrSiteRequest.Because(err)
	}
	return v, nil
}

// runningKeys are the keys of a site that runs.
type runningKeys struct{ asker httpd.Asker }

// running reaches the keys of the site that runs in a folder.
func running(dir string) runningKeys {
	return runningKeys{httpd.Asker{
		Client: httpd.AdminClient(dir), Start: httpd.StartTime, Timeout: time.Minute, Registers: siteRegisters,
		Silent: ErrSiteSilent, Strange: ErrSiteRequest,
	}}
}

func (s runningKeys) Add(ctx context.Context, r appapi.KeyRequest) (site.AppKey, error) {
	o := keyOrder{hex.EncodeToString(r.Hash[:]), sendable(r.Name), nil, sendable(r.Owner)}
	for _, scope := range r.Scopes {
		o.scopes = append(o.scopes, sendable(scope))
	}
	body, err := keyOrderShape.Append(nil, o)
	if err != nil {
		return site.AppKey{}, ErrSiteRequest.Because(err)
	}
	return s.one(ctx, keysPath, body)
}

func (s runningKeys) Remove(ctx context.Context, idOrName string) (site.AppKey, error) {
	body, err := keyRemoveShape.Append(nil, sendable(idOrName))
	if err != nil {
		return site.AppKey{}, ErrSiteRequest.Because(err)
	}
	return s.one(ctx, keyRemovePath, body)
}

func (s runningKeys) List(ctx context.Context) ([]site.AppKey, error) {
	var r keysReport
	if err := s.ask(ctx, http.MethodGet, keysPath, nil, &r); err != nil {
		return nil, err
	}
	list := make([]site.AppKey, len(r.Keys))
	for i, k := range r.Keys {
		list[i] = k.key()
	}
	return list, nil
}

// one sends a request that is answered with one key.
func (s runningKeys) one(ctx context.Context, path string, body []byte) (site.AppKey, error) {
	var r keyReport
	err := s.ask(ctx, http.MethodPost, path, body, &r)
	return r.key(), err
}

func (s runningKeys) ask(ctx context.Context, method, path string, body []byte, into any) error {
	text, err := s.asker.Ask(ctx, method, path, body)
	if err == nil && json.Unmarshal(text, into) != nil {
		err = ErrSiteRequest
	}
	return err
}

// sendable is a word of the command line, which can be no text at all. No key has
// the character that such a word gets, so the site refuses it as it would the word.
func sendable[S ~string](word S) S {
	if utf8.ValidString(string(word)) {
		return word
	}
	return "\x00"
}

package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud"
	"github.com/allodhq/allod/internal/cloud/act"
	cloudcluster "github.com/allodhq/allod/internal/cloud/cluster"
	cloudnodes "github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// What the commands that speak to a controller's folder refuse.
var (
	ErrNoController = refusal.NewKind("controller-absent", 404,
		"No controller was ever started in this folder.",
		"Give the folder that the controller was started with as --data, or start one with allod controller serve.")
	ErrControllerSilent = refusal.NewKind("controller-no-answer", 503,
		"The controller of this folder does not run, or does not answer on its admin socket.",
		"Start it with allod controller serve and this folder as --data. If it runs, look in its log.")
)

// controllerRegisters have what a controller refuses its operator with.
var controllerRegisters = []refusal.Registry{
	act.Kinds, cloudcluster.Kinds, cloudnodes.Kinds, page.Kinds, people.Kinds, store.Kinds, who.Kinds, enroll.Kinds, database.Kinds,
}

// controllerFolder is the flag that says which controller is meant.
type controllerFolder struct{ data string }

func (f *controllerFolder) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.data, "data", "", "the controller's folder")
}

// askController makes one request on the admin socket of the controller that runs
// in a folder. One that is starting is waited for. It returns ErrNoController,
// ErrControllerSilent and the controller's refusals. What is asked can be asked
// again: a change carries its mutation id, and of a secret that was made for
// nobody only the hash is left, until it expires.
func askController[Req, Res any](ctx context.Context, f controllerFolder, m *rpc.Method, req zone.Codec[Req], res zone.Codec[Res], content Req) (Res, error) {
	var none Res
	if f.data == "" {
		return none, ErrUsage.With("The flag --data is needed.")
	}
	if !exists(filepath.Join(f.data, cloud.Database)) {
		return none, ErrNoController
	}
	client := carrier.NewAdminClient(carrier.Path, httpd.AdminClient(f.data), rand.Reader)
	for end := time.Now().Add(httpd.StartTime); ; {
		answer, err := carrier.Call(ctx, client, m, req, res, content, carrier.Proof{}, controllerRegisters...)
		switch {
		case ctx.Err() != nil:
			return none, context.Cause(ctx)
		case !errors.Is(err, carrier.ErrUnreachable):
			return answer, err
		case time.Now().After(end) || !held(f.data):
			return none, ErrControllerSilent.Because(err)
		}
		select {
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-time.After(httpd.StartStep):
		}
	}
}

// originOfFolder is where the controller that runs in a folder is reached.
func originOfFolder(ctx context.Context, f controllerFolder) (enroll.Origin, error) {
	text, err := httpd.Asker{
		Client: httpd.AdminClient(f.data), Start: httpd.StartTime, Timeout: time.Minute,
		Silent: ErrControllerSilent, Strange: ErrControllerSilent,
	}.Ask(ctx, http.MethodGet, cloud.AboutPath, nil)
	if err != nil {
		return enroll.Origin{}, err
	}
	about, err := cloud.ReadAbout(text)
	if err != nil {
		return enroll.Origin{}, ErrControllerSilent.Because(err)
	}
	return about.Origin, nil
}

// held reports whether some process uses a folder.
func held(dir string) bool {
	release, err := datadir.Lock(dir)
	if err == nil {
		release()
	}
	return errors.Is(err, datadir.ErrRunning)
}

// newMutation makes the id of one change.
func newMutation() zone.MutationID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return zone.MutationID(hex.EncodeToString(b[:]))
}

type loginLinkReport struct {
	Operator  string    `json:"operator"`
	Login     string    `json:"login"`
	ExpiresAt time.Time `json:"expiresAt"`
}

func newControllerLoginLink(env Env) *cobra.Command {
	var f controllerFolder
	var operator string
	cmd := &cobra.Command{
		Use:   "login-link",
		Short: "Make a link by which an operator logs in, once",
		Long: `Makes a login link. It works once, for an hour, and whoever has it is that operator
then: hand it over as you would a password. Making one ends no other session.`,
		Example: "  allod controller login-link --data /var/lib/allod-controller --operator admin",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !zone.ValidID(operator) {
				return ErrUsage.With("--operator: must be the id of an operator, as in admin.")
			}
			a, err := askController(cmd.Context(), f, methods.CreateLoginLink, admin.CreateLoginLinkCodec, admin.CreateLoginLinkAnswerCodec,
				admin.CreateLoginLink{OperatorID: zone.OperatorID(operator)})
			if err != nil {
				return err
			}
			origin, err := originOfFolder(cmd.Context(), f)
			if err != nil {
				return err
			}
			r := loginLinkReport{operator, loginURL(origin, a.Code), a.ExpiresAt.Time()}
			return print(cmd, env, r, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Log in as %s by this link. It works once, until %s:\n\n%s\n", r.Operator, r.ExpiresAt.Format(time.RFC3339), r.Login)
				return err
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&operator, "operator", string(people.FirstOperator), "whose link it is")
	return cmd
}

type auditEntry struct {
	Sequence     int64     `json:"sequence"`
	At           time.Time `json:"at"`
	Actor        string    `json:"actor"`
	Organization string    `json:"organizationId,omitzero"`
	Action       string    `json:"action"`
	Subject      string    `json:"subject"`
	Detail       string    `json:"detail,omitzero"`
}

type auditReport struct {
	Entries []auditEntry `json:"entries"`
	Next    string       `json:"nextCursor,omitzero"`
}

func newControllerAudit(env Env) *cobra.Command {
	var f controllerFolder
	var organization, cursor string
	var limit int64
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what operators and the controller did, the newest first",
		Example: "  allod controller audit --data /var/lib/allod-controller --limit 20\n" +
			"  allod controller audit --data /var/lib/allod-controller --organization main --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case limit < 1 || limit > zone.MaxPage:
				return ErrUsage.With(fmt.Sprintf("--limit: must be a number from 1 to %d.", zone.MaxPage))
			case organization != "" && !zone.ValidID(organization):
				return ErrUsage.With("--organization: must be the id of an organization, as in main.")
			case len(cursor) > zone.MaxCursor:
				return page.ErrCursor
			}
			a, err := askController(cmd.Context(), f, methods.GetAudit, admin.GetAuditCodec, admin.GetAuditAnswerCodec,
				admin.GetAudit{OrganizationID: zone.OrganizationID(organization), Cursor: zone.Cursor(cursor), Limit: limit})
			if err != nil {
				return err
			}
			r := auditReport{Entries: []auditEntry{}, Next: string(a.NextCursor)}
			for _, e := range a.Entries {
				r.Entries = append(r.Entries, auditEntry{e.Sequence, e.At.Time(), e.Actor, string(e.OrganizationID), e.Action, e.Subject, e.Detail})
			}
			return print(cmd, env, r, func(w io.Writer) error { return writeAudit(w, r) })
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&organization, "organization", "", "only what belongs to this organization")
	cmd.Flags().Int64Var(&limit, "limit", 50, "how many entries")
	cmd.Flags().StringVar(&cursor, "cursor", "", "where to go on, as the last page said")
	return cmd
}

func writeAudit(w io.Writer, r auditReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NUMBER\tAT\tACTOR\tORGANIZATION\tACTION\tSUBJECT")
	for _, e := range r.Entries {
		organization := e.Organization
		if organization == "" {
			organization = "-"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Sequence, e.At.Format(time.RFC3339), inert(e.Actor), inert(organization), inert(e.Action), inert(e.Subject))
	}
	if err := t.Flush(); err != nil || r.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "There are more: --cursor %s\n", inert(r.Next))
	return err
}

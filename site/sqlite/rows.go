package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// scanner is one row.
type scanner interface{ Scan(into ...any) error }

// each calls fn for each row of a query and closes the rows.
func each(ctx context.Context, q database.Queryer, query string, args []any, fn func(scanner) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// The forms in which lists and sealed material are kept. They are this file's
// own and follow no version of the protocol.
var (
	identityShape = exact.Shape[ai.PublicIdentity]{Fields: func(o *exact.Object, p *ai.PublicIdentity) {
		exact.Text(o, "identity", &p.Identity, 1, 0)
		exact.Text(o, "encryption", &p.Encryption, 1, 0)
		exact.Text(o, "encryptionSig", &p.EncryptionSig, 1, 0)
	}}
	envelopeShape = exact.Shape[ai.SealedEnvelope]{Fields: func(o *exact.Object, e *ai.SealedEnvelope) {
		exact.Text(o, "ciphertext", &e.Ciphertext, 1, 0)
		exact.Text(o, "recipientKeyId", &e.RecipientKeyID, 1, 0)
		exact.Text(o, "senderKeyId", &e.SenderKeyID, 1, 0)
		exact.Word(o, "direction", &e.Direction, ai.Directions())
		exact.Whole(o, "deadlineAt", &e.DeadlineAt, 1, 0)
	}}
	ownersShape = exact.Shape[[]ai.Owner]{Fields: func(o *exact.Object, list *[]ai.Owner) {
		exact.Texts(o, "owners", list)
	}}
	capabilityShape = exact.Shape[ai.Capability]{Fields: func(o *exact.Object, c *ai.Capability) {
		exact.Word(o, "kind", &c.Kind, ai.Kinds())
		exact.OptText(o, "service", &c.Service, 1, 0)
		exact.OptTexts(o, "knownModels", &c.KnownModels)
		exact.Word(o, "backendId", &c.BackendID, backend.IDs())
		exact.Word(o, "backendClass", &c.BackendClass, backend.Classes())
		exact.Text(o, "model", &c.Model, 1, 0)
		exact.Word(o, "offerScope", &c.OfferScope, ai.OfferScopes())
	}}
	capabilitiesShape = exact.Shape[[]ai.Capability]{Fields: func(o *exact.Object, list *[]ai.Capability) {
		exact.List(o, "capabilities", list, 0, 0, capabilityShape)
	}}
)

var kept = exact.Limits{Bytes: 2 * ai.MaxSealedBody, Depth: 4, Values: 1 << 20}

// keep writes a value in its kept form. What is kept was read from a message or
// made by the site, so it fits its bounds; if not, the job is refused.
func keep[T any](s exact.Shape[T], v T) (string, error) {
	text, err := s.Bytes(v)
	return string(text), err
}

func keepIdentity[R key.Role](id key.Identity[R]) (string, error) {
	return keep(identityShape, ai.PublicIdentityOf(id))
}

// jobColumns are what scanJob reads, in its order.
const jobColumns = `jobs.seq, jobs.id, jobs.kind, jobs.owner, jobs.audience, jobs.allowed_owners, jobs.size_class,
	jobs.state, jobs.reason, jobs.attempts, jobs.cancel_requested, jobs.created_at, jobs.updated_at, jobs.claimable_at,
	jobs.ttl_ms, jobs.deadline_at, jobs.lease_id, jobs.lease_runner, jobs.lease_expires_at, jobs.done_lease, jobs.done_runner`

// jobRow is a job with what only the store needs of it.
type jobRow struct {
	site.Job
	seq        int64
	doneLease  ai.LeaseID
	doneRunner ai.RunnerID
	setAside   bool
}

// scanJob reads one row of jobColumns. The error is a *damage for a row that
// makes no sense.
func scanJob(r scanner) (jobRow, error) {
	// One struct, since each variable that is scanned into is an allocation.
	var c struct {
		j                                 jobRow
		ttl                               int64
		allowed                           sql.Null[string]
		lease, doneLease                  sql.Null[ai.LeaseID]
		leaseRunner, doneRunner           sql.Null[ai.RunnerID]
		leaseExpires, claimable, deadline sql.Null[ai.Millis]
	}
	j := &c.j
	if err := r.Scan(&j.seq, &j.ID, &j.Kind, &j.Owner, &j.Audience, &c.allowed, &j.SizeClass,
		&j.State, &j.Reason, &j.Attempts, &j.CancelRequested, &j.CreatedAt, &j.UpdatedAt, &c.claimable,
		&c.ttl, &c.deadline, &c.lease, &c.leaseRunner, &c.leaseExpires, &c.doneLease, &c.doneRunner); err != nil {
		return jobRow{}, err
	}
	if j.State == stateSetAside {
		return jobRow{seq: j.seq, Job: site.Job{ID: j.ID}, setAside: true}, nil
	}
	j.ClaimableAt, j.DeadlineAt, j.TTL = c.claimable.V, c.deadline.V, time.Duration(c.ttl)*time.Millisecond
	j.doneLease, j.doneRunner = c.doneLease.V, c.doneRunner.V
	bad := func(column string) (jobRow, error) {
		return jobRow{}, &damage{what: "job", id: string(j.ID), column: column}
	}
	switch {
	case j.ID == "":
		return bad("id")
	case !slices.Contains(ai.Kinds(), j.Kind):
		return bad("kind")
	case j.Owner == "":
		return bad("owner")
	case !slices.Contains(ai.Audiences(), j.Audience):
		return bad("audience")
	case !slices.Contains(ai.SizeClasses(), j.SizeClass):
		return bad("size_class")
	case !slices.Contains(ai.States(), j.State):
		return bad("state")
	case c.ttl < 0:
		return bad("ttl_ms")
	}
	if c.allowed.Valid {
		list, err := ownersShape.Read([]byte(c.allowed.V), kept)
		if err != nil {
			return bad("allowed_owners")
		}
		j.AllowedOwners = list
	}
	if c.lease.Valid {
		if j.State != ai.StateClaimed && j.State != ai.StateRunning || !c.leaseRunner.Valid || !c.leaseExpires.Valid {
			return bad("lease_id")
		}
		j.Lease = &ai.Lease{ID: c.lease.V, RunnerID: c.leaseRunner.V, ExpiresAt: c.leaseExpires.V}
	} else if j.State == ai.StateClaimed || j.State == ai.StateRunning {
		return bad("lease_id")
	}
	return *j, nil
}

const (
	jobByID  = `SELECT ` + jobColumns + ` FROM jobs WHERE id = ?`
	jobBySeq = `SELECT ` + jobColumns + ` FROM jobs WHERE seq = ?`
)

// jobBy reads one job. It returns sql.ErrNoRows or a *damage.
func jobBy(ctx context.Context, q database.Queryer, query string, arg any) (jobRow, error) {
	return scanJob(q.QueryRowContext(ctx, query, arg))
}

// also is a row with one more value at its end.
type also struct {
	scanner
	last any
}

func (a also) Scan(into ...any) error { return a.scanner.Scan(append(into, a.last)...) }

// withDependencies adds what the job waits for.
func withDependencies(ctx context.Context, q database.Queryer, j *jobRow) error {
	return each(ctx, q, `SELECT on_id FROM dependencies WHERE seq = ? ORDER BY on_id`, []any{j.seq}, func(r scanner) error {
		var id ai.JobID
		err := r.Scan(&id)
		j.DependsOn = append(j.DependsOn, id)
		return err
	})
}

// withContent adds the payload and the result, where they are still kept.
func withContent(ctx context.Context, q database.Queryer, j *jobRow) error {
	var (
		payload, result, device sql.Null[string]
		disposition             sql.Null[ai.Disposition]
		owner                   sql.Null[ai.Owner]
		doneAt                  sql.Null[ai.Millis]
	)
	err := q.QueryRowContext(ctx, `SELECT c.payload, o.result, o.device, o.disposition, r.owner, jobs.done_at
		FROM jobs JOIN job_content c ON c.seq = jobs.seq LEFT JOIN job_results o ON o.seq = jobs.seq
		LEFT JOIN runners r ON r.id = jobs.done_runner WHERE jobs.seq = ?`, j.seq).Scan(&payload, &result, &device, &disposition, &owner, &doneAt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	if err := keptPayload(j, payload); err != nil || !result.Valid {
		return err
	}
	bad := func(column string) error { return &damage{what: "job", id: string(j.ID), column: column} }
	res := site.Result{
		Disposition: disposition.V, RunnerID: j.doneRunner, RunnerOwner: owner.V, LeaseID: j.doneLease, At: doneAt.V,
	}
	if res.Envelope, err = envelopeShape.Read([]byte(result.V), kept); err != nil {
		return bad("result")
	}
	if res.Device, err = identities.get(device.V); err != nil {
		return bad("device")
	}
	if !slices.Contains(ai.Dispositions(), res.Disposition) {
		return bad("disposition")
	}
	j.Result = &res
	return nil
}

// keptPayload reads a payload that is still kept.
func keptPayload(j *jobRow, text sql.Null[string]) (err error) {
	if !text.Valid {
		return nil
	}
	if j.Payload, err = envelopeShape.Read([]byte(text.V), kept); err != nil {
		return &damage{what: "job", id: string(j.ID), column: "payload"}
	}
	return nil
}

// identities are devices that were verified, by the text in which they are kept.
// A device is read at every request of it, and verifying takes longer than all
// the rest of the read.
var identities = newMemo(func(text string) (key.Device, error) {
	p, err := identityShape.Read([]byte(text), kept)
	if err != nil {
		return key.Device{}, err
	}
	return p.Device()
})

var capabilityLists = newMemo(func(text string) ([]ai.Capability, error) {
	return capabilitiesShape.Read([]byte(text), kept)
})

// readCapabilities reads a list that the caller may change.
func readCapabilities(text string) ([]ai.Capability, error) {
	list, err := capabilityLists.get(text)
	return slices.Clone(list), err
}

package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// typeFinished is the only type of message today.
const typeFinished = "job.finished"

// timeForm is RFC 3339 in UTC, with the milliseconds that a site's clock has.
const timeForm = "2006-01-02T15:04:05.000Z"

var messageShape = exact.Shape[site.HookEvent]{Fields: func(o *exact.Object, e *site.HookEvent) {
	at := e.EndedAt.Time().UTC().Format(timeForm)
	exact.Literal(o, "type", typeFinished)
	exact.Text(o, "timestamp", &at, 1, 0)
	exact.Sub(o, "data", e, dataShape)
}}

var dataShape = exact.Shape[site.HookEvent]{Fields: func(o *exact.Object, e *site.HookEvent) {
	exact.Text(o, "jobId", &e.Job, 1, 0)
	exact.Text(o, "owner", &e.Owner, 1, 0)
	exact.Text(o, "kind", &e.Kind, 1, 0)
	exact.Text(o, "state", &e.State, 1, 0)
	exact.OptText(o, "reason", &e.Reason, 1, 0)
}}

// message is the body that tells of an event. It is the same at every attempt.
func message(e site.HookEvent) ([]byte, error) { return messageShape.Append(nil, e) }

// messageID is the id of an event's message to one hook, the same at every
// attempt. The time is in it because a job's id can be used again once its row was
// removed.
func messageID(hook site.HookID, job ai.JobID, ended ai.Millis) string {
	// The digest has one length and the number no character of an id before it.
	sum := sha256.Sum256([]byte(string(hook) + "\n" + strconv.FormatInt(int64(ended), 10) + "\n" + string(job)))
	return "msg_" + hex.EncodeToString(sum[:16])
}

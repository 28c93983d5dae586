package ai

import "time"

// JobID names a job within its site, which chose it. Two sites may choose the
// same one. At least one UTF-16 code unit.
type JobID string

// LeaseID names one grant of one job to one device. At least one UTF-16 code
// unit.
type LeaseID string

// RunnerID names a paired device at the server that paired it. At least one
// UTF-16 code unit.
type RunnerID string

// Owner names a person as one site knows them: the site's own user id, or the
// name a controller gave that site. Two owners are the same person only if the
// texts are equal byte for byte. At least one UTF-16 code unit.
type Owner string

// KeyID is the text of an identity's fingerprint as messages carry it, not yet
// checked to be one; key.ParseFingerprint does. At least one UTF-16 code unit.
type KeyID string

// Millis is an instant in milliseconds since 1970-01-01 UTC, from 1 to 2^53-1 on
// the wire.
type Millis int64

// MillisOf is t, cut to the millisecond.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time is the instant in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

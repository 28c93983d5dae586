package spark

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The route (sparkNodeHeartbeatContract; sizes by decision O20).
const (
	// Path is where a report is posted.
	Path = "/spark/nodes/heartbeat"
	// MaxRequest and MaxResponse are the largest bodies, in bytes.
	MaxRequest  = 16 << 10
	MaxResponse = 8 << 10
	// Interval is how far apart a node's reports are.
	Interval = 10 * time.Second
	// Session is the kind of session whose offers are exchanged.
	Session = handshake.SparkNode
)

// What this package refuses.
var ErrReceipt = refusal.NewKind("heartbeat-receipt-mismatch", 502,
	"The receipt is not that of this report by this node.",
	"Check that the address belongs to the right controller, and that the node's credential was not replaced from a copy.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: reports of a host", Kinds: []*refusal.Kind{ErrReceipt}}

// Whole is the whole of which a [Fraction] is a part.
const Whole = 1_000_000

// Fraction is a part of [Whole]: 0 is none and Whole is all.
type Fraction int64

// FractionOf is used of total as a fraction, cut to whole parts: none where there is
// no total, and all where more is used than there is.
func FractionOf(used, total float64) Fraction {
	switch {
	case !(used > 0) || !(total > 0):
		return 0
	case used >= total:
		return Whole
	}
	return Fraction(used / total * Whole)
}

// Float is the fraction from 0 to 1.
func (f Fraction) Float() float64 { return float64(f) / Whole }

// Report is what Spark says about its host (ISparkNodeReport). Values compare with
// ==, and a copy is detached.
type Report struct {
	// ObservedAt is when, by the host's own clock. It decides nothing.
	ObservedAt zone.Millis
	Load       Load
	Host       Host
	Bundle     Bundle
}

// Load is how much of the host is in use.
type Load struct {
	// CPU is over all cores, since the report before.
	CPU Fraction
	// Memory is what is not available to programs.
	Memory Fraction
	// Disk is that of the file system with the node's data.
	Disk Fraction
}

// Host is what the host is.
type Host struct {
	// Hostname is as in [enroll.ValidHostname].
	Hostname string
	// Kernel is the kernel's release, OS the name of the distribution: each of 1 to
	// [MaxLabel] bytes that can be shown.
	Kernel, OS string
	// Architecture is as Go names it, such as amd64.
	Architecture string
	// BootID changes with each boot: an identifier, as the kernel has it.
	BootID string
	// UptimeSeconds is the time since that boot.
	UptimeSeconds int64
	// CPUs is the number of logical processors, from 1 to [MaxCPUs].
	CPUs int64
	// MemoryBytes and DiskBytes are the sizes of what Load is a part of, at least 1.
	MemoryBytes, DiskBytes int64
}

// Bundle is the installed program, as it found itself verified.
type Bundle struct {
	// Version is the release, of 1 to [MaxLabel] bytes that can be shown.
	Version string
	// SourceCommit is the full name of the commit it was built from: 40 or 64
	// lower-case hexadecimal digits, all 0 where a build has none.
	SourceCommit string
	// ManifestDigest is the SHA-256 of what is installed.
	ManifestDigest canon.Sum
}

// Bounds of a report.
const (
	MaxLabel = 128
	MaxCPUs  = 1 << 16
)

// ValidLabel reports whether s can be shown as it is: 1 to [MaxLabel] bytes of
// letters, digits, punctuation, symbols and single spaces between them.
func ValidLabel(s string) bool {
	if s == "" || len(s) > MaxLabel || !utf8.ValidString(s) || strings.Contains(s, "  ") || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func label(o *exact.Object, name string, p *string) {
	exact.Spelled(o, name, p, MaxLabel, "a text of 1 to 128 bytes that can be shown", ValidLabel)
}

// ValidCommit reports whether s can be a [Bundle.SourceCommit].
func ValidCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func fraction(o *exact.Object, name string, p *Fraction) { exact.Whole(o, name, p, 0, Whole) }

// ReportCodec is the object of a report.
var ReportCodec zone.Codec[Report] = codec.Of(func(o *exact.Object, r *Report) {
	member.Millis(o, "observedAt", &r.ObservedAt)
	exact.Sub(o, "load", &r.Load, exact.Shape[Load]{Fields: func(o *exact.Object, l *Load) {
		fraction(o, "cpu", &l.CPU)
		fraction(o, "memory", &l.Memory)
		fraction(o, "disk", &l.Disk)
	}})
	exact.Sub(o, "host", &r.Host, exact.Shape[Host]{Fields: func(o *exact.Object, h *Host) {
		exact.Spelled(o, "hostname", &h.Hostname, enroll.MaxHostname, "a host name of letters, digits and . - _ between them", enroll.ValidHostname)
		label(o, "kernel", &h.Kernel)
		label(o, "os", &h.OS)
		member.ID(o, "architecture", &h.Architecture)
		member.ID(o, "bootId", &h.BootID)
		member.Counter(o, "uptimeSeconds", &h.UptimeSeconds)
		exact.Whole(o, "cpus", &h.CPUs, 1, MaxCPUs)
		exact.Whole(o, "memoryBytes", &h.MemoryBytes, 1, 0)
		exact.Whole(o, "diskBytes", &h.DiskBytes, 1, 0)
	}})
	exact.Sub(o, "bundle", &r.Bundle, exact.Shape[Bundle]{Fields: func(o *exact.Object, b *Bundle) {
		label(o, "version", &b.Version)
		exact.Spelled(o, "sourceCommit", &b.SourceCommit, 64, "a commit of 40 or 64 lower-case hexadecimal digits", ValidCommit)
		member.Sum(o, "manifestDigest", &b.ManifestDigest)
	}})
})

// Digest is the identity of a report, which its receipt names. It returns what
// writing the report does.
func Digest(r Report) (canon.Sum, error) { return canon.Of(canon.SparkNodeReport, ReportCodec, r) }

// Request is one report on its way. Of it, only the report may be kept (F06).
type Request struct {
	// Bearer is that of purpose Spark.
	Bearer   enroll.Bearer
	Protocol handshake.Offer
	Report   Report
}

// Receipt is what the controller says about a report that it took
// (ISparkNodeHeartbeatReceipt). All of it comes from the controller's own records
// and clock. Values compare with ==.
type Receipt struct {
	NodeID               zone.NodeID
	CredentialGeneration enroll.Generation
	SessionEpoch         enroll.Epoch
	// AcceptedAt is when, by the controller's clock.
	AcceptedAt   zone.Millis
	ReportDigest canon.Sum
}

// Response is the answer to a report.
type Response struct {
	Receipt Receipt
	// RotationRequired asks Spark to rotate its credential.
	RotationRequired bool
	Protocol         handshake.Offer
}

// RequestCodec is the body of a report's request.
var RequestCodec zone.Codec[Request] = codec.Of(func(o *exact.Object, r *Request) {
	bearer(o, "bearer", &r.Bearer)
	member.Protocol(o, &r.Protocol)
	exact.Sub(o, "report", &r.Report, codec.Shape(ReportCodec))
})

// bearer is a bearer as package enroll reads it.
func bearer(o *exact.Object, name string, p *enroll.Bearer) {
	secret := zone.Conceal(p.Reveal())
	member.Secret(o, name, &secret, enroll.BearerText, "a bearer of 43 base64url characters", func(s string) bool {
		_, err := enroll.ParseBearer(s)
		return err == nil
	})
	if !o.Writing() {
		*p, _ = enroll.ParseBearer(secret.Reveal())
	}
}

// ReceiptCodec is the object of a receipt.
var ReceiptCodec zone.Codec[Receipt] = codec.Of(func(o *exact.Object, r *Receipt) {
	member.ID(o, "nodeId", &r.NodeID)
	exact.Whole(o, "credentialGeneration", &r.CredentialGeneration, 1, 0)
	exact.Whole(o, "sessionEpoch", &r.SessionEpoch, 1, 0)
	member.Millis(o, "acceptedAt", &r.AcceptedAt)
	member.Sum(o, "reportDigest", &r.ReportDigest)
})

// ResponseCodec is the body of the answer.
var ResponseCodec zone.Codec[Response] = codec.Of(func(o *exact.Object, r *Response) {
	exact.Sub(o, "receipt", &r.Receipt, codec.Shape(ReceiptCodec))
	exact.Bool(o, "rotationRequired", &r.RotationRequired)
	member.Protocol(o, &r.Protocol)
})

// BindReceipt returns nil where an answer is that of this report by this node: its
// receipt has the node, the generation and the session epoch of Spark's own active
// identity, and the digest of the report. It returns [ErrReceipt], and what writing
// the report does. What binds is still no authority: it says that the controller
// took the report once.
func BindReceipt(active enroll.Identity, report Report, r Receipt) error {
	digest, err := Digest(report)
	switch {
	case err != nil:
		return err
	case active.Purpose != enroll.Spark:
		return ErrReceipt.With("Only Spark reports on a host.")
	case r.NodeID != active.NodeID:
		return ErrReceipt.With("It is for another node.")
	case r.CredentialGeneration != active.Generation:
		return ErrReceipt.With("It is for another generation of the credential.")
	case r.SessionEpoch != active.SessionEpoch:
		return ErrReceipt.With("It is for another session epoch.")
	case r.ReportDigest != digest:
		return ErrReceipt.With("It is for another report.")
	}
	return nil
}

package shapes

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

var publicIdentity = exact.Shape[ai.PublicIdentity]{Fields: func(o *exact.Object, p *ai.PublicIdentity) {
	exact.Text(o, "identity", &p.Identity, 1, 0)
	exact.Text(o, "encryption", &p.Encryption, 1, 0)
	exact.Text(o, "encryptionSig", &p.EncryptionSig, 1, 0)
}}

func (d *Dialect) capability() exact.Shape[ai.Capability] {
	return exact.Shape[ai.Capability]{Fields: func(o *exact.Object, c *ai.Capability) {
		exact.Word(o, "kind", &c.Kind, ai.Kinds())
		if d.Services {
			exact.Text(o, "service", &c.Service, 1, 0)
		}
		exact.Word(o, "backendId", &c.BackendID, d.Backends)
		exact.Word(o, "backendClass", &c.BackendClass, backend.Classes())
		exact.Text(o, "model", &c.Model, 1, 0)
		if d.Services {
			exact.OptTexts(o, "knownModels", &c.KnownModels)
		}
		named(o, "offerScope", &c.OfferScope, d.Offers)
	}}
}

func (d *Dialect) capabilities() func(*exact.Object, *[]ai.Capability) {
	capability := d.capability()
	return func(o *exact.Object, p *[]ai.Capability) { exact.List(o, "capabilities", p, 0, 0, capability) }
}

// withheld is a kind that several services of the owner could serve, none of
// them chosen.
func (d *Dialect) withheld() exact.Shape[ai.Withheld] {
	claimant := exact.Shape[ai.Claimant]{Fields: func(o *exact.Object, c *ai.Claimant) {
		exact.Text(o, "service", &c.Service, 1, 0)
		named(o, "offer", &c.Offer, d.Offers)
	}}
	return exact.Shape[ai.Withheld]{Fields: func(o *exact.Object, w *ai.Withheld) {
		exact.Word(o, "kind", &w.Kind, ai.Kinds())
		exact.List(o, "claimants", &w.Claimants, ai.MinClaimants, 0, claimant)
	}}
}

// declare is the version that every request names.
func (d *Dialect) declare(o *exact.Object) { exact.Literal(o, "protocolVersion", d.Version) }

func daemonFields(o *exact.Object, d *ai.Daemon) {
	exact.Text(o, "version", &d.Version, 1, 0)
	exact.Text(o, "label", &d.Label, 1, ai.MaxLabelUnits)
	exact.Word(o, "platform", &d.Platform, ai.Platforms())
}

// The two requests that the pair endpoint takes, told apart by their action.
const (
	actionStart = "start"
	actionPoll  = "poll"
)

func (d *Dialect) pairRequest() exact.Shape[ai.PairRequest] {
	capabilities := d.capabilities()
	daemon := exact.Shape[ai.Daemon]{Unknown: d.lenient(), Fields: daemonFields}
	return exact.Shape[ai.PairRequest]{Fields: func(o *exact.Object, p *ai.PairRequest) {
		d.declare(o)
		var action string
		if o.Writing() {
			if (p.Start == nil) == (p.Poll == nil) {
				o.Fail(exact.ErrRange, "exactly one of start and poll")
				return
			}
			action = actionStart
			if p.Poll != nil {
				action = actionPoll
			}
		}
		exact.Word(o, "action", &action, []string{actionStart, actionPoll})
		switch action {
		case actionStart:
			if p.Start == nil {
				p.Start = new(ai.PairStartRequest)
			}
			exact.Sub(o, "daemon", &p.Start.Daemon, daemon)
			exact.Sub(o, "device", &p.Start.Device, publicIdentity)
			capabilities(o, &p.Start.Capabilities)
		case actionPoll:
			if p.Poll == nil {
				p.Poll = new(ai.PairPollRequest)
			}
			exact.Text(o, "deviceCode", &p.Poll.DeviceCode, ai.MinDeviceCodeUnits, 0)
		}
	}}
}

var pairStartResponse = exact.Shape[ai.PairStartResponse]{Fields: func(o *exact.Object, p *ai.PairStartResponse) {
	exact.Text(o, "deviceCode", &p.DeviceCode, ai.MinDeviceCodeUnits, 0)
	exact.Text(o, "userCode", &p.UserCode, ai.MinUserCodeUnits, ai.MaxUserCodeUnits)
	exact.Text(o, "verificationUrl", &p.VerificationURL, 1, 0)
	checkURL(o, "verificationUrl", &p.VerificationURL)
	exact.Whole(o, "expiresAt", &p.ExpiresAt, 1, 0)
	exact.Whole(o, "pollIntervalMs", &p.PollIntervalMs, ai.MinPollIntervalMs, ai.MaxPollIntervalMs)
}}

func (d *Dialect) pairPollResponse() exact.Shape[ai.PairPollResponse] {
	return exact.Shape[ai.PairPollResponse]{Fields: func(o *exact.Object, p *ai.PairPollResponse) {
		exact.Word(o, "status", &p.Status, ai.PairStatuses())
		if o.Failed() {
			return
		}
		approved := p.Status == ai.PairApproved
		if o.Writing() && approved != (p.Approved != nil) {
			o.Fail(exact.ErrRange, "an approval with the status approved, and only then")
			return
		}
		if !approved {
			return
		}
		if p.Approved == nil {
			p.Approved = new(ai.PairApproval)
		}
		exact.Text(o, "runnerId", &p.Approved.RunnerID, 1, 0)
		exact.Text(o, "owner", &p.Approved.Owner, 1, 0)
		exact.OptText(o, "ownerLabel", &p.Approved.OwnerLabel, 0, 0)
		exact.Map(o, "sites", &p.Approved.Sites, publicIdentity)
		if d.Grants {
			exact.OptText(o, "controlPlanePublic", &p.Approved.ControlPlane, 1, 0)
		}
	}}
}

func (d *Dialect) claimRequest() exact.Shape[ai.ClaimRequest] {
	capabilities := d.capabilities()
	return exact.Shape[ai.ClaimRequest]{Fields: func(o *exact.Object, c *ai.ClaimRequest) {
		d.declare(o)
		exact.Text(o, "runnerId", &c.RunnerID, 1, 0)
		capabilities(o, &c.Capabilities)
		exact.Whole(o, "max", &c.Max, 1, ai.MaxClaim)
	}}
}

func (d *Dialect) claimResponse() exact.Shape[ai.ClaimResponse] {
	stub := d.claimedStub()
	return exact.Shape[ai.ClaimResponse]{Fields: func(o *exact.Object, c *ai.ClaimResponse) {
		exact.List(o, "jobs", &c.Jobs, 0, 0, stub)
		exact.Whole(o, "leaseMs", &c.LeaseMs, 1, 0)
	}}
}

func (d *Dialect) fetchRequest() exact.Shape[ai.FetchRequest] {
	return exact.Shape[ai.FetchRequest]{Fields: func(o *exact.Object, f *ai.FetchRequest) {
		d.declare(o)
		exact.Text(o, "runnerId", &f.RunnerID, 1, 0)
		grantFields(o, &f.Grant)
	}}
}

var sealedEnvelope = exact.Shape[ai.SealedEnvelope]{Fields: func(o *exact.Object, e *ai.SealedEnvelope) {
	exact.Text(o, "ciphertext", &e.Ciphertext, 1, 0)
	exact.Text(o, "recipientKeyId", &e.RecipientKeyID, 1, 0)
	exact.Text(o, "senderKeyId", &e.SenderKeyID, 1, 0)
	exact.Word(o, "direction", &e.Direction, ai.Directions())
	exact.Whole(o, "deadlineAt", &e.DeadlineAt, 1, 0)
}}

var fetchResponse = exact.Shape[ai.FetchResponse]{Fields: func(o *exact.Object, f *ai.FetchResponse) {
	exact.Sub(o, "envelope", &f.Envelope, sealedEnvelope)
}}

func (d *Dialect) heartbeatRequest() exact.Shape[ai.HeartbeatRequest] {
	capabilities, withheld, held := d.capabilities(), d.withheld(), d.heldGrant()
	return exact.Shape[ai.HeartbeatRequest]{Fields: func(o *exact.Object, h *ai.HeartbeatRequest) {
		d.declare(o)
		exact.Text(o, "runnerId", &h.RunnerID, 1, 0)
		exact.Text(o, "daemonVersion", &h.DaemonVersion, 1, 0)
		capabilities(o, &h.Capabilities)
		if d.Services {
			exact.OptList(o, "withheld", &h.Withheld, 0, 0, withheld)
		}
		exact.List(o, "activeLeases", &h.ActiveLeases, 0, 0, held)
		if d.Paused {
			exact.Bool(o, "paused", &h.Paused)
		} else if h.Paused && len(h.Capabilities) > 0 { // the server would hand out work
			o.Fail(exact.ErrRange, "without capabilities while paused, which this version says by that alone")
		}
	}}
}

// succession is a key that a site had, and its word for the next one.
var succession = exact.Shape[ai.Succession]{Fields: func(o *exact.Object, s *ai.Succession) {
	exact.Sub(o, "identity", &s.Identity, publicIdentity)
	exact.Text(o, "signature", &s.Signature, 1, 0)
}}

var siteSuccession = exact.Shape[ai.SiteSuccession]{Fields: func(o *exact.Object, s *ai.SiteSuccession) {
	exact.List(o, "succeeds", &s.Succeeds, 0, ai.MaxSuccessions, succession)
	optMillis(o, "retiringUntil", &s.RetiringUntil)
}}

func (d *Dialect) heartbeatResponse() exact.Shape[ai.HeartbeatResponse] {
	return exact.Shape[ai.HeartbeatResponse]{Fields: func(o *exact.Object, h *ai.HeartbeatResponse) {
		exact.Map(o, "sites", &h.Sites, publicIdentity)
		if d.Grants {
			exact.OptMap(o, "successions", &h.Successions, siteSuccession)
		}
		exact.List(o, "cancel", &h.Cancel, 0, 0, grant)
		exact.List(o, "lost", &h.Lost, 0, 0, grant)
		exact.Whole(o, "serverTime", &h.ServerTime, 1, 0)
		exact.Texts(o, "awaitingConsent", &h.AwaitingConsent)
		if d.Grants {
			exact.OptText(o, "updateTo", &h.UpdateTo, 1, 0)
		}
	}}
}

func (d *Dialect) resultRequest() exact.Shape[ai.ResultRequest] {
	return exact.Shape[ai.ResultRequest]{Fields: func(o *exact.Object, r *ai.ResultRequest) {
		d.declare(o)
		exact.Text(o, "runnerId", &r.RunnerID, 1, 0)
		grantFields(o, &r.Grant)
		exact.Sub(o, "envelope", &r.Envelope, sealedEnvelope)
		exact.Word(o, "disposition", &r.Disposition, ai.Dispositions())
	}}
}

var resultResponse = exact.Shape[ai.ResultResponse]{Fields: func(o *exact.Object, r *ai.ResultResponse) {
	exact.Bool(o, "accepted", &r.Accepted)
	exact.OptBool(o, "duplicate", &r.Duplicate)
	exact.Text(o, "state", &r.State, 1, 0)
}}

func (d *Dialect) releaseRequest() exact.Shape[ai.ReleaseRequest] {
	held := d.heldGrant()
	return exact.Shape[ai.ReleaseRequest]{Fields: func(o *exact.Object, r *ai.ReleaseRequest) {
		d.declare(o)
		exact.Text(o, "runnerId", &r.RunnerID, 1, 0)
		exact.List(o, "leases", &r.Leases, 0, 0, held)
		exact.Word(o, "reason", &r.Reason, ai.ReleaseReasons())
	}}
}

var releaseResponse = exact.Shape[ai.ReleaseResponse]{Fields: func(o *exact.Object, r *ai.ReleaseResponse) {
	exact.Texts(o, "released", &r.Released)
}}

func (d *Dialect) wireError() exact.Shape[ai.Error] {
	return exact.Shape[ai.Error]{Fields: func(o *exact.Object, e *ai.Error) {
		exact.Word(o, "error", &e.Code, d.Codes)
		exact.Text(o, "message", &e.Message, 1, 0)
		exact.OptTexts(o, "supported", &e.Supported)
		exact.OptText(o, "minimum", &e.Minimum, 1, 0)
		exact.OptText(o, "floor", &e.Floor, 1, 0) // whose code not all versions have
		retry := exact.Opt[int64]{}
		if e.RetryAfter != nil {
			retry = exact.Some(*e.RetryAfter)
		}
		exact.OptWhole(o, "retryAfter", &retry, 0, 0)
		if retry.Set {
			e.RetryAfter = &retry.V
		}
		optMillis(o, "serverTime", &e.ServerTime)
		optMillis(o, "maxSkewMs", &e.MaxSkewMs)
		if o.Failed() {
			return
		}
		version := e.Supported != nil || e.Minimum != ""
		skew := e.ServerTime != 0 || e.MaxSkewMs != 0
		if version != (e.Code == ai.Code(ai.ErrUnsupportedVersion.Name())) {
			o.Fail(exact.ErrRange, "supported or minimum with that code, and only then")
		}
		if (e.Floor != "") != (e.Code == ai.Code(ai.ErrBelowFloor.Name())) {
			o.Fail(exact.ErrRange, "floor with that code, and only then")
		}
		if skew != (e.Code == ai.Code(ai.ErrClockSkew.Name())) {
			o.Fail(exact.ErrRange, "serverTime or maxSkewMs with that code, and only then")
		}
	}}
}

// optMillis is an optional whole number from 1; absent reads as 0.
func optMillis[N ~int64](o *exact.Object, name string, p *N) {
	v := exact.Opt[N]{Set: *p != 0, V: *p}
	exact.OptWhole(o, name, &v, 1, 0)
	*p = v.V
}

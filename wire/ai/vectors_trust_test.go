package ai_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/grant"
	"github.com/allodhq/allod/wire/ai/succession"
)

// claims are a grant as the recording writes it.
type claims struct {
	GrantID     string
	JobID       ai.JobID
	Site        ai.KeyID
	User, Owner ai.Owner
	Purpose     string
	Kind        ai.Kind
	Service     string
	IssuedAt    ai.Millis
	Signature   string
}

func runGrant(t *testing.T, _ *recording, v vector) (got, want any) {
	var c struct {
		Key, ControlPlane       string
		Claims, Grant           claims
		StatementB64, Signature string
		Owner                   ai.Owner
		JobID                   ai.JobID
		Now, MaxAgeMs           int64
		Result                  *string
	}
	v.decode(t, &c)
	switch v.Kind {
	case "grantStatement":
		return base64.StdEncoding.EncodeToString(statementOf(t, c.Claims)), c.StatementB64
	case "signGrant":
		signature, err := vectorKeys(t)[c.Key].Signer().Sign(statementOf(t, c.Claims))
		if err != nil {
			t.Fatal(err)
		}
		return signature.String(), c.Signature
	case "verifyGrant":
		// The recorded program does not look at the stub, so it is the grant's.
		stub := ai.Stub{ID: c.JobID, Kind: c.Grant.Kind, Owner: c.Grant.User, Site: c.Grant.Site, Purpose: c.Grant.Purpose}
		plane, _ := grant.ParseControlPlane(identityOf(vectorKeys(t), c.ControlPlane).String())
		age := grant.MaxAge
		if c.MaxAgeMs != 0 {
			age = time.Duration(c.MaxAgeMs) * time.Millisecond
		}
		err := grant.Verify(plane, ai.SignedGrant(c.Grant), c.Owner, stub, ai.Millis(c.Now), age)
		return recordedName(t, err, map[*refusal.Kind]string{
			grant.ErrOwner: "wrong-owner", grant.ErrJob: "wrong-job", grant.ErrAhead: "from-the-future", grant.ErrExpired: "expired",
			grant.ErrSignature: "bad-signature",
		}), c.Result
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

func statementOf(t *testing.T, c claims) []byte {
	t.Helper()
	statement, err := grant.Statement(ai.SignedGrant(c))
	if err != nil {
		t.Fatal(err)
	}
	return statement
}

// grantStatement is the statement of a grant whose members are their own names,
// as a list.
func grantStatement(t *testing.T) (list []any) {
	t.Helper()
	text := statementOf(t, claims{
		GrantID: "grantId", JobID: "jobId", Site: "site", User: "user", Owner: "owner", Purpose: "purpose", Kind: "kind",
		Service: "service", IssuedAt: 1,
	})
	if err := json.Unmarshal(text, &list); err != nil || list[2] != 1.0 {
		t.Fatalf("the statement is %s, %v", text, err)
	}
	list[2] = "issuedAt"
	return list
}

// recordedName is what the recording calls an error, or nil for none.
func recordedName(t *testing.T, err error, names map[*refusal.Kind]string) any {
	t.Helper()
	if err == nil {
		return nil
	}
	for kind, name := range names {
		if errors.Is(err, kind) {
			return name
		}
	}
	t.Fatalf("unnamed error: %v", err)
	return nil
}

func runSuccession(t *testing.T, _ *recording, v vector) (got, want any) {
	type link struct {
		Identity  struct{ Identity, Encryption, EncryptionSig string }
		Signature string
	}
	var c struct {
		From, To, StatementB64 string
		Previous, Next         string
		Link                   link
		OK                     bool
		Current                string
		Chain                  []link
		Approved, Asked        []string
		Result                 struct {
			Path    []string
			From    string
			Failure string
		}
	}
	v.decode(t, &c)
	// A text that is no key id names nobody.
	id := func(text string) key.Fingerprint {
		f, _ := key.ParseFingerprint(text)
		return f
	}
	of := func(l link) ai.Succession {
		return ai.Succession{Identity: ai.PublicIdentity(l.Identity), Signature: l.Signature}
	}
	switch v.Kind {
	case "successionStatement":
		return base64.StdEncoding.EncodeToString(succession.Statement(id(c.From), id(c.To))), c.StatementB64
	case "signSuccession":
		previous, next := vectorKeys(t)[c.Previous], vectorKeys(t)[c.Next]
		signature, err := previous.Signer().Sign(succession.Statement(previous.Identity().Fingerprint(), next.Identity().Fingerprint()))
		if err != nil {
			t.Fatal(err)
		}
		made := ai.Succession{Identity: ai.PublicIdentityOf(previous.Identity()), Signature: signature.String()}
		if _, err := succession.VerifyLink(made, next.Identity().Fingerprint()); err != nil {
			t.Errorf("what was signed does not verify: %v", err)
		}
		return made, of(c.Link)
	case "verifyLink":
		_, err := succession.VerifyLink(of(c.Link), id(c.To))
		return err == nil, c.OK
	case "walkSuccession":
		var chain []ai.Succession
		for _, l := range c.Chain {
			chain = append(chain, of(l))
		}
		type walk struct {
			Path, Asked []string
			Failure     any
		}
		g := walk{Asked: []string{}}
		path, err := succession.Walk(id(c.Current), chain, func(f key.Fingerprint) bool {
			g.Asked = append(g.Asked, f.String())
			return slices.Contains(c.Approved, f.String())
		})
		for _, f := range path {
			g.Path = append(g.Path, f.String())
		}
		g.Failure = recordedName(t, err, map[*refusal.Kind]string{
			succession.ErrNoChain: "no-chain", succession.ErrTooLong: "too-long", succession.ErrLink: "broken-link",
			succession.ErrOrigin: "unknown-origin",
		})
		w := walk{Path: c.Result.Path, Asked: c.Asked}
		if c.Result.Failure != "" {
			// Where a walk that failed had come to is what was asked.
			w.Path, w.Failure = nil, c.Result.Failure
		} else if c.Result.From != c.Result.Path[0] {
			t.Fatal("the recorded walk does not begin where it was approved")
		}
		return g, w
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

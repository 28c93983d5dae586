package grant_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/grant"
)

const now = ai.Millis(1_750_000_000_000)

// canary is a text that no refusal has by chance.
const canary = "canarybird"

func signerOf(t testing.TB, seed string) key.Signing {
	t.Helper()
	k, err := key.NewSigning(strings.NewReader(strings.Repeat(seed, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func planeOf(t testing.TB, signer key.Signer) grant.ControlPlane {
	t.Helper()
	c, err := grant.ParseControlPlane(signer.Public().String())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// granted is a grant and the stub that it is for, unsigned.
func granted() (ai.SignedGrant, ai.Stub) {
	g := ai.SignedGrant{
		GrantID: "grant_1", JobID: "job_1", Site: "BYOLLM-S", User: "alice", Owner: "bob", Purpose: "drafts", Kind: ai.KindChat, Service: "local",
		IssuedAt: now,
	}
	return g, ai.Stub{ID: "job_1", Kind: ai.KindChat, Owner: "alice", Site: "BYOLLM-S", Audience: ai.AudienceNamed, Purpose: "drafts"}
}

func sign(t testing.TB, signer key.Signer, g ai.SignedGrant) ai.SignedGrant {
	t.Helper()
	statement, err := grant.Statement(g)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := signer.Sign(statement)
	if err != nil {
		t.Fatal(err)
	}
	g.Signature = signature.String()
	return g
}

// TestStatement compares what is signed with the words of doc.go.
func TestStatement(t *testing.T) {
	g, _ := granted()
	want := `["byollm/v1/grant","grant_1",1750000000000,"job_1","llm.chat","bob","drafts","local","BYOLLM-S","alice"]`
	if got, err := grant.Statement(g); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	g.Signature = "another"
	if got, err := grant.Statement(g); err != nil || string(got) != want {
		t.Errorf("the signature changes what is signed: %s, %v", got, err)
	}
	g.User, g.IssuedAt = "\"\\\n\x01\x7f</\u2028\U0001D11E", 1
	want = `["byollm/v1/grant","grant_1",1,"job_1","llm.chat","bob","drafts","local","BYOLLM-S","\"\\\n\u0001` + "\x7f</\u2028\U0001D11E" + `"]`
	if got, err := grant.Statement(g); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, set := range texts(&g) {
		*set = "a\xff"
		if got, err := grant.Statement(g); err == nil || got != nil {
			t.Errorf("invalid UTF-8 is signed as %s", got)
		}
		*set = "a"
	}
}

// texts are the signed texts of a grant, in the order of the statement.
func texts(g *ai.SignedGrant) []*string {
	return []*string{
		&g.GrantID, (*string)(&g.JobID), (*string)(&g.Kind), (*string)(&g.Owner), &g.Purpose, &g.Service, (*string)(&g.Site), (*string)(&g.User),
	}
}

// TestStatementsDiffer holds that no two grants have one statement, whatever
// their texts are: it is read back as what it was made of.
func TestStatementsDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g ai.SignedGrant
		want := []any{"byollm/v1/grant"}
		for _, text := range texts(&g) {
			*text = rapid.String().Draw(t, "text")
			want = append(want, *text)
		}
		g.IssuedAt = ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "time"))
		want = slices.Insert(want, 2, any(float64(g.IssuedAt)))
		statement, err := grant.Statement(g)
		if err != nil {
			t.Fatal(err)
		}
		var got []any
		if err := json.Unmarshal(statement, &got); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s reads as %v, %v", statement, got, err)
		}
	})
}

// TestVerify has every verdict, and their order: a case that breaks several
// things is named by the first.
func TestVerify(t *testing.T) {
	signer, mallory := signerOf(t, "c"), signerOf(t, "m")
	plane := planeOf(t, signer)
	g, stub := granted()
	good := sign(t, signer, g)
	const age, ahead = ai.Millis(120_000), ai.Millis(30_000)
	for what, c := range map[string]struct {
		change func(g *ai.SignedGrant, s *ai.Stub)
		resign key.Signer // signs what was changed
		owner  ai.Owner
		now    ai.Millis
		want   error
	}{
		"good":                      {},
		"as old as may be":          {now: now + age},
		"older":                     {now: now + age + 1, want: grant.ErrExpired},
		"as far ahead as may be":    {now: now - ahead},
		"further ahead":             {now: now - ahead - 1, want: grant.ErrAhead},
		"from the end of time":      {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.IssuedAt = math.MaxInt64 }, resign: signer, want: grant.ErrAhead},
		"from the beginning":        {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.IssuedAt = math.MinInt64 }, resign: signer, want: grant.ErrExpired},
		"another owner's device":    {owner: "eve", want: grant.ErrOwner},
		"nobody's device":           {owner: " ", want: grant.ErrOwner},
		"another job":               {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.ID = "job_2" }, want: grant.ErrJob},
		"signed by another":         {change: func(*ai.SignedGrant, *ai.Stub) {}, resign: mallory, want: grant.ErrSignature},
		"another person":            {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Owner = "bob" }, want: grant.ErrStub},
		"another site":              {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Site = "BYOLLM-T" }, want: grant.ErrStub},
		"another kind":              {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Kind = ai.KindGenerate }, want: grant.ErrStub},
		"another purpose":           {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Purpose = "mail" }, want: grant.ErrStub},
		"no purpose":                {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Purpose = "" }, want: grant.ErrStub},
		"the purpose of none":       {change: func(g *ai.SignedGrant, s *ai.Stub) { g.Purpose, s.Purpose = "default", "" }, resign: signer},
		"the purpose of none, said": {change: func(g *ai.SignedGrant, s *ai.Stub) { g.Purpose, s.Purpose = "default", "default" }, resign: signer},
		"an audience of any kind":   {change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Audience = "self" }}, // the match is another question

		"no signature":            {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.Signature = "" }, want: grant.ErrSignature},
		"a padded signature":      {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.Signature += "==" }, want: grant.ErrSignature},
		"a signature and a space": {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.Signature += " " }, want: grant.ErrSignature},
		"a cut signature":         {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.Signature = g.Signature[:85] }, want: grant.ErrSignature},
		"another grant id":        {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.GrantID += "x" }, want: grant.ErrSignature},
		"another service":         {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.Service = "remote" }, want: grant.ErrSignature},
		"another person, in both": {change: func(g *ai.SignedGrant, s *ai.Stub) { g.User, s.Owner = "eve", "eve" }, want: grant.ErrSignature},
		"another site, in both":   {change: func(g *ai.SignedGrant, s *ai.Stub) { g.Site, s.Site = "T", "T" }, want: grant.ErrSignature},
		"another job, in both":    {change: func(g *ai.SignedGrant, s *ai.Stub) { g.JobID, s.ID = "k", "k" }, want: grant.ErrSignature},
		"a younger grant":         {change: func(g *ai.SignedGrant, _ *ai.Stub) { g.IssuedAt++ }, want: grant.ErrSignature},
		"bytes that are no text":  {change: func(g *ai.SignedGrant, s *ai.Stub) { g.User, s.Owner = "\xff", "\xff" }, want: grant.ErrSignature},

		// The order.
		"owner before job":           {owner: "eve", change: func(_ *ai.SignedGrant, s *ai.Stub) { s.ID = "job_2" }, want: grant.ErrOwner},
		"owner before age":           {owner: "eve", now: now + age + 1, want: grant.ErrOwner},
		"job before the future":      {now: 1, change: func(_ *ai.SignedGrant, s *ai.Stub) { s.ID = "job_2" }, want: grant.ErrJob},
		"the future before a stub":   {now: 1, change: func(_ *ai.SignedGrant, s *ai.Stub) { s.Site = "T" }, want: grant.ErrAhead},
		"age before the signature":   {now: now + age + 1, change: func(g *ai.SignedGrant, _ *ai.Stub) { g.Signature = "AAAA" }, want: grant.ErrExpired},
		"the signature before stubs": {change: func(g *ai.SignedGrant, s *ai.Stub) { g.Signature, s.Site = "AAAA", "T" }, want: grant.ErrSignature},
	} {
		g, s := good, stub
		if c.change != nil {
			c.change(&g, &s)
		}
		if c.resign != nil {
			g = sign(t, c.resign, g)
		}
		owner, at := c.owner, c.now
		if owner == "" {
			owner = "bob"
		}
		if at == 0 {
			at = now
		}
		if err := grant.Verify(plane, g, owner, s, at, grant.MaxAge); !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	// A shorter age is a test's.
	if err := grant.Verify(plane, good, "bob", stub, now+1001, time.Second); !errors.Is(err, grant.ErrExpired) {
		t.Errorf("older than asked for: %v", err)
	}
}

// TestNobodyGrantsNothing holds that a device without a control plane takes no
// grant, however it is signed.
func TestNobodyGrantsNothing(t *testing.T) {
	g, stub := granted()
	for _, signature := range []string{"", strings.Repeat("A", 86), sign(t, signerOf(t, "c"), g).Signature} {
		g.Signature = signature
		if err := grant.Verify(grant.ControlPlane{}, g, "bob", stub, now, grant.MaxAge); !errors.Is(err, grant.ErrSignature) {
			t.Errorf("%q: %v", signature, err)
		}
	}
}

// TestNoTextNoStatement holds that a grant without a statement is not verified as
// an empty one, which a control plane may once have signed.
func TestNoTextNoStatement(t *testing.T) {
	signer := signerOf(t, "c")
	signature, err := signer.Sign(nil)
	if err != nil {
		t.Fatal(err)
	}
	g, stub := granted()
	g.User, stub.Owner, g.Signature = "\xff", "\xff", signature.String()
	if err := grant.Verify(planeOf(t, signer), g, "bob", stub, now, grant.MaxAge); !errors.Is(err, grant.ErrSignature) {
		t.Errorf("%v", err)
	}
}

func TestControlPlane(t *testing.T) {
	signer := signerOf(t, "c")
	text := signer.Public().String()
	c := planeOf(t, signer)
	if c.IsZero() || c.String() != text || c.Fingerprint() != signer.Public().Fingerprint() || c != planeOf(t, signer) || c == planeOf(t, signerOf(t, "m")) {
		t.Errorf("%s is read as %s, %s", text, c, c.Fingerprint())
	}
	for _, bad := range []string{"", text + "=", " " + text, text[:42], text + "A", strings.Repeat("!", 43), canary} {
		if c, err := grant.ParseControlPlane(bad); !errors.Is(err, key.ErrText) || !c.IsZero() || c.String() != "" {
			t.Errorf("%q is read as %s, %v", bad, c, err)
		}
	}
}

// FuzzVerify holds that what is accepted was signed for that owner and job, and
// that refusals repeat nothing of what came in.
func FuzzVerify(f *testing.F) {
	signer := signerOf(f, "c")
	plane := planeOf(f, signer)
	g, stub := granted()
	good := sign(f, signer, g)
	f.Add(good.GrantID, string(good.JobID), string(good.User), string(good.Owner), good.Purpose, good.Signature, int64(good.IssuedAt), int64(now))
	f.Add(canary, "\xff", "\u2028", "bob", "", good.Signature+"=", int64(math.MaxInt64), int64(1))
	f.Fuzz(func(t *testing.T, id, job, user, owner, purpose, signature string, issued, at int64) {
		h := good
		h.GrantID, h.JobID, h.User, h.Owner, h.Purpose, h.Signature, h.IssuedAt = id, ai.JobID(job), ai.Owner(user), ai.Owner(owner), purpose, signature, ai.Millis(issued)
		// Clocks are in the range that messages have.
		err := grant.Verify(plane, h, "bob", stub, ai.Millis(at&(1<<53-1)), grant.MaxAge)
		if err == nil && h != good {
			t.Fatalf("%+v was never signed", h)
		}
		if err != nil && slices.IndexFunc(grant.Kinds.Kinds, func(k *refusal.Kind) bool { return err == error(k) }) < 0 {
			t.Fatalf("unnamed, or with more than a name: %v", err)
		}
	})
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"grant-owner 403", "grant-job 403", "grant-ahead 403", "grant-expired 403", "grant-signature 403", "grant-stub 403"}
	var got []string
	for _, k := range grant.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || grant.Kinds.Title != "Grants of a control plane" {
		t.Errorf("%q: %q", grant.Kinds.Title, got)
	}
	if grant.MaxAge != 2*time.Minute || grant.MaxAhead != 30*time.Second || grant.DefaultPurpose != "default" {
		t.Errorf("%v, %v, %q", grant.MaxAge, grant.MaxAhead, grant.DefaultPurpose)
	}
}

package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// older is a server that speaks only some versions of the protocol. It notes
// what each request declared.
type older struct {
	speaks   []string
	declared []string
}

func (o *older) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var q struct{ ProtocolVersion string }
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	o.declared = append(o.declared, q.ProtocolVersion)
	status, answer := http.StatusOK, `{"jobs":[],"leaseMs":60000}`
	if !slices.Contains(o.speaks, q.ProtocolVersion) {
		status = http.StatusBadRequest
		answer = `{"error":"unsupported-protocol-version","message":"m","supported":["` + strings.Join(o.speaks, `","`) + `"],"minimum":"` + o.speaks[0] + `"}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// TestSaidInAVersionsWords: what a version has no word for is offered to fewer, or
// not at all, in every request that says what is offered. The request goes out.
func TestSaidInAVersionsWords(t *testing.T) {
	keys := keysOf(t)
	one := func(id backend.ID, scope ai.OfferScope) ai.Capability {
		c := offers[0]
		c.BackendID, c.OfferScope = id, scope
		return c
	}
	mine := []ai.Capability{one("ollama", ai.OfferPublic), one("vllm", ai.OfferNamed), one("codex-cli", ai.OfferSelf)}
	before := slices.Clone(mine)
	for version, want := range map[string]string{"0": "ollama public, vllm named", "2": "ollama team, vllm team, codex-cli private"} {
		var said []string
		d := client.New(client.Config{
			Server: serverAt(t, "http://localhost"), Version: "1", Clock: func() time.Time { return t0 }, Spoken: client.Spoken{Version: version, At: ai.MillisOf(t0)},
			Transport: listener(func(body []byte) {
				var q struct {
					Capabilities []struct{ BackendID, OfferScope string }
				}
				if err := json.Unmarshal(body, &q); err != nil {
					t.Fatal(err)
				}
				var words []string
				for _, c := range q.Capabilities {
					words = append(words, c.BackendID+" "+c.OfferScope)
				}
				said = append(said, strings.Join(words, ", "))
			}),
		}).As("r", keys.Signer())
		_, _ = d.Claim(t.Context(), 0, ai.ClaimRequest{Capabilities: mine, Max: 1})
		_, _ = d.Heartbeat(t.Context(), 0, ai.HeartbeatRequest{Capabilities: mine})
		_, _ = d.PairStart(t.Context(), ai.PairStartRequest{
			Daemon: ai.Daemon{Version: "1", Label: "l", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(keys.Identity()), Capabilities: mine,
		})
		if !slices.Equal(said, []string{want, want, want}) {
			t.Errorf("version %s says %q", version, said)
		}
		if !reflect.DeepEqual(mine, before) {
			t.Fatalf("the caller's own were changed: %+v", mine)
		}
	}
}

// listener is a server that hears and does not answer.
type listener func(body []byte)

func (l listener) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		l(body)
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// TestVersions: the newest version that both know is spoken, it is remembered,
// and the server is asked again when it refuses, or after a day in which it may
// have learned a newer one.
func TestVersions(t *testing.T) {
	keys := keysOf(t)
	now := t0
	var told []client.Spoken
	server := &older{}
	ask := func(d *client.Device, want ...string) error {
		t.Helper()
		server.declared = nil
		_, err := d.Claim(t.Context(), 0, ai.ClaimRequest{Capabilities: offers, Max: 1})
		if !slices.Equal(server.declared, want) {
			t.Errorf("it declared %q, want %q", server.declared, want)
		}
		return err
	}
	begin := func(s client.Spoken) *client.Device {
		c := client.New(client.Config{
			Server: serverAt(t, "http://localhost"), Version: "1", Clock: func() time.Time { return now }, Transport: server,
			Spoken: s, Agreed: func(s client.Spoken) { told = append(told, s) },
		})
		t.Cleanup(c.Close)
		return c.As("runner_1", keys.Signer())
	}
	agreed := func(d *client.Device, version string, at time.Time, news int) {
		t.Helper()
		if s := d.Spoken(); s != (client.Spoken{Version: version, At: ai.MillisOf(at)}) || d.Codec().Version != version {
			t.Errorf("spoken %+v, codec %s", s, d.Codec().Version)
		}
		if len(told) != news || news > 0 && told[news-1] != d.Spoken() {
			t.Errorf("told %+v", told)
		}
	}

	// A server that knows all is asked once.
	server.speaks = []string{"0", "2"}
	d := begin(client.Spoken{})
	ok(t, "all", ask(d, "2"))
	agreed(d, "2", t0, 1)
	ok(t, "again", ask(d, "2"))
	agreed(d, "2", t0, 1)

	// One that is older now says so, and from then on is spoken to in its words.
	server.speaks = []string{"0", "1"}
	now = now.Add(time.Hour)
	ok(t, "older", ask(d, "2", "0"))
	agreed(d, "0", now, 2)
	ok(t, "older again", ask(d, "0"))

	// A new process begins with what was remembered.
	d, told = begin(d.Spoken()), nil
	ok(t, "remembered", ask(d, "0"))
	agreed(d, "0", now, 0)

	// After a day it is asked for the newest, and again after the next.
	now = now.Add(24 * time.Hour)
	ok(t, "the next day", ask(d, "2", "0"))
	agreed(d, "0", now, 1)
	ok(t, "later that day", ask(d, "0"))
	server.speaks = []string{"2", "3"}
	now = now.Add(24 * time.Hour)
	ok(t, "a server that learned", ask(d, "2"))
	agreed(d, "2", now, 2)

	// Nothing in common: it is said, and nothing is remembered.
	for what, speaks := range map[string][]string{"newer": {"3"}, "between": {"1"}} {
		server.speaks = speaks
		d, told = begin(client.Spoken{}), nil
		mustBe(t, what, ask(d, "2"), ai.ErrUnsupportedVersion)
		if len(told) > 0 || d.Spoken().Version != "" {
			t.Errorf("%s: remembered %+v", what, d.Spoken())
		}
	}

	// A version that this program has unlearned is not begun with.
	server.speaks = []string{"2"}
	ok(t, "unlearned", ask(begin(client.Spoken{Version: "1", At: 1}), "2"))
}

// TestVersionsUnderWay: a server holds requests for a while, so that one may be
// answered after another has agreed on something else. The answer to an older
// request in an older version undoes nothing.
func TestVersionsUnderWay(t *testing.T) {
	keys := keysOf(t)
	now := t0
	server := &older{speaks: []string{"0", "2"}}
	begun, held := make(chan struct{}), make(chan struct{})
	var told []client.Spoken
	c := client.New(client.Config{
		Server: serverAt(t, "http://localhost"), Version: "1", Clock: func() time.Time { return now },
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Prefer") != "" {
				close(begun)
				<-held
			}
			return server.RoundTrip(r)
		}),
		Spoken: client.Spoken{Version: "0", At: ai.MillisOf(t0)}, Agreed: func(s client.Spoken) { told = append(told, s) },
	})
	t.Cleanup(c.Close)
	d := c.As("runner_1", keys.Signer())
	claim := func(wait time.Duration) error {
		_, err := d.Claim(t.Context(), wait, ai.ClaimRequest{Capabilities: offers, Max: 1})
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- claim(20 * time.Second) }()
	<-begun // in version 0, and held
	now = now.Add(24 * time.Hour)
	ok(t, "the next day", claim(0))
	want := client.Spoken{Version: "2", At: ai.MillisOf(now)}
	if d.Spoken() != want {
		t.Fatalf("spoken %+v", d.Spoken())
	}
	close(held)
	ok(t, "held", <-ended)
	if !slices.Equal(server.declared, []string{"2", "0"}) {
		t.Fatalf("it declared %q, so the test is wrong", server.declared)
	}
	if d.Spoken() != want || d.Codec().Version != "2" || !slices.Equal(told, []client.Spoken{want}) {
		t.Errorf("after an answer to an older request: spoken %+v, told %+v", d.Spoken(), told)
	}
}

// TestVersionsThatDoNotHelp: another answer than a refusal of the version is no
// reason to ask in another, and a request is sent twice at most.
func TestVersionsThatDoNotHelp(t *testing.T) {
	supports := `"supported":["0"],"minimum":"0"`
	for what, c := range map[string]struct {
		status int
		answer string
		want   int // how often it asks
	}{
		"the version":                    {http.StatusBadRequest, `{"error":"unsupported-protocol-version","message":"m",` + supports + `}`, 2},
		"the version, by another status": {http.StatusForbidden, `{"error":"unsupported-protocol-version","message":"m",` + supports + `}`, 1},
		"the version that it names":      {http.StatusBadRequest, `{"error":"unsupported-protocol-version","message":"m","supported":["2"],"minimum":"2"}`, 1},
		"the version, and none is named": {http.StatusBadRequest, `{"error":"unsupported-protocol-version","message":"m","supported":[],"minimum":"0"}`, 1},
		"the request":                    {http.StatusBadRequest, `{"error":"bad-request","message":"m"}`, 1},
		"the caller":                     {http.StatusUnauthorized, `{"error":"unauthorized","message":"m"}`, 1},
		"the device":                     {http.StatusGone, `{"error":"revoked","message":"m"}`, 1},
		"a page":                         {http.StatusBadRequest, `<html>`, 1},
		"a failure":                      {http.StatusInternalServerError, `{"error":"internal","message":"m"}`, 1},
		"no answer that can be read":     {http.StatusOK, `{"jobs":[]}`, 1},
	} {
		asked := 0
		d := at(t, "http://localhost", roundTrip(func(r *http.Request) (*http.Response, error) {
			asked++
			return static(c.status, c.answer).RoundTrip(r)
		}))
		if _, err := d.Claim(t.Context(), 0, ai.ClaimRequest{Capabilities: offers, Max: 1}); err == nil || asked != c.want {
			t.Errorf("%s: asked %d times, %v", what, asked, err)
		}
		if s := d.Spoken(); s != (client.Spoken{}) {
			t.Errorf("%s: remembered %+v", what, s)
		}
	}
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

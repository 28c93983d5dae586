package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/wire/ai"
)

// requests are the seven bodies that a device sends, with the members that each
// has in the newest version of the protocol.
var requests = []struct {
	name    string
	do      func(ctx context.Context, d *client.Device) error
	members []string
}{
	{"start", func(ctx context.Context, d *client.Device) error {
		_, err := d.PairStart(ctx, ai.PairStartRequest{
			Daemon: ai.Daemon{Version: "1", Label: "box", Platform: ai.PlatformLinux},
			Device: ai.PublicIdentity{Identity: "i", Encryption: "e", EncryptionSig: "s"}, Capabilities: offers,
		})
		return err
	}, []string{"action", "capabilities", "daemon", "device"}},
	{"poll", func(ctx context.Context, d *client.Device) error {
		_, err := d.PairPoll(ctx, ai.PairPollRequest{DeviceCode: ai.DeviceCode(strings.Repeat("d", 43))})
		return err
	}, []string{"action", "deviceCode"}},
	{"claim", func(ctx context.Context, d *client.Device) error {
		_, err := d.Claim(ctx, 0, ai.ClaimRequest{Capabilities: offers, Max: 1})
		return err
	}, []string{"capabilities", "max", "runnerId"}},
	{"fetch", func(ctx context.Context, d *client.Device) error {
		_, err := d.Fetch(ctx, grant)
		return err
	}, []string{"jobId", "leaseId", "runnerId"}},
	{"heartbeat", func(ctx context.Context, d *client.Device) error {
		_, err := d.Heartbeat(ctx, 0, ai.HeartbeatRequest{Capabilities: offers, ActiveLeases: []ai.Grant{grant}})
		return err
	}, []string{"activeLeases", "capabilities", "daemonVersion", "runnerId"}},
	{"result", func(ctx context.Context, d *client.Device) error {
		_, err := d.Result(ctx, ai.ResultRequest{Grant: grant, Envelope: envelope, Disposition: ai.DispositionOK})
		return err
	}, []string{"disposition", "envelope", "jobId", "leaseId", "runnerId"}},
	{"release", func(ctx context.Context, d *client.Device) error {
		_, err := d.Release(ctx, ai.ReleasePause, []ai.Grant{grant})
		return err
	}, []string{"leases", "reason", "runnerId"}},
}

// TestRequestsSayNoMore: every request declares its version (MUST
// VERSION_HANDSHAKE_REQUIRED), and says of the device what the contract asks and
// nothing else: no list, and no configuration (MUSTs ROSTER_NOT_DISCLOSED and
// EFFECTIVE_OFFER_ONLY). The members are read by another reader than ours.
func TestRequestsSayNoMore(t *testing.T) {
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			var sent map[string]json.RawMessage
			d := at(t, "http://localhost", roundTrip(func(q *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(q.Body)
				if err == nil {
					err = json.Unmarshal(body, &sent)
				}
				if err != nil {
					t.Error(err)
				}
				return nil, io.EOF
			}))
			mustBe(t, "no answer", r.do(t.Context(), d), client.ErrUnreachable)
			if string(sent["protocolVersion"]) != `"2"` {
				t.Errorf("it declares %s", sent["protocolVersion"])
			}
			if got := slices.Sorted(maps.Keys(sent)); !slices.Equal(got, slices.Sorted(slices.Values(append(r.members, "protocolVersion")))) {
				t.Errorf("it says %v", got)
			}
			if text, ok := sent["capabilities"]; ok {
				var list []map[string]string
				if err := json.Unmarshal(text, &list); err != nil || len(list) != 1 {
					t.Fatalf("%s: %v", text, err)
				}
				if got := slices.Sorted(maps.Keys(list[0])); !slices.Equal(got, []string{"backendClass", "backendId", "kind", "model", "offerScope", "service"}) {
					t.Errorf("an offer says %v", got)
				}
			}
		})
	}
}

// TestUnsupportedVersionIsNamed: a device that is of another version than its
// server learns that, and does not ask again and again (MUST
// VERSION_HANDSHAKE_REQUIRED).
func TestUnsupportedVersionIsNamed(t *testing.T) {
	const refused = `{"error":"unsupported-protocol-version","message":"Upgrade.","supported":["1","3"],"minimum":"1"}`
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			err := r.do(t.Context(), at(t, "http://localhost", static(http.StatusBadRequest, refused)))
			mustBe(t, "another version", err, ai.ErrUnsupportedVersion)
			var wire *ai.Error
			if !errors.As(err, &wire) || !slices.Equal(wire.Supported, []string{"1", "3"}) || wire.Minimum != "1" {
				t.Errorf("what is spoken is lost: %+v", wire)
			}
			if again, _ := client.Retry(err); again {
				t.Error("it would be tried again")
			}
		})
	}
}

// TestStubsSayNoMore: a claim's answer whose stub has a member too many or too
// few, or a word that the contract does not have, is no answer, and nothing of
// it is taken on (MUSTs STUB_METADATA_EXHAUSTIVE, ROSTER_NOT_DISCLOSED and
// KIND_TYPED_ONLY).
func TestStubsSayNoMore(t *testing.T) {
	stub := func(name, value string) string {
		members := map[string]string{
			"id": `"j"`, "kind": `"llm.chat"`, "owner": `"o"`, "site": `"s"`, "audience": `"private"`, "sizeClass": `"small"`, "streaming": "false", "deadlineAt": "9",
			"lease": `{"id":"l","runnerId":"runner_1","expiresAt":9}`,
		}
		if members[name] = value; value == "" {
			delete(members, name)
		}
		var list []string
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if name != "" {
				list = append(list, `"`+name+`":`+members[name])
			}
		}
		return `{"jobs":[{` + strings.Join(list, ",") + `}],"leaseMs":60000}`
	}
	type change struct{ name, value string }
	cases := map[string]change{
		"a prompt": {"prompt", `"p"`}, "a payload": {"payload", `{"prompt":"p"}`}, "a list of owners": {"audienceAllow", `["o"]`}, "an empty list": {"allowedOwners", `[]`},
		"a model": {"model", `"m"`}, "a command": {"command", `"ls"`}, "a null": {"x", "null"},
		"another kind": {"kind", `"shell.run"`}, "a kind in capitals": {"kind", `"LLM.CHAT"`}, "no kind's text": {"kind", `""`},
		"another audience": {"audience", `"everyone"`}, "an older word for an audience": {"audience", `"self"`}, "another size": {"sizeClass", `"huge"`},
	}
	for _, name := range []string{"id", "kind", "owner", "site", "audience", "sizeClass", "streaming", "deadlineAt", "lease"} {
		cases["without "+name] = change{name, ""}
	}
	ask := func(body string) (ai.ClaimResponse, error) {
		return at(t, "http://localhost", static(http.StatusOK, body)).Claim(t.Context(), 0, ai.ClaimRequest{Max: 1})
	}
	if got, err := ask(stub("", "")); err != nil || len(got.Jobs) != 1 || got.Jobs[0].Lease.ID != "l" {
		t.Fatalf("a good stub: %+v, %v", got, err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ask(stub(c.name, c.value))
			mustBe(t, name, err, client.ErrAnswer)
			if len(got.Jobs) > 0 {
				t.Errorf("read %+v", got)
			}
		})
	}
}

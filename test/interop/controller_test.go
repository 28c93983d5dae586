//go:build unix

package interop

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/test/programs"
)

// rule starts `allod controller serve` on a new folder. It returns its origin, its first
// login link and a file with its authority's certificate.
func rule(t *testing.T) (origin, login, trust string) {
	t.Helper()
	if err := keyfile.Platform(); err != nil {
		t.Skip("this system keeps no key files")
	}
	data, said := filepath.Join(t.TempDir(), "data"), &programs.Transcript{}
	c := exec.CommandContext(t.Context(), programs.Allod(t), "controller", "serve", "--data", data, "--listen", "127.0.0.1:0", "--json")
	c.Stderr = said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var first struct{ Origin, Login string }
	if err := errors.Join(err, json.Unmarshal(line, &first)); err != nil {
		t.Fatalf("first line %s: %v\n%s", line, err, said)
	}
	// The file also holds the authority's key, which is for nobody else.
	rest, err := os.ReadFile(filepath.Join(data, ca.File))
	if err != nil {
		t.Fatal(err)
	}
	var certificates []byte
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			certificates = append(certificates, pem.EncodeToMemory(block)...)
		}
	}
	trust = filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(trust, certificates, 0o600); err != nil {
		t.Fatal(err)
	}
	return first.Origin, first.Login, trust
}

// TestTypedRequestController is the published client with a real controller, by TLS under
// the controller's own authority: it logs in, reads, and is refused by name and by release.
func TestTypedRequestController(t *testing.T) {
	node := programs.Node(t, ".")
	t.Parallel()
	origin, login, trust := rule(t)
	offer := object{"interfacesVersion": "32.0.0", "minimumPeerVersion": "32.0.0"}
	newer := object{"interfacesVersion": "33.1.0", "minimumPeerVersion": "33.0.0"}
	exchange := typedRequest{"exchangeLoginLink", object{"code": login[strings.LastIndex(login, "/")+1:], "protocol": offer}}
	foreign := typedRequest{"exchangeLoginLink", object{"code": exchange.Request["code"], "protocol": newer}}
	refused := func(kind error, code string) object {
		return object{"error": object{"text": kind.Error(), "data": object{"code": code}}}
	}

	// A foreign release comes first and uses nothing up.
	in := fire(t, node, origin, trust, foreign, exchange, exchange)
	same(t, "a foreign major", in[0], object{"error": object{
		"text": "protocol-incompatible: major-mismatch: refusing side speaks 32.0.0 and accepts from 32.0.0; refused side speaks 33.1.0 and accepts from 33.0.0",
		"data": object{"code": "protocol-incompatible", "reason": "major-mismatch", "refusing": offer, "refused": newer}}})
	jwt, _ := at(in[1], "response", "identity", "jwt").(string)
	expires, _ := at(in[1], "response", "expiresAt").(float64)
	if life := time.Until(time.UnixMilli(int64(expires))); strings.Count(jwt, ".") != 2 || life <= 0 || life > 24*time.Hour {
		t.Fatalf("the login: %v", in[1])
	}
	same(t, "a login", in[1], object{"response": object{"identity": object{"jwt": jwt}, "operatorId": "admin", "expiresAt": expires, "protocol": offer}})
	same(t, "the link a second time", in[2], refused(people.ErrLink, "zone-login-link"))

	identity := object{"jwt": jwt}
	known := fire(t, node, origin, trust,
		typedRequest{"getIdentity", object{"identity": identity, "protocol": offer}},
		typedRequest{"getClusters", object{"organizationId": "main", "cursor": nil, "identity": identity, "protocol": offer}},
		typedRequest{"getClusterRuntime", object{"clusterId": "absent", "identity": identity, "protocol": offer}},
	)
	same(t, "who one is", known[0], object{"response": object{
		"kind": "operator", "operatorId": "admin", "serviceId": nil, "organizationId": nil, "installation": true,
		"memberships": []object{{"organizationId": "main", "role": "administrator"}}, "expiresAt": expires, "protocol": offer}})
	clusters, _ := at(known[1], "response", "clusters").([]any)
	if len(clusters) != 1 || at(clusters[0], "id") != "main" || at(clusters[0], "organizationId") != "main" {
		t.Errorf("the clusters: %v", known[1])
	}
	same(t, "an absent cluster", known[2], refused(who.ErrAbsent, "zone-absent"))
}

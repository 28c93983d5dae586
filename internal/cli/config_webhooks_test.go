package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/site/webhook"
	"github.com/allodhq/allod/wire/ai"
)

func TestWebhookSettings(t *testing.T) {
	s, problems := everything().setup(inFile())
	want := []webhook.Endpoint{{URL: "http://10.1.2.3/in", Owners: []ai.Owner{"alice"}, States: []ai.State{ai.StateOK, ai.StateExpired}}}
	if !reflect.DeepEqual(s.webhooks.Endpoints, want) || fmt.Sprint(s.webhooks.Private) != "[10.0.0.0/8]" {
		t.Errorf("%+v, %+v", s.webhooks, problems)
	}
	const (
		owners = "1 to 256 owners; leave it out for everybody's jobs"
		states = "some of [ok error canceled expired]; leave it out for all"
		ranges = "a range of addresses, as in 10.0.0.0/8"
	)
	hook := func(url string) webhookConfig { return webhookConfig{URL: url, SecretFile: "s"} }
	for _, test := range []struct {
		hooks   []webhookConfig
		private []string
		want    []string // place, and the refusal's name or what it must be
	}{
		{[]webhookConfig{hook("https://a.example"), hook("https://a.example/2")}, nil, nil},
		{[]webhookConfig{hook("https://a.example"), hook("https://A.example:443/")}, nil, []string{"site.webhooks[1].url webhook-config"}},
		{[]webhookConfig{hook("canary"), hook("http://canary.example"), hook("https://127.0.0.1")}, nil,
			[]string{"site.webhooks[0].url webhook-url", "site.webhooks[1].url webhook-url", "site.webhooks[2].url webhook-address"}},
		{[]webhookConfig{hook("http://a.lan"), hook("http://10.0.0.1"), hook("http://11.0.0.1")}, []string{"10.0.0.0/8"}, []string{"site.webhooks[2].url webhook-address"}},
		{nil, []string{"::/0", "10.0.0.1", "canary", "::ffff:10.0.0.0/104"},
			[]string{"site.webhookPrivate[1] " + ranges, "site.webhookPrivate[2] " + ranges, "site.webhookPrivate[3] " + ranges}},
		{nil, slices.Repeat([]string{"::/0"}, 65), []string{"site.webhookPrivate at most 64 ranges of addresses"}},
		{[]webhookConfig{{"https://a.example", "s", []ai.Owner{}, []ai.State{}}}, nil,
			[]string{"site.webhooks[0].owners " + owners, "site.webhooks[0].states " + states}},
		{[]webhookConfig{{"https://a.example", "s", slices.Repeat([]ai.Owner{"o"}, 257), []ai.State{ai.StateOK, "canary"}}}, nil,
			[]string{"site.webhooks[0].owners " + owners, "site.webhooks[0].states " + states}},
		{[]webhookConfig{{"canary", "s", nil, []ai.State{ai.StateRunning}}}, nil,
			[]string{"site.webhooks[0].states " + states, "site.webhooks[0].url webhook-url"}},
	} {
		_, problems := siteConfig{Data: "d", Webhooks: test.hooks, WebhookPrivate: test.private}.setup(inFile())
		var got []string
		for _, p := range problems {
			what := p.what.Kind().Name()
			if p.named {
				what = strings.TrimSuffix(strings.TrimPrefix(p.what.Detail(), p.at+": must be "), ".")
			}
			got = append(got, p.at+" "+what)
			if strings.Contains(p.line(), "canary") {
				t.Errorf("what was given is repeated: %s", p.line())
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v, %v:\n%q, want\n%q", test.hooks, test.private, got, test.want)
		}
	}
	// More than sixteen are refused as they are read.
	list := strings.Repeat(`{"url":"https://a.example","secretFile":"s"},`, 17)
	if _, err := configfile.ReadBytes([]byte(`{"site":{"data":"d","webhooks":[`+list+`]}}`), machineShape); !errors.Is(err, configfile.ErrMember) {
		t.Errorf("seventeen: %v", err)
	}
}

func TestWebhookSecretFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	c := siteConfig{Data: dir, Webhooks: []webhookConfig{{URL: "https://a.example/1", SecretFile: one}, {URL: "https://a.example/2", SecretFile: two}, {URL: "https://a.example/3", SecretFile: one}}}
	s, problems := c.setup(inFile())
	if found := s.probeWebhooks(); len(problems)+len(found) > 0 {
		t.Fatalf("%+v %+v", problems, found)
	}
	if _, err := os.Stat(one); !errors.Is(err, fs.ErrNotExist) {
		t.Error("looking made a file")
	}
	paths, err := s.openSecrets()
	ends := s.webhooks.Endpoints
	if err != nil || !slices.Equal(paths, []string{one, two}) || len(ends[0].Secrets) != 1 || ends[0].Secrets[0] == ends[1].Secrets[0] || ends[0].Secrets[0] != ends[2].Secrets[0] {
		t.Fatalf("%v, %v", paths, err)
	}
	again, _ := c.setup(inFile())
	if _, err := again.openSecrets(); err != nil || !reflect.DeepEqual(again.webhooks, s.webhooks) {
		t.Errorf("at the next start the secrets are others: %v", err)
	}

	// What cannot be used is named by its place.
	if err := os.WriteFile(two, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := s.probeWebhooks()
	if len(found) != 1 || found[0].at != "site.webhooks[1].secretFile" || !errors.Is(found[0].refusal(), webhook.ErrSecret) || strings.Contains(found[0].line(), "canary") {
		t.Errorf("a damaged file: %+v", found)
	}
	if _, err := again.openSecrets(); !errors.Is(err, webhook.ErrSecret) || !strings.Contains(err.Error(), "See site.webhooks[1].secretFile.") {
		t.Errorf("a damaged file: %v", err)
	}
	c.Webhooks[1].SecretFile = filepath.Join(dir, "none", "two")
	s, _ = c.setup(inFile())
	if found := s.probeWebhooks(); len(found) != 1 || found[0].at != "site.webhooks[1].secretFile" || !errors.Is(found[0].refusal(), configfile.ErrMember) {
		t.Errorf("no folder: %+v", found)
	}
	if _, err := s.openSecrets(); !errors.Is(err, webhook.ErrSecretFile) {
		t.Errorf("no folder: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(one, 0o644); err != nil {
		t.Fatal(err)
	}
	if found := s.probeWebhooks(); len(found) != 3 || !errors.Is(found[0].refusal(), webhook.ErrSecretFile) {
		t.Errorf("open to others: %+v", found)
	}
}

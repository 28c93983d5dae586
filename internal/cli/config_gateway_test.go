package cli

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/wire/ai"
)

func TestGatewaySetup(t *testing.T) {
	given := gatewayConfig{
		Labels: map[string]gateway.Label{"friends": {Audience: ai.AudienceNamed}, "a.b:c": {Kind: ai.KindChat, Audience: ai.AudienceSelf}},
		Drop:   []string{"temperature", "top_k"}, Wait: "1h", Grace: "1s",
	}
	filled, g, problems := given.setup()
	if len(problems) > 0 || !reflect.DeepEqual(filled, given) || !reflect.DeepEqual(g.Labels, given.Labels) || !slices.Equal(g.Drop, given.Drop) ||
		g.Wait != time.Hour || g.Grace != time.Second {
		t.Errorf("%+v %+v %+v", filled, g, problems)
	}
	filled, g, problems = gatewayConfig{}.setup()
	if len(problems) > 0 || filled.Wait != "9m" || filled.Grace != "10s" || g.Wait != 9*time.Minute || g.Grace != 10*time.Second || len(g.Labels) != 0 {
		t.Errorf("%+v %+v %+v", filled, g, problems)
	}

	labels := func(n int, names ...string) map[string]gateway.Label {
		all := map[string]gateway.Label{}
		for i := range n {
			all[fmt.Sprintf("l%d", i)] = gateway.Label{Audience: ai.AudienceSelf}
		}
		for _, name := range names {
			all[name] = gateway.Label{Audience: ai.AudienceSelf}
		}
		return all
	}
	for name, c := range map[string]struct {
		config gatewayConfig
		at     string // empty where it is taken
	}{
		"the reserved label":           {gatewayConfig{Labels: labels(0, "a", "auto")}, "site.gateway.labels[1]"},
		"a label with spaces":          {gatewayConfig{Labels: labels(0, "canary x")}, "site.gateway.labels[0]"},
		"many labels":                  {gatewayConfig{Labels: labels(64)}, ""},
		"too many labels":              {gatewayConfig{Labels: labels(65)}, "site.gateway.labels"},
		"the model dropped":            {gatewayConfig{Drop: []string{"seed", "model"}}, "site.gateway.drop[1]"},
		"no name dropped":              {gatewayConfig{Drop: []string{"can ary"}}, "site.gateway.drop[0]"},
		"much dropped":                 {gatewayConfig{Drop: slices.Repeat([]string{"seed"}, 64)}, ""},
		"too much dropped":             {gatewayConfig{Drop: slices.Repeat([]string{"seed"}, 65)}, "site.gateway.drop"},
		"no time":                      {gatewayConfig{Wait: "canary"}, "site.gateway.wait"},
		"too short a wait":             {gatewayConfig{Wait: "999ms"}, "site.gateway.wait"},
		"too long a wait":              {gatewayConfig{Wait: "1h1s"}, "site.gateway.wait"},
		"a label with a slash":         {gatewayConfig{Labels: labels(0, "a/b")}, "site.gateway.labels[0]"},
		"a label of a dot":             {gatewayConfig{Labels: labels(0, ".")}, "site.gateway.labels[0]"},
		"a label of dots":              {gatewayConfig{Labels: labels(0, "..")}, "site.gateway.labels[0]"},
		"a grace as long as the wait":  {gatewayConfig{Wait: "20s", Grace: "20s"}, "site.gateway.grace"},
		"a longer grace":               {gatewayConfig{Grace: "10m"}, "site.gateway.grace"},
		"a wait below the usual grace": {gatewayConfig{Wait: "9s"}, "site.gateway.grace"},
		"a grace a bit shorter":        {gatewayConfig{Wait: "20s", Grace: "19999ms"}, ""},
		"no grace":                     {gatewayConfig{Grace: "0s"}, "site.gateway.grace"},
	} {
		_, _, problems := c.config.setup()
		var at []string
		for _, p := range problems {
			at = append(at, p.at)
			if text := p.refusal().Error(); !strings.Contains(text, p.at) || strings.Contains(text, "canary") {
				t.Errorf("%s: %s", name, text)
			}
		}
		if got := strings.Join(at, " "); got != c.at {
			t.Errorf("%s: problems at %q, want %q", name, got, c.at)
		}
	}
	// The section of a site carries them.
	_, found := siteConfig{Data: "d", Gateway: &gatewayConfig{Wait: "x"}}.setup(inFile())
	if len(found) != 1 || found[0].at != "site.gateway.wait" {
		t.Errorf("%+v", found)
	}
}

// TestGatewayInAFile holds what a file says and may not say.
func TestGatewayInAFile(t *testing.T) {
	for text, want := range map[string]error{
		`{"labels":{"x":{"audience":"named","kind":"llm.chat"},"y":{"audience":"public"}},"drop":["a"],"wait":"1m","grace":"5s"}`: nil,
		`{}`:                                  nil,
		`{"labels":{"x":{}}}`:                 exact.ErrMissing,
		`{"labels":{"x":{"audience":"all"}}}`: exact.ErrMember,
		`{"labels":{"x":{"audience":"self"},"x":1}}`: exact.ErrDuplicate,
		`{"model":"x"}`: exact.ErrUnknown,
		`{"drop":[""]}`: exact.ErrRange,
	} {
		_, err := gatewayShape.Read([]byte(text), exact.Limits{Bytes: 1 << 10, Depth: 8, Values: 100})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	m, err := configfile.ReadBytes([]byte(`{"site":{"data":"d","gateway":{"labels":{"x":{"audience":"named"}}}}}`), machineShape)
	if err != nil || m.Site.Gateway == nil || m.Site.Gateway.Labels["x"].Audience != ai.AudienceNamed {
		t.Errorf("%+v %v", m.Site, err)
	}
}

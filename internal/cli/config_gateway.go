package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/wire/ai"
)

// gatewayConfig is what a site's section says of OpenAI's clients, as a person
// wrote it. What is empty has its default.
type gatewayConfig struct {
	Labels      map[string]gateway.Label
	Drop        []string
	Wait, Grace string
}

var labelShape = exact.Shape[gateway.Label]{Fields: func(o *exact.Object, l *gateway.Label) {
	exact.OptWord(o, "kind", &l.Kind, ai.Kinds())
	exact.Word(o, "audience", &l.Audience, ai.Audiences())
}}

var gatewayShape = exact.Shape[gatewayConfig]{Fields: func(o *exact.Object, c *gatewayConfig) {
	exact.OptMap(o, "labels", &c.Labels, labelShape)
	exact.OptTexts(o, "drop", &c.Drop)
	exact.OptText(o, "wait", &c.Wait, 1, 64)
	exact.OptText(o, "grace", &c.Grace, 1, 64)
}}

// What the gateway's settings mean where they say nothing, and their bounds.
const (
	defaultGatewayWait  = "9m"
	defaultGatewayGrace = "10s"
	minGatewayTime      = time.Second
	maxLabels           = 64
	maxDrop             = 64
)

// gatewayPlace is where a gateway is configured: in a file only.
const gatewayPlace = "site.gateway"

// setup reads the settings and fills in defaults.
func (c gatewayConfig) setup() (filled gatewayConfig, g gateway.Config, problems []problem) {
	for i, name := range slices.Sorted(maps.Keys(c.Labels)) {
		if !gateway.Labelable(name) {
			// The name is what is wrong, so the place is its number in the order of names.
			problems = append(problems, must(fmt.Sprintf("%s.labels[%d]", gatewayPlace, i),
				"named by 1 to 64 letters, digits and - _ . :, and not auto, . or .."))
		}
	}
	if len(c.Labels) > maxLabels {
		problems = append(problems, must(gatewayPlace+".labels", fmt.Sprintf("at most %d labels", maxLabels)))
	}
	for i, name := range c.Drop {
		if !gateway.Droppable(name) {
			problems = append(problems, must(fmt.Sprintf("%s.drop[%d]", gatewayPlace, i),
				"the name of a member that means nothing to the gateway, as temperature"))
		}
	}
	if len(c.Drop) > maxDrop {
		problems = append(problems, must(gatewayPlace+".drop", fmt.Sprintf("at most %d names", maxDrop)))
	}
	for _, d := range []struct {
		member  string
		text    *string
		initial string
		into    *time.Duration
	}{
		{".wait", &c.Wait, defaultGatewayWait, &g.Wait},
		{".grace", &c.Grace, defaultGatewayGrace, &g.Grace},
	} {
		if *d.text == "" {
			*d.text = d.initial
		}
		span, err := time.ParseDuration(*d.text)
		if err != nil || span < minGatewayTime || span > gateway.MaxWait {
			problems = append(problems, must(gatewayPlace+d.member, "a time from 1s to 1h, as in 90s"))
		}
		*d.into = span
	}
	if len(problems) == 0 && g.Grace >= g.Wait {
		problems = append(problems, must(gatewayPlace+".grace", "shorter than wait"))
	}
	g.Labels, g.Drop = c.Labels, c.Drop
	return c, g, problems
}

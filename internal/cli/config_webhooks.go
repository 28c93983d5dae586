package cli

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/site/webhook"
	"github.com/allodhq/allod/wire/ai"
)

// webhookConfig is one entry of a site's webhooks, as a person wrote it.
type webhookConfig struct {
	URL, SecretFile string
	Owners          []ai.Owner
	States          []ai.State
}

var webhookShape = exact.Shape[webhookConfig]{Fields: func(o *exact.Object, c *webhookConfig) {
	exact.Text(o, "url", &c.URL, 1, 0)
	exact.Text(o, "secretFile", &c.SecretFile, 1, 0)
	exact.OptTexts(o, "owners", &c.Owners)
	exact.OptTexts(o, "states", &c.States)
}}

// webhooksPlace and privatePlace are where webhooks are configured: in a file only.
const (
	webhooksPlace = "site.webhooks"
	privatePlace  = "site.webhookPrivate"
)

// entryOf is the place of one entry of a list.
func entryOf(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// webhookFields are the members of a site's section that concern webhooks.
func webhookFields(o *exact.Object, c *siteConfig) {
	exact.OptList(o, "webhooks", &c.Webhooks, 0, webhook.MaxEndpoints, webhookShape)
	exact.OptTexts(o, "webhookPrivate", &c.WebhookPrivate)
}

// readRange reads a range of addresses. Addresses are compared in their IPv4 form,
// so the other form would match none.
func readRange(text string) (p netip.Prefix, ok bool) {
	p, err := netip.ParsePrefix(text)
	return p, err == nil && !p.Addr().Is4In6()
}

// setupWebhooks reads the settings of webhooks, but for the secrets.
func (s *siteSetup) setupWebhooks() (problems []problem) {
	if len(s.WebhookPrivate) > webhook.MaxPrivate {
		return []problem{must(privatePlace, fmt.Sprintf("at most %d ranges of addresses", webhook.MaxPrivate))}
	}
	for i, text := range s.WebhookPrivate {
		if p, ok := readRange(text); ok {
			s.webhooks.Private = append(s.webhooks.Private, p)
		} else {
			problems = append(problems, must(entryOf(privatePlace, i), "a range of addresses, as in 10.0.0.0/8"))
		}
	}
	var states []string
	for _, state := range ai.States() {
		if state.Terminal() {
			states = append(states, string(state))
		}
	}
	for i, w := range s.Webhooks {
		e := webhook.Endpoint{URL: w.URL, Owners: w.Owners, States: w.States}
		if w.Owners != nil && (len(w.Owners) == 0 || len(w.Owners) > webhook.MaxOwners) {
			problems = append(problems, must(entryOf(webhooksPlace, i)+".owners", fmt.Sprintf("1 to %d owners; leave it out for everybody's jobs", webhook.MaxOwners)))
			e.Owners = nil
		}
		if w.States != nil && (len(w.States) == 0 || slices.ContainsFunc(w.States, func(s ai.State) bool { return !s.Terminal() })) {
			problems = append(problems, must(entryOf(webhooksPlace, i)+".states", fmt.Sprintf("some of %v; leave it out for all", states)))
			e.States = nil
		}
		s.webhooks.Endpoints = append(s.webhooks.Endpoints, e)
	}
	each, whole := s.webhooks.Check()
	for i, err := range each {
		if err != nil { // the other members are fine by now
			problems = append(problems, about(entryOf(webhooksPlace, i)+".url", err))
		}
	}
	if whole != nil {
		problems = append(problems, about(webhooksPlace, whole))
	}
	return problems
}

// probeWebhooks looks at the secrets' files. One that is not there is made at the
// start.
func (s siteSetup) probeWebhooks() (problems []problem) {
	for i, w := range s.Webhooks {
		place := entryOf(webhooksPlace, i) + ".secretFile"
		switch {
		case exists(w.SecretFile):
			if _, err := webhook.LoadSecrets(w.SecretFile); err != nil {
				problems = append(problems, about(place, err))
			}
		case !exists(filepath.Dir(w.SecretFile)):
			problems = append(problems, must(place, "a path in a folder that is there"))
		}
	}
	return problems
}

// openSecrets loads the secrets, makes those that are not there, and returns the
// files' paths, each once.
func (s *siteSetup) openSecrets() (paths []string, err error) {
	for i, w := range s.Webhooks {
		if !exists(w.SecretFile) {
			err = webhook.CreateSecret(w.SecretFile, rand.Reader)
		}
		e := &s.webhooks.Endpoints[i]
		if err == nil {
			e.Secrets, err = webhook.LoadSecrets(w.SecretFile)
		}
		if err != nil {
			return nil, about(entryOf(webhooksPlace, i)+".secretFile", err).refusal()
		}
		if !slices.Contains(paths, w.SecretFile) {
			paths = append(paths, w.SecretFile)
		}
	}
	return paths, nil
}

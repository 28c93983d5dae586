package api_test

import (
	"strings"
	"testing"
)

// TestF68OwnershipOverTheCarrier: what is created has exactly the owner that the
// request names beside it, who has to be the caller's own, and nothing of it can be
// in what a caller writes.
func TestF68OwnershipOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	mine, theirs := w.estate("mine"), w.estate("theirs")
	data := map[string]string{
		"createService": `"service":{"name":"n","clusterId":null}`,
		"createCluster": `"cluster":{"name":"n"}`,
	}
	own := `"organizationId":"org-mine"`
	for method, good := range data {
		into := func(member string) string { return strings.Replace(good, `{`, `{`+member+`,`, 1) }
		for what, r := range map[string]struct{ members, code string }{
			"no owner":                     {good, "request-schema-invalid"},
			"null":                         {good + `,"organizationId":null`, "request-schema-invalid"},
			"nothing":                      {good + `,"organizationId":""`, "request-schema-invalid"},
			"a number":                     {good + `,"organizationId":1`, "request-schema-invalid"},
			"capitals":                     {good + `,"organizationId":"Org-Mine"`, "request-schema-invalid"},
			"a blank":                      {good + `,"organizationId":"org mine"`, "request-schema-invalid"},
			"a path":                       {good + `,"organizationId":"../org-mine"`, "request-schema-invalid"},
			"a long one":                   {good + `,"organizationId":"` + strings.Repeat("a", 300) + `"`, "request-schema-invalid"},
			"another spelling":             {good + `,"OrganizationId":"org-mine"`, "request-schema-invalid"},
			"in the data, alone":           {into(own), "request-schema-invalid"},
			"in the data, beside":          {into(own) + `,` + own, "request-schema-invalid"},
			"another's in the data":        {into(`"organizationId":"org-theirs"`) + `,` + own, "request-schema-invalid"},
			"an owner of another name":     {into(`"ownerId":"org-theirs"`) + `,` + own, "request-schema-invalid"},
			"a name of its own in request": {good + `,` + own + `,"id":"chosen"`, "request-schema-invalid"},
			"another's":                    {good + `,"organizationId":"org-theirs"`, "zone-absent"},
			"nobody's":                     {good + `,"organizationId":"org-none"`, "zone-absent"},
		} {
			members := r.members + `,"mutationId":"` + w.id() + `"`
			cost := w.refuses(what, method, members, mine.jwt, r.code)
			if r.code == "request-schema-invalid" && cost.Transactions > 0 {
				t.Errorf("%s, %s: a request of no form cost %+v", what, method, cost)
			}
			if text := w.session(mine.jwt)(method, members); !strings.Contains(text, `"code":"`+r.code+`"`) {
				t.Errorf("%s, %s over a socket: %s", what, method, text)
			}
		}
		if text := w.done(method, good+`,`+own+`,"mutationId":"`+w.id()+`"`, mine.jwt); !strings.Contains(text, own) {
			t.Errorf("%s: %s", method, text)
		}
	}
	// Exactly those two were made, and nothing for anybody else.
	for e, want := range map[*estate]int{&mine: 2, &theirs: 1} {
		for _, method := range []string{"getServices", "getClusters"} {
			text := w.done(method, `"organizationId":"`+string(e.organization)+`","cursor":null`, e.jwt)
			if n := strings.Count(text, `"createdAt"`); n != want {
				t.Errorf("%s of %s: %d, want %d: %s", method, e.organization, n, want, text)
			}
		}
	}
}

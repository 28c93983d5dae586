package member_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

type asked struct {
	Identity zone.Identity
	Cursor   zone.Cursor
	Owner    zone.OrganizationID
}

var asking = codec.Of(func(o *exact.Object, a *asked) {
	member.Identity(o, &a.Identity)
	member.Cursor(o, "cursor", &a.Cursor)
	member.OrNull(o, "organizationId", &a.Owner, member.ID[zone.OrganizationID])
})

func TestO13IdentityIsATokenAndNothingElse(t *testing.T) {
	const good = `{"identity":{"jwt":"e30.e30.c2ln"},"cursor":null,"organizationId":null}`
	v, err := asking.Read([]byte(good))
	if err != nil || v.Identity.JWT.Reveal() != "e30.e30.c2ln" || v.Cursor != "" || v.Owner != "" {
		t.Fatalf("%v, %v", v, err)
	}
	if out, err := asking.Append(nil, v); err != nil || string(out) != good {
		t.Errorf("written: %s, %v", out, err)
	}
	if said := fmt.Sprintf("%v %+v %#v %s", v, v, v, v.Identity); strings.Contains(said, "c2ln") || !strings.Contains(said, "(secret)") {
		t.Errorf("printed: %s", said)
	}
	const set = `{"identity":{"jwt":"e30.e30.c2ln"},"cursor":"YQ","organizationId":"main"}`
	if v, err = asking.Read([]byte(set)); err != nil || v.Cursor != "YQ" || v.Owner != "main" {
		t.Errorf("%v, %v", v, err)
	}
	if out, err := asking.Append(nil, v); err != nil || string(out) != set {
		t.Errorf("written: %s, %v", out, err)
	}
	const token = "value.identity.jwt must be a token of at most 2048 bytes"
	for in, want := range map[string][]string{
		strings.Replace(good, `"}`, `","userId":"admin"}`, 1):                          {"value.identity must use its exact schema"},
		strings.Replace(good, `"jwt"`, `"JWT"`, 1):                                     {"value.identity must use its exact schema"},
		strings.Replace(good, `"e30.e30.c2ln"`, `null`, 1):                             {"value.identity.jwt must be a string"},
		strings.Replace(good, "e30.e30.c2ln", "", 1):                                   {token},
		strings.Replace(good, "e30.e30.c2ln", "e30.e30", 1):                            {token},
		strings.Replace(good, "e30.e30.c2ln", "e30.e30.", 1):                           {token},
		strings.Replace(good, "e30.e30.c2ln", "e30.e30.c2ln.e30", 1):                   {token},
		strings.Replace(good, "e30.e30.c2ln", "e30.e30.c2 n", 1):                       {token},
		strings.Replace(good, "c2ln", strings.Repeat("a", 2041), 1):                    {token},
		strings.Replace(good, `"cursor":null`, `"cursor":""`, 1):                       {"value.cursor must be a cursor of an answer, or null"},
		strings.Replace(good, `"cursor":null`, `"cursor":"a=b"`, 1):                    {"value.cursor must be a cursor of an answer, or null"},
		strings.Replace(good, `"cursor":null,`, ``, 1):                                 {"value must use its exact schema"},
		strings.Replace(set, `"YQ"`, `"`+strings.Repeat("a", zone.MaxCursor+1)+`"`, 1): {"value.cursor must be a cursor of an answer, or null"},
		strings.Replace(set, `"main"`, `""`, 1):                                        {"value.organizationId must be an identifier of lower-case letters, digits and . _ - between them"},
	} {
		if got := asking.Reasons([]byte(in), ""); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", in, got, want)
		}
	}
	if v, err := asking.Read([]byte(strings.Replace(good, "c2ln", strings.Repeat("a", 2040), 1))); err != nil || len(v.Identity.JWT.Reveal()) != zone.MaxToken {
		t.Errorf("the longest token: %v", err)
	}
	if out, err := asking.Append(nil, asked{}); err == nil {
		t.Errorf("no token was written: %s", out)
	}
}

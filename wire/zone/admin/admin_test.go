package admin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
)

// message is one kind of message, without its type.
type message struct {
	examples []string // the first has no null, the others have
	nullable []string // members, by their path, that may be null
	again    func(src []byte) (out []byte, printed string, err error)
	reasons  func(src []byte, path string) []string
}

func of[T any](c zone.Codec[T], nullable []string, examples ...string) message {
	return message{examples, nullable, func(src []byte) ([]byte, string, error) {
		v, err := c.Read(src)
		if err != nil {
			return nil, fmt.Sprint(err), err
		}
		out, err := c.Append(nil, v)
		return out, fmt.Sprintf("%v %+v %#v", v, v, v), err
	}, c.Reasons}
}

const (
	code         = "c2VjcmV0LW1hcmtlci0xMQ" // 16 bytes
	token        = "e30.e30.c2VjcmV0LW1hcmtlci0xMQ"
	organization = `{"organizationId":"main","name":"Our own","createdAt":1796133600987,"role":"viewer"}`
	operator     = `{"operatorId":"ada.l","name":"Ada Lovelace","installation":true,"disabled":false,"createdAt":1796133600987,"role":"administrator"}`
	entry        = `{"sequence":7,"at":1796133600987,"actor":"admin","organizationId":"main","action":"setMember","subject":"operator/ada","detail":"{}"}`
)

var messages = map[string]message{
	"ExchangeLoginLink":       of(admin.ExchangeLoginLinkCodec, nil, `{"code":"`+code+`"}`),
	"ExchangeLoginLinkAnswer": of(admin.ExchangeLoginLinkAnswerCodec, nil, `{"identity":{"jwt":"`+token+`"},"operatorId":"admin","expiresAt":1796133600987}`),
	"GetIdentity":             of(admin.GetIdentityCodec, nil, `{}`),
	"GetIdentityAnswer": of(admin.GetIdentityAnswerCodec, []string{"operatorId", "serviceId", "organizationId", "expiresAt"},
		`{"kind":"machine","operatorId":"a","serviceId":"web","organizationId":"main","installation":false,"memberships":[{"organizationId":"main","role":"viewer"}],"expiresAt":1796133600987}`,
		`{"kind":"operator","operatorId":"admin","serviceId":null,"organizationId":null,"installation":true,"memberships":[],"expiresAt":1796133600987}`,
		`{"kind":"local","operatorId":null,"serviceId":null,"organizationId":null,"installation":true,"memberships":[],"expiresAt":null}`),
	"RegisterCloudlyClientSession":       of(admin.RegisterCloudlyClientSessionCodec, nil, `{"jwt":"`+token+`"}`),
	"RegisterCloudlyClientSessionAnswer": of(admin.RegisterCloudlyClientSessionAnswerCodec, nil, `{"expiresAt":1796133600987}`),
	"CreateLoginLink":                    of(admin.CreateLoginLinkCodec, nil, `{"operatorId":"admin"}`),
	"CreateLoginLinkAnswer":              of(admin.CreateLoginLinkAnswerCodec, nil, `{"code":"`+code+`","expiresAt":1796133600987}`),
	"CreateOrganization":                 of(admin.CreateOrganizationCodec, nil, `{"organizationId":"main","name":"Our own","mutationId":"m1"}`),
	"CreateOrganizationAnswer":           of(admin.CreateOrganizationAnswerCodec, []string{"organization.role"}, `{"organization":`+organization+`,"replayed":false}`),
	"GetOrganizations":                   of(admin.GetOrganizationsCodec, []string{"cursor"}, `{"cursor":"bWFpbg"}`, `{"cursor":null}`),
	"GetOrganizationsAnswer": of(admin.GetOrganizationsAnswerCodec, []string{"organizations[].role", "nextCursor"},
		`{"organizations":[`+organization+`],"nextCursor":"bWFpbg"}`, `{"organizations":[],"nextCursor":null}`),
	"CreateOperator":       of(admin.CreateOperatorCodec, nil, `{"operatorId":"ada.l","name":"Ada Lovelace","installation":false,"mutationId":"m1"}`),
	"CreateOperatorAnswer": of(admin.CreateOperatorAnswerCodec, []string{"operator.role"}, `{"operator":`+operator+`,"replayed":true}`),
	"GetOperators": of(admin.GetOperatorsCodec, []string{"organizationId", "cursor"},
		`{"organizationId":"main","cursor":"bWFpbg"}`, `{"organizationId":null,"cursor":null}`),
	"GetOperatorsAnswer": of(admin.GetOperatorsAnswerCodec, []string{"operators[].role", "nextCursor"},
		`{"operators":[`+operator+`],"nextCursor":"bWFpbg"}`, `{"operators":[],"nextCursor":null}`),
	"SetMember": of(admin.SetMemberCodec, []string{"role"},
		`{"organizationId":"main","operatorId":"ada.l","role":"viewer","mutationId":"m1"}`, `{"organizationId":"main","operatorId":"ada.l","role":null,"mutationId":"m1"}`),
	"SetMemberAnswer": of(admin.SetMemberAnswerCodec, []string{"role"},
		`{"organizationId":"main","operatorId":"ada.l","role":"viewer","replayed":true}`),
	"DisableOperator":       of(admin.DisableOperatorCodec, nil, `{"operatorId":"ada.l","disabled":true,"mutationId":"m1"}`),
	"DisableOperatorAnswer": of(admin.DisableOperatorAnswerCodec, []string{"operator.role"}, `{"operator":`+operator+`,"replayed":true}`),
	"EndSessions":           of(admin.EndSessionsCodec, nil, `{"operatorId":"ada.l","mutationId":"m1"}`),
	"EndSessionsAnswer":     of(admin.EndSessionsAnswerCodec, nil, `{"operatorId":"ada.l","replayed":false}`),
	"GetAudit": of(admin.GetAuditCodec, []string{"organizationId", "cursor"},
		`{"organizationId":"main","cursor":"Nw","limit":256}`, `{"organizationId":null,"cursor":null,"limit":1}`),
	"GetAuditAnswer": of(admin.GetAuditAnswerCodec, []string{"entries[].organizationId", "nextCursor"},
		`{"entries":[`+entry+`],"nextCursor":"Nw"}`, `{"entries":[],"nextCursor":null}`),
}

// breaks calls use with every way to leave one member out, to add one, and to put
// something else in its place, at any depth.
func breaks(t *testing.T, src string, use func(what, path, text string)) {
	t.Helper()
	var doc any
	if err := json.Unmarshal([]byte(src), &doc); err != nil {
		t.Fatal(err)
	}
	write := func() string {
		out, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var walk func(v any, path string)
	walk = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			v["owner"] = "x"
			use("one more", path, write())
			delete(v, "owner")
			for _, name := range slices.Collect(maps.Keys(v)) {
				at := strings.TrimPrefix(path+"."+name, ".")
				old := v[name]
				delete(v, name)
				use("without", at, write())
				v[strings.ToUpper(name)] = old
				use("in capitals", at, write())
				delete(v, strings.ToUpper(name))
				for _, other := range []any{nil, map[string]any{}, []any{1}, -1, 1.5, true, "\x00", strings.Repeat("x", 1<<17)} {
					v[name] = other
					use(fmt.Sprintf("%.10v", other), at, write())
				}
				v[name] = old
				walk(old, at)
			}
		case []any:
			for _, e := range v {
				walk(e, path+"[]")
			}
		}
	}
	walk(doc, "")
}

func TestF77MessagesAreExact(t *testing.T) {
	for name, m := range messages {
		for _, example := range m.examples {
			out, _, err := m.again([]byte(example))
			if err != nil || string(out) != example {
				t.Errorf("%s: %s\n is written %s, %v", name, example, out, err)
			}
			if r := m.reasons([]byte(example), ""); len(r) != 0 {
				t.Errorf("%s: %q", name, r)
			}
		}
		tried := 0
		breaks(t, m.examples[0], func(what, path, text string) {
			tried++
			_, _, err := m.again([]byte(text))
			want := what == "\x00" && slices.Contains([]string{"entries[].actor", "entries[].action", "entries[].subject", "entries[].detail"}, path) ||
				what == "<nil>" && slices.Contains(m.nullable, path) ||
				what == "true" && slices.Contains([]string{"installation", "disabled", "replayed"}, path[strings.LastIndexByte(path, '.')+1:])
			if (err == nil) != want || (len(m.reasons([]byte(text), "")) == 0) != want {
				t.Errorf("%s: %s at %q: %v, want allowed %v", name, what, path, err, want)
			}
		})
		if tried < 1 {
			t.Errorf("%s: nothing was tried", name)
		}
		for _, src := range []string{``, `null`, `[]`, `{`, m.examples[0] + `{}`, "\ufeff" + m.examples[0]} {
			if _, _, err := m.again([]byte(src)); err == nil {
				t.Errorf("%s: %q is taken", name, src)
			}
		}
	}
}

func TestF06CodesAndTokensAreNotPrinted(t *testing.T) {
	seen := 0
	for name, m := range messages {
		_, printed, err := m.again([]byte(m.examples[0]))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(printed, "c2VjcmV0") {
			t.Errorf("%s prints %s", name, printed)
		}
		seen += strings.Count(printed, "(secret)")
		// What is refused repeats no secret either.
		breaks(t, m.examples[0], func(what, path, text string) {
			_, printed, _ := m.again([]byte(text))
			if said := printed + strings.Join(m.reasons([]byte(text), ""), "\n"); strings.Contains(said, "c2VjcmV0") {
				t.Errorf("%s, %s at %q: it says %s", name, what, path, said)
			}
		})
	}
	if seen == 0 {
		t.Error("no message has a secret, so nothing was shown")
	}
}

func TestF77TextsAndListsAreBounded(t *testing.T) {
	const make1 = `{"organizationId":"a","name":"%s","mutationId":"m"}`
	for what, c := range map[string]struct {
		name string
		good bool
	}{
		"longest":       {strings.Repeat("é", 64), true},
		"too long":      {strings.Repeat("é", 64) + "x", false},
		"empty":         {"", false},
		"a line":        {`a\nb`, false},
		"turned around": {"a\u202eb", false},
		"no width":      {"a\u200bb", false},
		"a delete":      {"a\x7fb", false},
		"of its own":    {"a\ue000b", false},
		"words":         {"Ärger & Söhne, 株式会社", true},
	} {
		if _, err := admin.CreateOrganizationCodec.Read([]byte(fmt.Sprintf(make1, c.name))); (err == nil) != c.good {
			t.Errorf("a name that is %s: %v", what, err)
		}
	}
	list := func(entry string, n int) []byte {
		return []byte(`{"organizations":[` + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + `],"nextCursor":null}`)
	}
	if v, err := admin.GetOrganizationsAnswerCodec.Read(list(organization, zone.MaxPage)); err != nil || len(v.Organizations) != 256 {
		t.Errorf("a whole page: %d, %v", len(v.Organizations), err)
	}
	if _, err := admin.GetOrganizationsAnswerCodec.Read(list(organization, zone.MaxPage+1)); err == nil {
		t.Error("a page of 257 is taken")
	}
	for limit, good := range map[string]bool{"0": false, "1": true, "256": true, "257": false, "null": false} {
		if _, err := admin.GetAuditCodec.Read([]byte(`{"organizationId":null,"cursor":null,"limit":` + limit + `}`)); (err == nil) != good {
			t.Errorf("limit %s: %v", limit, err)
		}
	}
	identity := `{"kind":"operator","operatorId":"a","serviceId":null,"organizationId":null,"installation":false,"memberships":[%s],"expiresAt":1}`
	for n, good := range map[int]bool{64: true, 65: false} {
		members := strings.TrimSuffix(strings.Repeat(`{"organizationId":"a","role":"viewer"},`, n), ",")
		if _, err := admin.GetIdentityAnswerCodec.Read([]byte(fmt.Sprintf(identity, members))); (err == nil) != good {
			t.Errorf("%d memberships: %v", n, err)
		}
	}
	for role, good := range map[string]bool{"administrator": true, "viewer": true, "owner": false, "": false, "Viewer": false} {
		if _, err := admin.SetMemberCodec.Read([]byte(`{"organizationId":"a","operatorId":"b","role":"` + role + `","mutationId":"m"}`)); (err == nil) != good {
			t.Errorf("the role %q: %v", role, err)
		}
	}
}

func TestLoginCode(t *testing.T) {
	c, err := admin.NewLoginCode(strings.NewReader("secret-marker-11 and more"))
	if err != nil || c.Reveal() != code { // printf secret-marker-11 | base64
		t.Errorf("%q, %v", c.Reveal(), err)
	}
	if _, err := admin.NewLoginCode(strings.NewReader("too short")); err == nil {
		t.Error("half a code")
	}
	if got, ok := admin.ReadLoginCode(code); !ok || !got.Equal(c) {
		t.Error("a good code is refused")
	}
	for _, bad := range []string{"", code[1:], code + "A", code[:21] + "R", code[:21] + "=", code[:21] + "+", code[:21] + "\n", strings.Repeat("\n", 22)} {
		if _, ok := admin.ReadLoginCode(bad); ok {
			t.Errorf("%q is a code", bad)
		}
		if _, err := admin.ExchangeLoginLinkCodec.Read(fmt.Appendf(nil, `{"code":%q}`, bad)); err == nil {
			t.Errorf("%q is a code in a message", bad)
		}
	}
}

func FuzzMessages(f *testing.F) {
	names := slices.Sorted(maps.Keys(messages))
	for i, name := range names {
		for _, e := range messages[name].examples {
			f.Add(byte(i), []byte(e))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, src []byte) {
		m := messages[names[int(which)%len(names)]]
		out, _, err := m.again(src)
		if (err == nil) != (len(m.reasons(src, "")) == 0) && len(src) <= zone.MaxBytes {
			t.Errorf("read %v, and the reasons differ", err)
		}
		if err != nil {
			return
		}
		again, _, err := m.again(out)
		if err != nil || !bytes.Equal(out, again) {
			t.Errorf("%s\n%s\n%v", out, again, err)
		}
	})
}

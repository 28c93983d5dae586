package nodes_test

import (
	"crypto/sha256"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	digest = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	host   = `{"hostname":"h1","kernel":"6.1.0","os":"Debian","architecture":"amd64","bootId":"b1","uptimeSeconds":9,"cpus":2,"memoryBytes":8,"diskBytes":9}`
	report = `{"observedAt":1,"load":{"cpu":1,"memory":2,"disk":3},"host":` + host + `,"bundle":{"version":"0.1.0","sourceCommit":"` + commit + `","manifestDigest":"` + digest + `"}}`

	silent = `{"id":"n1","clusterId":"c1","organizationId":"o1","hostname":"h1","joinedAt":5,"removedAt":null,"liveness":{"state":"never-seen","ageMs":0},"seen":null,"credentials":[]}`
	online = `{"id":"n2","clusterId":"c1","organizationId":"o1","hostname":"h2","joinedAt":5,"removedAt":9,"liveness":{"state":"removed","ageMs":7},"seen":{"acceptedAt":6,"report":` + report + `},"credentials":[` + credential + `]}`

	credential = `{"purpose":"spark","state":"active","generation":1,"sessionEpoch":1,"rotationRequired":false}`
	line       = "https://zone.test:8443/join#AAECAwQFBgcICQoL.LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE"
)

func TestF04MessagesAreExact(t *testing.T) {
	t.Run("node", func(t *testing.T) { zonetest.Exact(t, nodes.Codec, silent, online) })
	t.Run("invite", func(t *testing.T) { zonetest.Exact(t, nodes.InviteCodec, `{"clusterId":"c1"}`) })
	t.Run("invitation", func(t *testing.T) {
		zonetest.Exact(t, nodes.InvitationCodec, `{"line":"`+line+`","expiresAt":9}`)
	})
	t.Run("list", func(t *testing.T) {
		zonetest.Exact(t, nodes.ListCodec, `{"clusterId":"c1","cursor":null}`, `{"clusterId":null,"cursor":"bjE"}`)
	})
	t.Run("page", func(t *testing.T) {
		zonetest.Exact(t, nodes.PageCodec, `{"nodes":[],"nextCursor":null}`, `{"nodes":[`+silent+`,`+online+`],"nextCursor":"bjE"}`)
	})
	t.Run("get", func(t *testing.T) { zonetest.Exact(t, nodes.GetCodec, `{"nodeId":"n1"}`) })
	t.Run("rotate", func(t *testing.T) { zonetest.Exact(t, nodes.RotateCodec, `{"nodeId":"n1","mutationId":"m1"}`) })
	t.Run("remove", func(t *testing.T) {
		zonetest.Exact(t, nodes.RemoveCodec, `{"nodeId":"n1","palletOnly":false,"mutationId":"m1"}`)
	})
	t.Run("answer", func(t *testing.T) { zonetest.Exact(t, nodes.AnswerCodec, `{"node":`+silent+`}`, `{"node":`+online+`}`) })
	t.Run("explanation", func(t *testing.T) {
		zonetest.Exact(t, nodes.ExplanationCodec, `{"node":`+silent+`,"findings":[]}`,
			`{"node":`+online+`,"findings":[{"name":"report-late","sentence":"It is late."}]}`)
	})
}

func TestAnExplanationIsBounded(t *testing.T) {
	finding := `{"name":"report-late","sentence":"It is late."}`
	for n, want := range map[int]bool{nodes.MaxFindings: true, nodes.MaxFindings + 1: false} {
		text := `{"node":` + silent + `,"findings":[` + strings.TrimSuffix(strings.Repeat(finding+",", n), ",") + `]}`
		if _, err := nodes.ExplanationCodec.Read([]byte(text)); (err == nil) != want {
			t.Errorf("%d findings: %v", n, err)
		}
	}
}

// TestF07InputIsTheWholeRequest: the digests are made a second way, of the method
// and the request with their members in order.
func TestF07InputIsTheWholeRequest(t *testing.T) {
	for text, input := range map[string]func() (canon.Sum, error){
		`{"method":"requestNodeRotation","request":{"mutationId":"m1","nodeId":"n1"}}`:           nodes.Rotate{Node: "n1", Mutation: "m1"}.Input,
		`{"method":"removeNode","request":{"mutationId":"m1","nodeId":"n1","palletOnly":false}}`: nodes.Remove{Node: "n1", Mutation: "m1"}.Input,
		`{"method":"removeNode","request":{"mutationId":"m1","nodeId":"n1","palletOnly":true}}`:  nodes.Remove{Node: "n1", PalletOnly: true, Mutation: "m1"}.Input,
		`{"method":"removeNode","request":{"mutationId":"m2","nodeId":"n1","palletOnly":true}}`:  nodes.Remove{Node: "n1", PalletOnly: true, Mutation: "m2"}.Input,
	} {
		want := canon.Sum(sha256.Sum256([]byte("serve.zone/mutation\x00" + text)))
		if got, err := input(); err != nil || got != want {
			t.Errorf("%s: %s, want %s: %v", text, got, want, err)
		}
	}
	if _, err := (nodes.Rotate{Node: "N1", Mutation: "m1"}).Input(); err == nil {
		t.Error("a request that cannot be sent has a digest")
	}
}

// TestF09ANodeHoldsNoSecret walks the type of what is shown.
func TestF09ANodeHoldsNoSecret(t *testing.T) {
	var walk func(typ reflect.Type, path string, seen []reflect.Type)
	walk = func(typ reflect.Type, path string, seen []reflect.Type) {
		if slices.Contains(seen, typ) {
			return
		}
		seen = append(seen, typ)
		switch typ {
		case reflect.TypeFor[enroll.CredentialHash](), reflect.TypeFor[enroll.Bearer](), reflect.TypeFor[enroll.JumpCode]():
			t.Errorf("%s is a %s", path, typ)
			return
		}
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type, path+"."+typ.Field(i).Name, seen)
			}
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(typ.Elem(), path, seen)
		case reflect.Func, reflect.Interface, reflect.Map, reflect.Chan:
			t.Errorf("%s can hold anything", path)
		}
	}
	walk(reflect.TypeFor[nodes.Explanation](), "explanation", nil)
	walk(reflect.TypeFor[nodes.Page](), "page", nil)
}

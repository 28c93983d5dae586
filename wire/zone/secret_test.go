package zone_test

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone"
)

func TestF06SecretsAreNotWritten(t *testing.T) {
	const text = "marker-zPq7"
	s := zone.Conceal(text)
	in := struct {
		Open   zone.Identity
		hidden zone.Secret
		p      *zone.Secret
	}{zone.Identity{JWT: s}, s, &s}
	var said strings.Builder
	for _, v := range []any{s, &s, in, &in, []any{s}, map[string]zone.Secret{"k": s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "% X"} {
			fmt.Fprintf(&said, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&said, nil)).Info("m", "k", v)
		slog.New(slog.NewJSONHandler(&said, nil)).Info("m", "k", v)
		out, err := json.Marshal(v)
		said.Write(out)
		if !errors.Is(err, zone.ErrSecret) && !errors.Is(err, nil) {
			t.Errorf("JSON of %T: %v", v, err)
		}
	}
	for _, form := range []string{text, hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text)))} {
		if strings.Contains(said.String(), form) {
			t.Errorf("the secret is in %s", said.String())
		}
	}
	if out, err := json.Marshal(in); !errors.Is(err, zone.ErrSecret) {
		t.Errorf("JSON: %s, %v", out, err)
	}
	if _, err := xml.Marshal(s); err == nil {
		t.Error("XML wrote it")
	}
	if err := gob.NewEncoder(&bytes.Buffer{}).Encode(s); err == nil {
		t.Error("gob wrote it")
	}
	if reflect.TypeFor[zone.Secret]().Comparable() {
		t.Error("secrets compare with ==")
	}
}

func TestSecret(t *testing.T) {
	a, b, none := zone.Conceal("abc"), zone.Conceal("abd"), zone.Conceal("")
	if a.Reveal() != "abc" || none.Reveal() != "" || !none.IsZero() || a.IsZero() {
		t.Error("a secret is not what was concealed")
	}
	if !a.Equal(zone.Conceal("abc")) || a.Equal(b) || a.Equal(none) || !none.Equal(zone.Secret{}) {
		t.Error("Equal")
	}
	sum := a.Sum()
	if got := hex.EncodeToString(sum[:]); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" { // FIPS 180-2, B.1
		t.Errorf("Sum is %s", got)
	}
}

package enroll_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// counting gives the bytes 0, 1, 2 and so on.
type counting struct{ next byte }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = c.next
		c.next++
	}
	return len(p), nil
}

// The hash is of the text and not of the bytes behind it: sha256sum of the text gives
// the same. Frozen, since stores are full of it.
func TestF08HashesAreFrozen(t *testing.T) {
	r := &counting{}
	b := must(enroll.NewBearer(r))(t)
	if b.Reveal() != sparkText || b.Hash().Text() != sparkHash || r.next != 32 {
		t.Errorf("the bearer of 0 to 31 is %s with hash %s after %d bytes", b.Reveal(), b.Hash().Text(), r.next)
	}
	if next := must(enroll.NewBearer(r))(t); next.Reveal() != palletText || next.Hash().Text() != palletHash {
		t.Errorf("the bearer of 32 to 63 is %s with hash %s", next.Reveal(), next.Hash().Text())
	}
	r = &counting{}
	c := must(enroll.NewJumpCode(r))(t)
	if c.Reveal() != codeText || c.Hash().Text() != codeHash || r.next != 12 {
		t.Errorf("the code of 0 to 11 is %s with hash %s after %d bytes", c.Reveal(), c.Hash().Text(), r.next)
	}
	if got := bearer(sparkText); got.Hash() != b.Hash() || got.Reveal() != sparkText {
		t.Error("a bearer that is read is another one")
	}
	if got := code(codeText); got.Hash() != c.Hash() || got.Reveal() != codeText {
		t.Error("a code that is read is another one")
	}
	if h, ok := enroll.ParseCredentialHash(sparkHash); !ok || h != b.Hash() {
		t.Error("a hash that is read is another one")
	}
}

func TestSecretsNeedRandomness(t *testing.T) {
	for _, short := range []int{0, 11, 31} {
		r := func() io.Reader { return io.LimitReader(&counting{}, int64(short)) }
		if b, err := enroll.NewBearer(r()); err == nil || !b.IsZero() {
			t.Errorf("a bearer of %d bytes", short)
		}
		if c, err := enroll.NewJumpCode(r()); short < 12 && (err == nil || !c.IsZero()) {
			t.Errorf("a code of %d bytes", short)
		}
	}
}

// misspelled are texts that other readers of base64 take.
func misspelled(text string) map[string]string {
	last := text[len(text)-1]
	all := map[string]string{
		"nothing":             "",
		"one short":           text[1:],
		"one long":            text + "A",
		"padded":              text + "=",
		"padded twice":        text + "==",
		"padded inside":       text[:len(text)-1] + "=",
		"with a space":        " " + text[1:],
		"space behind":        text + " ",
		"line break":          text + "\n",
		"line break inside":   text[:4] + "\n" + text[5:],
		"line breaks inside":  text[:4] + "\r\n\r\n" + text[8:],
		"the other alphabet":  text[:4] + "+/" + text[6:],
		"a letter too many":   text[:4] + "é" + text[6:],
		"a zero byte":         text[:4] + "\x00" + text[5:],
		"in hexadecimal":      hex.EncodeToString([]byte(text)),
		"another of its kind": text + text,
	}
	if len(text)%4 == 3 { // the last letter says four bits, and two that must be 0
		all["bits behind the end"] = text[:len(text)-1] + string(last+1)
	}
	return all
}

func TestF08SpellingOfSecrets(t *testing.T) {
	for what, text := range misspelled(sparkText) {
		if b, err := enroll.ParseBearer(text); !errors.Is(err, enroll.ErrBearer) || !b.IsZero() || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("a bearer with %s: %v", what, err)
		}
	}
	for what, text := range misspelled(codeText) {
		if c, err := enroll.ParseJumpCode(text); !errors.Is(err, enroll.ErrJumpCode) || !c.IsZero() || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("a code with %s: %v", what, err)
		}
	}
	if _, err := enroll.ParseBearer(codeText); err == nil {
		t.Error("a code is a bearer")
	}
	if _, err := enroll.ParseJumpCode(sparkText); err == nil {
		t.Error("a bearer is a code")
	}
	for _, text := range []string{"", sparkHash[1:], sparkHash + "0", strings.ToUpper(sparkHash), "0x" + sparkHash[2:], strings.Repeat("0", 64), strings.Repeat("g", 64)} {
		if h, ok := enroll.ParseCredentialHash(text); ok || !h.IsZero() {
			t.Errorf("%q is a hash", text)
		}
	}
}

func TestSecretsCompare(t *testing.T) {
	a, b := bearer(sparkText), bearer(palletText)
	if !a.Equal(bearer(sparkText)) || a.Equal(b) || a.Equal(enroll.Bearer{}) || (enroll.Bearer{}).Equal(enroll.Bearer{}) {
		t.Error("bearers compare wrongly")
	}
	if !a.Hash().Equal(hashOf(sparkText)) || a.Hash().Equal(b.Hash()) || (enroll.CredentialHash{}).Equal(enroll.CredentialHash{}) {
		t.Error("hashes compare wrongly")
	}
	// A store that holds no hash must not be opened by no bearer.
	if !(enroll.Bearer{}).Hash().IsZero() || !(enroll.JumpCode{}).Hash().IsZero() || !(enroll.Proof{}).Hash().IsZero() || a.Hash().IsZero() {
		t.Error("the hash of nothing is not none")
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[enroll.Bearer](), reflect.TypeFor[enroll.JumpCode](), reflect.TypeFor[enroll.Proof](), reflect.TypeFor[enroll.JoinLine](), reflect.TypeFor[enroll.Request]()} {
		if typ.Comparable() {
			t.Errorf("%v compares with ==, which takes longer the more is right", typ)
		}
	}
}

// needles are eight bytes in a row of a secret's text or bytes, in each form in which
// Go code is likely to write them.
func needles(t testing.TB, secrets ...string) map[string]string {
	all := map[string]string{}
	for _, text := range secrets {
		raw := must(base64.RawURLEncoding.DecodeString(text))(t)
		for _, whole := range [][]byte{[]byte(text), raw} {
			for at := 0; at+8 <= len(whole); at += 4 {
				w := whole[at : at+8]
				all[string(w)] = "as it is"
				all[hex.EncodeToString(w)] = "in hexadecimal"
				all[strings.ToUpper(hex.EncodeToString(w))] = "in capital hexadecimal"
				all[strings.Trim(fmt.Sprint(w), "[]")] = "in decimal"
				all[strings.ReplaceAll(strings.Trim(fmt.Sprint(w), "[]"), " ", ",")] = "in decimal with commas"
				all[strings.ReplaceAll(strings.Trim(fmt.Sprint(w), "[]"), " ", ", ")] = "in decimal with commas and spaces"
				all[fmt.Sprintf("% x", w)] = "in spaced hexadecimal"
				all[strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", w), "[]byte{"), "}")] = "as Go"
				for shift := range 3 {
					if at+shift+9 <= len(whole) {
						all[base64.StdEncoding.EncodeToString(whole[at+shift:at+shift+9])] = "in base64"
					}
				}
			}
		}
	}
	return all
}

func find(t *testing.T, where, text string, all map[string]string) {
	t.Helper()
	for needle, form := range all {
		if strings.Contains(text, needle) {
			t.Errorf("%s shows a secret %s: %.300s", where, form, text)
			return
		}
	}
}

// written is all that general ways of writing make of a value.
func written(v any) string {
	var b strings.Builder
	for _, verb := range "abcdefgopqstvxEFGTUXO" {
		for _, flags := range []string{"", "+", "#", " ", "-020.30"} {
			fmt.Fprintf(&b, "%"+flags+string(verb)+"\n", v)
		}
	}
	fmt.Fprintln(&b, v, fmt.Errorf("it is %v", v))
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "k", v, slog.Group("g", slog.Any("k", v)))
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "k", v, slog.Group("g", slog.Any("k", v)))
	out, err := json.Marshal(v)
	fmt.Fprintf(&b, "%s %v\n", out, err)
	out, err = xml.Marshal(v)
	fmt.Fprintf(&b, "%s %v\n", out, err)
	err = gob.NewEncoder(&b).Encode(v)
	fmt.Fprintf(&b, "%v\n", err)
	return b.String()
}

// reachable collects what reflection finds behind a value, also in private fields.
func reachable(v reflect.Value, b *strings.Builder) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			reachable(v.Elem(), b)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			reachable(v.Field(i), b)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			reachable(v.Index(i), b)
		}
	case reflect.String:
		b.WriteString(v.String())
	case reflect.Uint8:
		b.WriteByte(byte(v.Uint()))
	}
}

// secretive are messages and parts that hold the example secrets.
func secretive() map[string]any {
	line := enroll.JoinLine{Origin: origin(originText), Code: code(codeText), Pin: enroll.PinOf([]byte("x"))}
	return map[string]any{
		"a bearer":              bearer(sparkText),
		"a code":                code(codeText),
		"a proof by code":       enroll.BootstrapByCode(code(codeText)),
		"a proof by bearer":     enroll.BootstrapByBearer(bearer(oldText)),
		"a pending proof":       enroll.PendingSparkProof(bearer(sparkText)),
		"a join line":           line,
		"an enrollment":         enroll.Request{Protocol: ours(), Proposal: fresh(), Proof: enroll.BootstrapByCode(code(codeText))},
		"a request for state":   enroll.StateRequest{Protocol: ours(), Bearer: bearer(oldText)},
		"a request for one":     enroll.CredentialRequest{Protocol: ours(), Bearer: bearer(palletText)},
		"a rotation":            enroll.RotateRequest{Protocol: ours(), Bearer: bearer(oldText), Rotation: rotation()},
		"a list of bearers":     []enroll.Bearer{bearer(sparkText)},
		"a private bearer":      struct{ b enroll.Bearer }{bearer(sparkText)},
		"a private line":        struct{ l *enroll.JoinLine }{&line},
		"a private enrollment":  struct{ r enroll.Request }{enroll.Request{Proof: enroll.PendingSparkProof(bearer(sparkText))}},
		"a pointer to a code":   ptr(code(codeText)),
		"a map of proofs":       map[string]enroll.Proof{"k": enroll.BootstrapByCode(code(codeText))},
		"an interface of a key": any(bearer(palletText)),
	}
}

func ptr[T any](v T) *T { return &v }

func TestF06SecretsAreNeverWritten(t *testing.T) {
	all := needles(t, codeText, sparkText, palletText, oldText)
	for what, v := range secretive() {
		find(t, what, written(v), all)
		var b strings.Builder
		reachable(reflect.ValueOf(v), &b)
		find(t, "reflection on "+what, b.String(), all)
	}
	for what, v := range map[string]any{"a bearer": bearer(sparkText), "a code": code(codeText), "a proof": enroll.BootstrapByCode(code(codeText)),
		"a join line": enroll.JoinLine{Origin: origin(originText), Code: code(codeText)}, "an enrollment": secretive()["an enrollment"]} {
		if out, err := json.Marshal(v); !errors.Is(err, zone.ErrSecret) || len(out) > 0 {
			t.Errorf("%s is marshalled: %s, %v", what, out, err)
		}
	}
	// Hashes stay out of logs too.
	hashes := map[string]string{sparkHash[:16]: "hash", strings.ToUpper(sparkHash[:16]): "hash", fmt.Sprint(hexBytes(t, sparkHash)[:8]): "hash"}
	for what, v := range map[string]any{"a hash": hashOf(sparkText), "a proposal": fresh(), "a rotation": rotation(), "a preparation": enroll.PrepareResponse{CredentialHash: hashOf(sparkText)}} {
		find(t, what, written(v), hashes)
	}
}

func hexBytes(t testing.TB, s string) []byte { return must(hex.DecodeString(s))(t) }

// The test above could find nothing because it looks for the wrong thing.
func TestNeedlesAreFound(t *testing.T) {
	all := needles(t, sparkText)
	raw := must(base64.RawURLEncoding.DecodeString(sparkText))(t)
	for what, text := range map[string]string{
		"text": sparkText, "bytes": string(raw), "%v": fmt.Sprint(raw), "%x": fmt.Sprintf("%x", raw), "%X of the text": fmt.Sprintf("%X", sparkText),
		"%#v": fmt.Sprintf("%#v", raw), "JSON": written(struct{ K []byte }{raw}), "a line": must(enroll.ParseJoinLine("https://a/join#"+codeText))(t).Text() + sparkText,
		"a message": string(must(enroll.StateRequestCodec.Append(nil, enroll.StateRequest{Protocol: ours(), Bearer: bearer(sparkText)}))(t)),
	} {
		found := false
		for needle := range all {
			found = found || strings.Contains(text, needle)
		}
		if !found {
			t.Errorf("a secret written as %s is not found", what)
		}
	}
	var b strings.Builder
	reachable(reflect.ValueOf(struct{ k string }{sparkText}), &b)
	if !strings.Contains(b.String(), sparkText) {
		t.Error("reflection does not find a private text")
	}
}

// Refusals and reasons are shown and logged, so they repeat nothing that came in.
func TestF06RefusalsRepeatNoSecret(t *testing.T) {
	all := needles(t, codeText, sparkText, palletText, oldText)
	for what, text := range map[string]string{
		"a wrong code":         `{"protocol":` + protocolJSON + `,"proposal":` + freshJSON + `,"proof":{"kind":"bootstrap","value":"` + codeText + `="}}`,
		"a wrong kind":         `{"protocol":` + protocolJSON + `,"proposal":` + freshJSON + `,"proof":{"kind":"` + sparkText + `","value":"` + codeText + `"}}`,
		"a secret as a name":   `{"protocol":` + protocolJSON + `,"proposal":` + freshJSON + `,"` + sparkText + `":1,"proof":{"kind":"bootstrap","value":"` + codeText + `"}}`,
		"a secret as hostname": strings.Replace(`{"protocol":`+protocolJSON+`,"proposal":`+freshJSON+`,"proof":{"kind":"bootstrap","value":"`+codeText+`"}}`, "box-1", sparkText+"!", 1),
		"a cut text":           `{"bearer":"` + sparkText + `"`,
		"a secret twice":       `{"` + sparkText + `":1,"` + sparkText + `":2}`,
	} {
		_, err := enroll.RequestCodec.Read([]byte(text))
		if err == nil {
			t.Errorf("%s is read", what)
			continue
		}
		find(t, what, written(err)+strings.Join(enroll.RequestCodec.Reasons([]byte(text), ""), "\n"), all)
	}
	for what, text := range map[string]string{"a padded line": originText + "/join#" + codeText + "=", "a pin of a bearer": originText + "/join#" + codeText + "." + sparkText + "A", "a bearer": originText + "/join#" + sparkText} {
		_, err := enroll.ParseJoinLine(text)
		if !errors.Is(err, enroll.ErrJoinLine) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Error("m", "err", err)
		find(t, what, written(err)+log.String(), all)
	}
}

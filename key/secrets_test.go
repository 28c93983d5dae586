package key_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	json2 "github.com/go-json-experiment/json"

	"github.com/allodhq/allod/key"
)

const placeholder = "(private key)"

// A finder looks for a secret in a text, in every form in which Go code is
// likely to write bytes. Eight bytes in a row are enough to be found.
type finder struct {
	form, needle []string
}

func newFinder(secrets ...[]byte) *finder {
	f := &finder{}
	brackets := regexp.MustCompile(`^(\[\]byte\{|\[\]uint8\{|\[|"|'|0x|0X)|(\}|\]|"|')$`)
	for _, s := range secrets {
		for at := 0; at+8 <= len(s); at += 16 {
			w := s[at : at+8]
			f.add("raw", string(w))
			for _, format := range []string{
				"%v", "%#v", "%d", "%+d", "% d", "%x", "%X", "%#x", "%# x", "% x", "% X", "%o", "%#o", "%O", "%b", "%#b", "%c", "%q", "%+q", "%#q", "%U", "%#U",
			} {
				f.add(format, brackets.ReplaceAllString(fmt.Sprintf(format, w), ""))
				var array [8]byte // printed otherwise than a slice by some verbs
				copy(array[:], w)
				f.add(format+" of an array", brackets.ReplaceAllString(strings.TrimPrefix(fmt.Sprintf(format, array), "[8]uint8{"), ""))
			}
			list, _ := json.Marshal(slices.Collect(func(yield func(int) bool) {
				for _, b := range w {
					if !yield(int(b)) {
						return
					}
				}
			}))
			f.add("JSON list", brackets.ReplaceAllString(string(list), ""))
			f.add("hex with colons", strings.ReplaceAll(fmt.Sprintf("% x", w), " ", ":"))
			var escaped strings.Builder
			_ = xml.EscapeText(&escaped, w)
			f.add("XML", escaped.String())
		}
		// A key may start anywhere in a base64 text, so each of the three ways to
		// group its bytes is looked for.
		for at := range 3 {
			f.add("base64", base64.StdEncoding.EncodeToString(s[at+3:at+12]))
			f.add("base64url", base64.URLEncoding.EncodeToString(s[at+3:at+12]))
		}
	}
	return f
}

func (f *finder) add(form, needle string) {
	if len(needle) < 8 {
		panic("a needle is too short: " + form + " " + needle)
	}
	if !slices.Contains(f.needle, needle) {
		f.form, f.needle = append(f.form, form), append(f.needle, needle)
	}
}

// find returns the forms of the secret that the text holds.
func (f *finder) find(text string) (forms []string) {
	for i, n := range f.needle {
		if strings.Contains(text, n) && !slices.Contains(forms, f.form[i]) {
			forms = append(forms, f.form[i])
		}
	}
	return forms
}

// output is what one way of writing made of a value.
type output struct {
	how, text string
	err       error
}

// outputs writes a value in every way that the tests know.
func outputs(v any) (all []output) {
	for _, verb := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		for _, flags := range []string{"", "+", "#", " ", "# ", "-020.30"} {
			format := "%" + flags + string(verb)
			all = append(all, output{how: format, text: fmt.Sprintf(format, v)})
		}
	}
	all = append(all, output{how: "Println", text: fmt.Sprintln(v, v)}, output{how: "Errorf", text: fmt.Errorf("it is %v", v).Error()})

	var text, js bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("m", "k", v, slog.Group("g", slog.Any("k", v)))
	slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "k", v, slog.Group("g", slog.Any("k", v)))
	all = append(all, output{how: "slog text", text: text.String()}, output{how: "slog JSON", text: js.String()})

	b, err := json.Marshal(v)
	all = append(all, output{"encoding/json", string(b) + fmt.Sprint(err), err})
	b, err = json2.Marshal(v)
	all = append(all, output{"go-json-experiment/json", string(b) + fmt.Sprint(err), err})
	b, err = xml.Marshal(v)
	all = append(all, output{"encoding/xml", string(b) + fmt.Sprint(err), err})
	var g bytes.Buffer
	err = gob.NewEncoder(&g).Encode(v)
	return append(all, output{"encoding/gob", g.String() + fmt.Sprint(err), err})
}

var encoders = []string{"encoding/json", "go-json-experiment/json", "encoding/xml", "encoding/gob"}

// holder is a value that holds a private half.
type holder struct {
	name string
	v    any
	// seen means that writers reach the private half through exported fields,
	// so that an encoder must fail and not just leave it out.
	seen bool
}

func holders[T any](v T) []holder {
	type exported struct{ K T }
	type unexported struct{ k T }
	type deep struct {
		a struct{ b []unexported }
		m map[string]*exported
		i any
		f *T
	}
	p := &v
	d := deep{m: map[string]*exported{"k": {v}}, i: v, f: p}
	d.a.b = []unexported{{v}}
	return []holder{
		{"value", v, true},
		{"pointer", p, true},
		{"pointer to a pointer", &p, true},
		{"slice", []T{v, v}, true},
		{"slice of pointers", []*T{p}, true},
		{"array", [2]T{v, v}, true},
		{"exported field", exported{v}, true},
		{"pointer to an exported field", &exported{v}, true},
		{"slice of exported fields", []exported{{v}}, true},
		{"unexported field", unexported{v}, false},
		{"pointer to an unexported field", &unexported{v}, false},
		{"slice of unexported fields", []unexported{{v}}, false},
		{"slice of pointers to unexported fields", []*unexported{{v}}, false},
		{"deep", d, false},
		{"pointer to deep", &d, false},
		{"interface", []any{v}, false}, // gob and xml have rules of their own for these
		{"map", map[string]T{"k": v}, false},
		{"map of pointers", map[string]*T{"k": p}, false},
		{"map of interfaces", map[string]any{"k": v, "p": p}, false},
		{"map of unexported fields", map[string]unexported{"k": {v}}, false},
	}
}

type (
	embedsSigning struct{ key.Signing }
	embedsSealing struct{ key.Sealing }
	embedsKeys    struct{ key.DeviceKeys }
	// embedsTwo has no method of either, since each name is there twice.
	embedsTwo struct {
		key.Signing
		key.Sealing
	}
	hasInterfaces struct {
		Signer key.Signer
		opener key.Opener
	}
)

func examplePrivateHalves(t testing.TB) (key.Signing, key.Sealing, key.DeviceKeys) {
	t.Helper()
	return must(key.NewSigning(bytes.NewReader(unhex(t, seedHex))))(t),
		must(key.NewSealing(bytes.NewReader(unhex(t, secretHex))))(t),
		exampleKeys(t)
}

func exampleHolders(t testing.TB) []holder {
	t.Helper()
	signing, sealing, keys := examplePrivateHalves(t)
	site := must(key.NewKeys[key.SiteRole](bytes.NewReader(unhex(t, seedHex+secretHex)), created))(t)
	return slices.Concat(
		holders(signing), holders(sealing), holders(keys), holders(site),
		[]holder{
			{"embedded", embedsSigning{signing}, true},
			{"embedded", embedsSealing{sealing}, true},
			{"embedded", embedsKeys{keys}, true},
			{"pointer to embedded", &embedsKeys{keys}, true},
			{"two embedded", embedsTwo{signing, sealing}, false},
			{"pointer to two embedded", &embedsTwo{signing, sealing}, false},
			{"interfaces", hasInterfaces{keys.Signer(), keys.Opener()}, false},
			{"pointer to interfaces", &hasInterfaces{keys.Signer(), keys.Opener()}, false},
			{"signer", keys.Signer(), true},
			{"opener", keys.Opener(), true},
		})
}

func exampleFinder(t testing.TB) *finder {
	t.Helper()
	return newFinder(unhex(t, seedHex), unhex(t, secretHex))
}

func TestPrivateHalvesAreNeverWritten(t *testing.T) {
	t.Parallel() // slow under the race detector
	f := exampleFinder(t)
	for _, h := range exampleHolders(t) {
		name := fmt.Sprintf("%s of %T", h.name, h.v)
		var all strings.Builder
		for _, o := range outputs(h.v) {
			fmt.Fprintf(&all, "%s: %s\n", o.how, o.text)
			if h.seen && slices.Contains(encoders, o.how) && !errors.Is(o.err, key.ErrPrivate) {
				t.Errorf("%s written by %s: %v, want ErrPrivate", name, o.how, o.err)
			}
		}
		if forms := f.find(all.String()); forms != nil {
			t.Errorf("%s shows the key as %v:\n%s", name, forms, all.String())
		}
	}
}

// TestFinderFinds plants keys. Without it, the test above could pass because
// the finder looks for the wrong thing.
func TestFinderFinds(t *testing.T) {
	t.Parallel() // slow under the race detector
	f := exampleFinder(t)
	file := must(key.MarshalFile(exampleKeys(t)))(t)
	if forms := f.find(string(file)); !slices.Contains(forms, "base64") {
		t.Errorf("a key file shows the keys as %v, want base64", forms)
	}
	// Each half alone is found in it, too.
	for _, secret := range []string{seedHex, secretHex} {
		if forms := newFinder(unhex(t, secret)).find(string(file)); forms == nil {
			t.Errorf("%s is not found in a key file", secret)
		}
	}
	private := ed25519.NewKeyFromSeed(unhex(t, seedHex))
	type naked struct{ Private ed25519.PrivateKey }
	type hidden struct{ private [32]byte }
	var array [32]byte
	copy(array[:], unhex(t, secretHex))
	found := map[string]bool{}
	for _, h := range slices.Concat(holders(private), holders(naked{private}), holders(hidden{array})) {
		for _, o := range outputs(h.v) {
			if !found[o.how] && f.find(o.text) != nil {
				found[o.how] = true
			}
		}
	}
	for _, how := range slices.Concat(encoders, []string{
		"%v", "%+v", "%#v", "%s", "%d", "%x", "%X", "%# x", "%q", "%+q", "%o", "%b", "%c", "%U", "%w", "Println", "Errorf", "slog text", "slog JSON",
	}) {
		if !found[how] {
			t.Errorf("a key written by %s is not found", how)
		}
	}
	for what, text := range map[string]string{
		"hex":              seedHex,
		"hex, upper case":  strings.ToUpper(secretHex),
		"base64 in a text": base64.StdEncoding.EncodeToString(append([]byte{1}, private...)),
		"base64url":        base64.RawURLEncoding.EncodeToString(append([]byte{1, 2}, unhex(t, secretHex)...)),
	} {
		if f.find("..."+text+"...") == nil {
			t.Errorf("%s is not found", what)
		}
	}
	// What is public must not look like a key.
	for _, text := range []string{signingHex, sealingHex, signingText, bindingText, fingerprintText, fmt.Sprint(unhex(t, signingHex))} {
		if forms := f.find(text); forms != nil {
			t.Errorf("%s is taken for a key, %v", text, forms)
		}
	}
}

func TestPrivateHalvesPrintAPlaceholder(t *testing.T) {
	signing, sealing, keys := examplePrivateHalves(t)
	for _, v := range []any{signing, sealing, keys, &signing, &sealing, &keys, key.Signing{}, key.Sealing{}, key.SiteKeys{}} {
		for _, o := range outputs(v) {
			switch o.how[len(o.how)-1] {
			case 'T', 'p', 'w': // the type, a pointer, and a mistake: no method is asked
				continue
			}
			if strings.HasPrefix(o.how, "%") && o.text != placeholder {
				t.Errorf("%T written by %s is %q, want %q", v, o.how, o.text, placeholder)
			}
		}
		if got, want := fmt.Sprintln(v), placeholder+"\n"; got != want {
			t.Errorf("Println(%T) is %q, want %q", v, got, want)
		}
		if got := v.(fmt.Stringer).String(); got != placeholder {
			t.Errorf("%T.String() is %q", v, got)
		}
		if got := v.(fmt.GoStringer).GoString(); got != placeholder {
			t.Errorf("%T.GoString() is %q", v, got)
		}
		if got := v.(slog.LogValuer).LogValue(); got.Kind() != slog.KindString || got.String() != placeholder {
			t.Errorf("%T.LogValue() is %v", v, got)
		}
		for _, o := range outputs(v) {
			if strings.HasPrefix(o.how, "slog") && strings.Count(o.text, placeholder) != 2 {
				t.Errorf("%T written by %s is %s", v, o.how, o.text)
			}
		}
		// A struct that shows its fields shows the placeholder in their place.
		if got := fmt.Sprintf("%v", struct{ K any }{v}); got != "{"+placeholder+"}" {
			t.Errorf("a struct with %T is %q", v, got)
		}
	}
}

func TestPrivateHalvesRefuseToBeMarshalled(t *testing.T) {
	signing, sealing, keys := examplePrivateHalves(t)
	for _, v := range []any{signing, sealing, keys, key.Signing{}, key.Sealing{}, key.SiteKeys{}} {
		for how, marshal := range map[string]func() ([]byte, error){
			"MarshalJSON":   v.(json.Marshaler).MarshalJSON,
			"MarshalText":   v.(encoding.TextMarshaler).MarshalText,
			"MarshalBinary": v.(encoding.BinaryMarshaler).MarshalBinary,
		} {
			if b, err := marshal(); b != nil || !errors.Is(err, key.ErrPrivate) {
				t.Errorf("%T.%s gives %q, %v, want ErrPrivate", v, how, b, err)
			}
		}
	}
}

// A comparison with == would tell how far two keys agree by how long it takes,
// and would make keys usable as names in a map that somebody prints.
func TestPrivateHalvesCannotBeCompared(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[key.Signing](), reflect.TypeFor[key.Sealing](), reflect.TypeFor[key.DeviceKeys](), reflect.TypeFor[key.SiteKeys](),
		reflect.TypeFor[struct{ key.Signing }](),
	} {
		if typ.Comparable() {
			t.Errorf("%v can be compared", typ)
		}
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[key.SigningPublic](), reflect.TypeFor[key.SealingPublic](), reflect.TypeFor[key.Signature](),
		reflect.TypeFor[key.Fingerprint](), reflect.TypeFor[key.Device](), reflect.TypeFor[key.Site](),
	} {
		if !typ.Comparable() {
			t.Errorf("%v cannot be compared", typ)
		}
	}
}

// reachable collects all bytes and texts that reflection finds behind a value,
// as a library for debugging does, with private fields and through pointers.
func reachable(v reflect.Value, found *bytes.Buffer, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		reachable(v.Elem(), found, seen)
	case reflect.Interface:
		if !v.IsNil() {
			reachable(v.Elem(), found, seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			reachable(v.Field(i), found, seen)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			reachable(v.Index(i), found, seen)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			reachable(k, found, seen)
			reachable(v.MapIndex(k), found, seen)
		}
	case reflect.String:
		found.WriteString(v.String())
	case reflect.Uint8:
		found.WriteByte(byte(v.Uint()))
	}
}

func TestReflectionFindsNoPrivateBytes(t *testing.T) {
	f := exampleFinder(t)
	for _, h := range exampleHolders(t) {
		var found bytes.Buffer
		reachable(reflect.ValueOf(h.v), &found, map[uintptr]bool{})
		if forms := f.find(found.String()); forms != nil {
			t.Errorf("reflection finds the key in %s of %T, %v", h.name, h.v, forms)
		}
	}
	private := must(ecdh.X25519().NewPrivateKey(unhex(t, secretHex)))(t)
	for _, h := range slices.Concat(holders(private), holders(ed25519.NewKeyFromSeed(unhex(t, seedHex)))) {
		var found bytes.Buffer
		reachable(reflect.ValueOf(h.v), &found, map[uintptr]bool{})
		if f.find(found.String()) == nil {
			t.Errorf("reflection does not find a key in %s of %T, so the test shows nothing", h.name, h.v)
		}
	}
}

// Errors of this package reach logs and callers.
func TestErrorsHoldNoPrivateBytes(t *testing.T) {
	f := exampleFinder(t)
	file := string(must(key.MarshalFile(exampleKeys(t)))(t))
	for what, content := range map[string]string{
		"cut":           file[:len(file)-3],
		"twice":         file + file,
		"key as a name": strings.Replace(file, `"version": 1`, `"version": 1, "`+base64.StdEncoding.EncodeToString(unhex(t, seedHex))+`": 1`, 1),
		"other version": strings.Replace(file, `"version": 1`, `"version": 2`, 1),
		"wrong form":    strings.Replace(file, "MC4CAQ", "MC4CAg", 1),
		"other key":     strings.Replace(file, signingText, sealingText, 1),
		"hex":           seedHex,
	} {
		_, err := key.ParseFile[key.DeviceRole]([]byte(content))
		if err == nil {
			t.Errorf("%s: no error", what)
			continue
		}
		var causes strings.Builder
		for e := err; e != nil; e = errors.Unwrap(e) {
			fmt.Fprintf(&causes, "%v %+v %#v\n", e, e, e)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Error("m", "err", err)
		for where, text := range map[string]string{"errors": causes.String(), "log": log.String()} {
			if forms := f.find(text); forms != nil {
				t.Errorf("%s: the %s show the key as %v: %s", what, where, forms, text)
			}
		}
	}
}

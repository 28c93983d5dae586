package repocheck

import (
	"fmt"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// secretTypes are the types that hold private keys. Those of package key must exist, see below.
var secretTypes = map[string]string{
	module + "/key.Signing": "the private half that signs",
	module + "/key.Sealing": "the private half that opens",
	module + "/key.Keys":    "both private halves",
	module + "/key.Signer":  "it signs in somebody's name",
	module + "/key.Opener":  "it opens what is sealed to somebody",

	module + "/site/appapi.Key":             "the secret of an app",
	module + "/site/webhook.Secret":         "the secret that an app's server knows Allod by",
	module + "/internal/runner/backend.Key": "the secret of an account at a model server",

	"crypto/ed25519.PrivateKey": "a private key of the standard library",
	"crypto/ecdh.PrivateKey":    "a private key of the standard library",
	"crypto/ecdsa.PrivateKey":   "a private key of the standard library",
	"crypto/rsa.PrivateKey":     "a private key of the standard library",
}

// shownPackages hold types that are sent, shown or logged: every exported type of theirs is walked.
// Besides them, every type with a LogValue method of its own is walked, wherever it is.
var shownPackages = []string{
	"wire/...", "refusal", "site", "certify", "internal/compose", "internal/runner", "internal/runner/ingress", "internal/runner/lane", "internal/runner/home", "internal/console",
}

// notShown are packages whose LogValue methods hide a secret instead of showing something.
var notShown = []string{"key", "internal/runner/backend"}

// workers are types of shown packages that work with keys and are never shown themselves.
var workers = map[string]string{
	module + "/site.Config":  "it hands the keys to the site",
	module + "/site.Site":    "it is the site",
	module + "/site.Jobs":    "it seals and opens",
	module + "/site.Devices": "it is a part of the site",

	module + "/internal/runner.Agent":   "it is the agent",
	module + "/internal/runner.Pairing": "it hands the keys to pairing",
}

// shown returns the types that are sent, shown or logged.
func shown(prog program) (roots []*types.TypeName) {
	for _, p := range prog.pkgs {
		all := slices.ContainsFunc(shownPackages, func(pattern string) bool { return matches(pattern, p.path) })
		scope := p.pkg.Scope()
		for _, name := range scope.Names() {
			t, ok := scope.Lookup(name).(*types.TypeName)
			if !ok {
				continue
			}
			if workers[p.path+"."+name] != "" || workers[module+"/"+p.path+"."+name] != "" {
				continue
			}
			if all && t.Exported() || logs(t) && !slices.Contains(notShown, p.path) {
				roots = append(roots, t)
			}
		}
	}
	return roots
}

// logs reports whether a type has a LogValue method, its own or one of a type that it embeds.
func logs(t *types.TypeName) bool {
	if types.IsInterface(t.Type()) {
		return false
	}
	m, _, _ := types.LookupFieldOrMethod(types.NewPointer(t.Type()), false, t.Pkg(), "LogValue")
	_, ok := m.(*types.Func)
	return ok
}

// checkSecrets finds types that are shown and can reach a private key.
func checkSecrets(prog program) (problems []string) {
	for _, root := range shown(prog) {
		w := walker{seen: map[string]bool{}}
		w.walk(root.Type(), root.Name())
		for _, problem := range w.problems {
			problems = append(problems, prog.at(root.Pos())+": "+problem)
		}
	}
	return problems
}

// A walker follows everything that a value of a type can hold: fields with or without an exported
// name, elements, keys, what pointers point to, and the arguments of generic types.
//
// It does not follow interfaces and functions. An interface could hold anything, so following it
// would say nothing; the two interfaces over private keys are on the list by name instead.
// What a function closes over is not part of its type.
type walker struct {
	seen     map[string]bool
	problems []string
}

func (w *walker) walk(t types.Type, where string) {
	t = types.Unalias(t)
	if named, ok := t.(*types.Named); ok {
		obj := named.Obj()
		if obj.Pkg() != nil {
			full := obj.Pkg().Path() + "." + obj.Name()
			if why, found := secretTypes[full]; found {
				w.problems = append(w.problems, fmt.Sprintf("%s is a %s: %s", where, strings.TrimPrefix(full, module+"/"), why))
				return
			}
		}
		// The same type is met again through itself, and by many ways.
		id := types.TypeString(named, nil)
		if w.seen[id] {
			return
		}
		w.seen[id] = true
		for arg := range named.TypeArgs().Types() {
			w.walk(arg, where+"[...]")
		}
	}
	switch t := t.Underlying().(type) {
	case *types.Pointer:
		w.walk(t.Elem(), where)
	case *types.Slice:
		w.walk(t.Elem(), where+"[]")
	case *types.Array:
		w.walk(t.Elem(), where+"[]")
	case *types.Chan:
		w.walk(t.Elem(), where+"<-")
	case *types.Map:
		w.walk(t.Key(), where+"[key]")
		w.walk(t.Elem(), where+"[]")
	case *types.Struct:
		for f := range t.Fields() {
			w.walk(f.Type(), where+"."+f.Name())
		}
	}
}

func TestNothingShownReachesAPrivateKey(t *testing.T) {
	prog := mustLoad(t)
	found := map[string]int{}
	for _, root := range shown(prog) {
		name, _ := local(root.Pkg().Path())
		for _, pattern := range shownPackages {
			if matches(pattern, name) {
				found[pattern]++
			}
		}
	}
	for _, pattern := range shownPackages {
		if found[pattern] == 0 {
			t.Errorf("no exported type was found in %s; has it moved?", pattern)
		}
	}
	report(t, rule{
		"These types are sent, shown or logged, and can hold a private key.",
		"whatever prints, logs or sends such a value may one day print the key; the type makes that impossible",
		"keep the public half, a fingerprint or an identity there, and pass the signer or opener to the function that needs it",
	}, checkSecrets(prog))
}

// TestSecretTypesExist keeps the list from going stale: a name that is gone would never be found.
func TestSecretTypesExist(t *testing.T) {
	declared := map[string]bool{}
	for _, p := range mustLoad(t).pkgs {
		for _, name := range p.pkg.Scope().Names() {
			declared[p.pkg.Path()+"."+name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(secretTypes)) {
		if _, ours := local(name); ours && !declared[name] {
			t.Errorf("%s is gone; put what holds private keys now into secretTypes", name)
		}
	}
}

func TestSecretsControl(t *testing.T) {
	prog := compile(t,
		text{"key", `package key
			import "log/slog"
			type Signing struct{ hidden }
			type Sealing struct{ hidden }
			type hidden struct{}
			func (hidden) LogValue() slog.Value { return slog.Value{} }
			type Keys[R any] struct{ signing Signing }
			type DeviceKeys = Keys[int]
			type Signer interface{ Sign() }
			type SigningPublic struct{ b [32]byte }`},
		text{"wire/bad", `package bad
			import ("` + module + `/key"; "crypto/ecdh"; "time")
			type Deep struct{ a map[string][]*inner }
			type inner struct{ next *inner; b struct{ c chan key.Signing } }
			type Alias struct{ A key.DeviceKeys }
			type Key struct{ A map[key.SigningPublic]key.Sealing }
			type Standard struct{ A *ecdh.PrivateKey }
			type Face struct{ A []key.Signer }
			type Generic struct{ A Box[key.Signing] }
			type Box[T any] struct{ a *T }
			type Embeds struct{ key.Signing }
			type Fine struct{ A key.SigningPublic; B *Fine; C time.Time; D error; E func(key.Signing) }
			type fine struct{ A key.Signing }`},
		text{"internal/relay", `package relay
			import ("` + module + `/key"; "log/slog")
			type session struct{ k key.Signing }
			func (*session) LogValue() slog.Value { return slog.Value{} }
			type Fine struct{ k key.Signing }`},
	)
	const bad, relay = "wire/bad/control.go:", "internal/relay/control.go:"
	mustFind(t, checkSecrets(prog),
		"Deep.a[][].b.c<- is a key.Signing",
		": Alias.A is a key.Keys",
		": Key.A[] is a key.Sealing",
		": Standard.A is a crypto/ecdh.PrivateKey",
		": Face.A[] is a key.Signer",
		": Generic.A[...] is a key.Signing",
		": Generic.A.a is a key.Signing",
		": Embeds.Signing is a key.Signing",
		relay+"3: session.k is a key.Signing",
	)
	if problems := checkSecrets(prog); !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, bad) }) {
		t.Error("problems do not say where they are")
	}
}

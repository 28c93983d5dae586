package repocheck

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// isPublic reports whether strangers can import a package of ours.
func isPublic(name string) bool { return rootOf(name) != "" && !inside(name) }

// inside reports whether strangers cannot import a package, because Go's rule of internal folders hides it.
func inside(name string) bool { return slices.Contains(strings.Split(name, "/"), "internal") }

// checkSignatures finds exported declarations of public packages that mention an internal type.
func checkSignatures(prog program) (problems []string) {
	for _, p := range prog.pkgs {
		if !isPublic(p.path) {
			continue
		}
		s := signatures{home: p.pkg}
		scope := p.pkg.Scope()
		for _, name := range scope.Names() {
			obj := scope.Lookup(name)
			if !obj.Exported() {
				continue
			}
			s.pos, s.problems, s.seen = obj.Pos(), nil, map[*types.TypeName]bool{}
			if t, ok := obj.(*types.TypeName); ok {
				s.declared(t, p.path+"."+name)
				// The type that a declaration is made of does not survive in the type itself,
				// but it is in the documentation: type Limit internal.Limit.
				s.mentions(p.writtenType(t), p.path+"."+name)
			} else {
				s.mentions(obj.Type(), p.path+"."+name)
			}
			slices.Sort(s.problems)
			for _, problem := range slices.Compact(s.problems) {
				problems = append(problems, prog.at(s.pos)+": "+problem)
			}
		}
	}
	return problems
}

// writtenType is the type on the right side of a type declaration.
func (p typed) writtenType(t *types.TypeName) (written types.Type) {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && p.info.Defs[spec.Name] == t {
				written = p.info.TypeOf(spec.Type)
			}
			return written == nil
		})
	}
	return written
}

// signatures collects what the exported declarations of one package mention.
type signatures struct {
	home     *types.Package
	seen     map[*types.TypeName]bool
	pos      token.Pos
	problems []string
}

// declared looks at all that can be reached through a declared type: its fields and methods.
func (s *signatures) declared(t *types.TypeName, where string) {
	if s.seen[t] {
		return
	}
	s.seen[t] = true
	switch named := t.Type().(type) {
	case *types.Alias:
		s.mentions(named.Rhs(), where)
		return
	case *types.Named:
		for tp := range named.TypeParams().TypeParams() {
			s.mentions(tp.Constraint(), where+"["+tp.Obj().Name()+"]")
		}
	}
	s.mentions(t.Type().Underlying(), where)
	if types.IsInterface(t.Type()) {
		return // its methods were among the underlying type
	}
	// The method set of the pointer has the methods of the value as well, and those of embedded types.
	set := types.NewMethodSet(types.NewPointer(t.Type()))
	for i := range set.Len() {
		if m := set.At(i).Obj(); m.Exported() {
			s.mentions(m.Type(), where+"."+m.Name())
		}
	}
}

// mentions walks a type as it is written in a signature.
func (s *signatures) mentions(t types.Type, where string) {
	switch t := t.(type) {
	case nil:
	case *types.Alias:
		s.named(t.Obj(), where)
		for arg := range t.TypeArgs().Types() {
			s.mentions(arg, where)
		}
		if t.Obj().Pkg() == s.home {
			s.mentions(t.Rhs(), where)
		}
	case *types.Named:
		s.named(t.Obj(), where)
		for arg := range t.TypeArgs().Types() {
			s.mentions(arg, where)
		}
	case *types.Pointer:
		s.mentions(t.Elem(), where)
	case *types.Slice:
		s.mentions(t.Elem(), where)
	case *types.Array:
		s.mentions(t.Elem(), where)
	case *types.Chan:
		s.mentions(t.Elem(), where)
	case *types.Map:
		s.mentions(t.Key(), where)
		s.mentions(t.Elem(), where)
	case *types.Signature:
		for tp := range t.TypeParams().TypeParams() {
			s.mentions(tp.Constraint(), where+"["+tp.Obj().Name()+"]")
		}
		for v := range t.Params().Variables() {
			s.mentions(v.Type(), where)
		}
		for v := range t.Results().Variables() {
			s.mentions(v.Type(), where)
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() { // what is embedded lends its fields
				s.mentions(f.Type(), where+"."+f.Name())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				s.mentions(m.Type(), where+"."+m.Name())
			}
		}
		for e := range t.EmbeddedTypes() {
			s.mentions(e, where)
		}
	case *types.Union:
		for term := range t.Terms() {
			s.mentions(term.Type(), where)
		}
	}
}

// named judges a type that is mentioned by name.
func (s *signatures) named(t *types.TypeName, where string) {
	if t.Pkg() == nil {
		return // error, any, comparable
	}
	if name, ours := local(t.Pkg().Path()); ours && inside(name) {
		s.problems = append(s.problems, fmt.Sprintf("%s mentions %s.%s", where, name, t.Name()))
	}
	// A type without an exported name is not listed by itself, but its fields and methods can be used.
	if t.Pkg() == s.home && !t.Exported() {
		s.declared(t, where)
	}
}

func TestSignaturesMentionNothingInternal(t *testing.T) {
	prog := mustLoad(t)
	if !slices.ContainsFunc(prog.pkgs, func(p typed) bool { return isPublic(p.path) }) {
		t.Fatal("no public package was found")
	}
	report(t, rule{
		"These exported declarations of public packages mention internal types.",
		"whoever imports the package can neither name such a type nor read its documentation, and we could not change it freely",
		"declare the type in the public package, or convert at its edge",
	}, checkSignatures(prog))
}

func TestSignaturesControl(t *testing.T) {
	prog := compile(t,
		text{"internal/hidden", `package hidden
			type T struct{ N int }
			func (T) Public() int { return 0 }
			func (T) Leak() T { return T{} }
			type G[E any] struct{ V E }
			type Limit interface{ ~int }`},
		text{"wire/bad", `package bad
			import "` + module + `/internal/hidden"
			type Field struct{ A hidden.T; b hidden.T }
			type Deep struct{ A map[string][]*struct{ B chan func(hidden.T) } }
			type Generic struct{ A hidden.G[int] }
			type Argument struct{ A Own[hidden.T] }
			type Own[E any] struct{ V E }
			type Made hidden.T
			type Alias = hidden.T
			type Embeds struct{ hidden.T }
			type Promotes struct{ inner }
			type inner struct{ C hidden.T; d hidden.T }
			func (inner) Get() (int, hidden.T) { return 0, hidden.T{} }
			type Method struct{}
			func (*Method) Do(...hidden.T) {}
			func (*Method) do(hidden.T) {}
			type Face interface{ Do() hidden.T }
			type Constrained[E hidden.Limit] struct{}
			func Func[E hidden.Limit](E) {}
			func Returns() inner { return inner{} }
			var Var hidden.T
			var Inferred = Var
			const Const = Num(1)
			type Num int
			func Fine(Num) error { return nil }
			type FineToo struct{ a hidden.T; B *FineToo }
			func fine(hidden.T) {}
			`},
		text{"internal/relay", `package relay
			import "` + module + `/internal/hidden"
			func Fine(hidden.T) {}`},
		text{"wire/internal/deep", `package deep
			import "` + module + `/internal/hidden"
			type D struct{ Fine hidden.T }`},
		text{"wire/worse", `package worse
			import "` + module + `/wire/internal/deep"
			var Deep deep.D`},
	)
	const mention = " mentions internal/hidden."
	mustFind(t, checkSignatures(prog),
		"bad.Field.A"+mention+"T",
		"bad.Deep.A.B"+mention+"T",
		"bad.Generic.A"+mention+"G",
		"bad.Argument.A"+mention+"T",
		"bad.Made"+mention+"T",
		"bad.Alias"+mention+"T",
		"bad.Embeds.T"+mention+"T",
		"bad.Embeds.Leak"+mention+"T",
		"bad.Promotes.Get"+mention+"T",
		"worse.Deep mentions wire/internal/deep.D",
		"bad.Promotes.inner.C"+mention+"T",
		"bad.Promotes.inner.Get"+mention+"T",
		"bad.Method.Do"+mention+"T",
		"bad.Face.Do"+mention+"T",
		"bad.Constrained[E]"+mention+"Limit",
		"bad.Func[E]"+mention+"Limit",
		"bad.Returns.C"+mention+"T",
		"bad.Returns.Get"+mention+"T",
		"bad.Var"+mention+"T",
		"bad.Inferred"+mention+"T",
	)
	for _, p := range checkSignatures(prog) {
		if !strings.HasPrefix(p, "wire/bad/control.go:") && !strings.HasPrefix(p, "wire/worse/control.go:") {
			t.Errorf("a problem without its place: %s", p)
		}
	}
}

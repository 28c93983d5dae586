package exact

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Raw is a required member of any type, null too, as its JSON text, which
// somebody else reads. The document's limits hold for it as for the rest. What is
// read is a copy of the bytes that came; what is written must be one JSON value,
// and goes out byte for byte.
func Raw(o *Object, name string, p *[]byte) { raw(o, name, true, p) }

// OptRaw is an optional member like that of [Raw]; absent reads as nil, and nil is
// not written.
func OptRaw(o *Object, name string, p *[]byte) {
	if o.c.writing && *p == nil {
		return
	}
	raw(o, name, false, p)
}

func raw(o *Object, name string, required bool, p *[]byte) {
	o.member(name, required,
		func(n int) { *p = bytes.Clone(o.c.nodes[n].raw) },
		func() {
			if !jsontext.Value(*p).IsValid() {
				o.c.fail(ErrSyntax, "one JSON value")
				return
			}
			o.c.out = append(o.c.out, *p...)
		})
}

package keep

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// MaxDocument is the longest message in a file, in bytes.
const MaxDocument = 32 << 10

// Document is an optional message as a member of a file, as the text that it is on
// the wire: nil where there is none.
func Document[T any](o *exact.Object, name string, c zone.Codec[T], p **T) {
	text := ""
	if o.Writing() && *p != nil {
		b, err := c.Append(nil, **p)
		if err != nil {
			o.Fail(exact.ErrRange, "a message of the contract")
			return
		}
		text = string(b)
	}
	exact.OptText(o, name, &text, 1, MaxDocument)
	if o.Writing() || text == "" {
		return
	}
	v, err := c.Read([]byte(text))
	if err != nil {
		o.Fail(exact.ErrRange, "a message of the contract")
		return
	}
	*p = &v
}

// Bearer is an optional bearer as a member of a file, in the clear.
func Bearer(o *exact.Object, name string, p *enroll.Bearer) {
	text := ""
	if o.Writing() {
		text = p.Reveal()
	}
	exact.OptText(o, name, &text, 1, enroll.BearerText)
	if o.Writing() || text == "" {
		return
	}
	b, err := enroll.ParseBearer(text)
	if err != nil {
		o.Fail(exact.ErrRange, "a bearer")
	}
	*p = b
}

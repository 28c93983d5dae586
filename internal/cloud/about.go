package cloud

import (
	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// AboutPath is where the admin socket says what the controller is.
const AboutPath = "/controller"

// About is what a controller says of itself on its admin socket. None of it is a
// secret.
type About struct {
	// Origin is where nodes and people reach it.
	Origin enroll.Origin
	// Pin is that of its own authority. Public says that join lines go without it.
	Pin    ca.Pin
	Public bool
}

var aboutShape = exact.Shape[About]{Unknown: exact.Drop, Fields: func(o *exact.Object, a *About) {
	origin, pin := a.Origin.String(), a.Pin.String()
	exact.Spelled(o, "origin", &origin, enroll.MaxOrigin, "an https origin in its one spelling", func(s string) bool {
		_, err := enroll.ParseOrigin(s)
		return err == nil
	})
	exact.Spelled(o, "pin", &pin, 43, "a pin", func(s string) bool {
		_, err := ca.ParsePin(s)
		return err == nil
	})
	exact.Bool(o, "public", &a.Public)
	a.Origin, _ = enroll.ParseOrigin(origin)
	a.Pin, _ = ca.ParsePin(pin)
}}

// ReadAbout reads what [AboutPath] answers.
func ReadAbout(text []byte) (About, error) {
	return aboutShape.Read(text, exact.Limits{Bytes: 4 << 10, Depth: 1, Values: 16})
}

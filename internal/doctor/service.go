package doctor

import "github.com/allodhq/allod/internal/service"

// OfService judges what is known of the service: its state, or err where that is
// not known, and what is wrong with the program that it starts, nil for nothing.
func OfService(s service.Status, err, program error) Probe {
	p := of("service", "state", "Asked this user's service manager for the agent.")
	switch {
	case err != nil:
		p.refused(Warning, err)
	case s.State == service.NotInstalled:
		p.is(OK, "It is not installed as a service, so it runs while allod agent run does.", "")
	case program != nil:
		p.refused(Failed, program)
	case s.State == service.Running:
		p.is(OK, "It runs as a service.", "")
	case s.State == service.Stopped:
		p.is(Warning, "It is installed and does not run.", "Start it: allod agent start.")
	case s.State == service.Restarting:
		p.is(Failed, "It ended, and is about to be started again.", "Look in its log; allod agent status says where that is.")
	default:
		p.is(Failed, "It ended, and is not started again by itself.", "Look in its log; allod agent status says where that is. Once it is mended: allod agent start.")
	}
	return *p
}

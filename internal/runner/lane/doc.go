// Package lane decides what a device does at one server: when it says that it is
// there, when it asks for work, what it takes on, and when it stops.
//
// A [Machine] is a step function. It is told what happened ([Event]) and when,
// and answers with what to do ([Action]); it does nothing itself, has no
// goroutine and reads no clock, so a seed replays a run exactly. Package runner
// carries its actions out.
//
// What it holds to:
//
//   - A job is admitted before anything of it is fetched ([Machine.Admit]).
//   - Work stops when its lease could not be renewed in time, whether or not the
//     server can be asked, and nothing is reported for it (MUST LEASE_HONORED).
//     The time is counted here, from when a renewal was sent.
//   - A finished result is kept until the server has answered. It is sent only
//     while its lease is known to be held; after a restart or a cut, a heartbeat
//     asks first.
//   - A canceled run is stopped and reported as canceled (MUST CANCEL_HONORED).
//   - A site is served while the server names it with the very key that was
//     approved on this machine (MUST SITES_LOCALLY_APPROVED). A key that comes
//     after such a key by signatures is accepted once that is kept, and the one
//     before counts for a while. A name that showed another key vouches for
//     nothing.
//
// The package refuses to see payloads, keys that open, and money.
package lane

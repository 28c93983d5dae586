// Package pairpage is the page on which a person approves a device.
//
// The approval belongs to a person whom somebody knows. The page knows nobody by
// itself, has no cookies and no script. It approves for the one owner of a
// short-lived link that the app asked for after it had signed them in (see
// site.Devices.Link), or for an owner whom the operator fixed on a listener that
// only this machine reaches. Everybody else is shown the device under a code they
// typed, and told to approve it in the app.
//
//	GET  /pair          a form for the code; ?code= fills it in
//	POST /pair          the device under the code; decides where an owner is fixed
//	GET  /pair/l/TOKEN  the device of the link, or a form for the code
//	POST /pair/l/TOKEN  the device under the code; decides for the link's owner
//
// A link that is unknown, used or over is answered with one page, the same bytes
// each time. What a device says of itself is shown as its own claim, as text that
// cannot reorder or cover what stands around it; what counts is the fingerprint,
// which the device shows as well.
//
// The package refuses to sign anybody in, and to remember who was here.
package pairpage

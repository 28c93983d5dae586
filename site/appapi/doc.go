// Package appapi is a small HTTP interface to a site for apps in any language.
//
// Every request carries the app key as a bearer token. Whoever has it acts for
// every user of the site: it belongs to the app's server and to nobody else. It
// is compared in constant time and kept as a hash only.
//
// Bodies and answers are JSON objects with exactly the listed members. Errors
// are refusals, as docs/refusals.md lists them.
//
//	POST /v1/jobs                        ask; an id that is there returns its job
//	GET  /v1/jobs/{id}?waitMs=           a job as it stands, after waiting at most so long
//	POST /v1/jobs/{id}/cancel            stop it
//	GET  /v1/availability?kind=&owner=&audience=
//	GET  /v1/pairings/{code}             the device that waits under a code
//	POST /v1/pairings/{code}/approve     {"owner"}
//	POST /v1/pairings/{code}/deny
//	GET  /v1/runners?owner=              devices
//	POST /v1/runners/{id}/revoke
//	POST /v1/sweep                       what the site does every second by itself
//
// The package refuses to hold rules of its own: it calls package site.
package appapi

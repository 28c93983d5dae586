// Package console is the controller's pages for a person with a browser: they log
// in by a one-time link, and see their nodes.
//
//	GET  /login/CODE  a page with a button, which uses nothing up
//	POST /login/CODE  uses the link up and sets the session's cookie
//	GET  /            the nodes that the session's owner may see
//	POST /logout      takes the cookie away
//
// Programs that look at every link in a message send no POST, so they do not use a
// link up. The cookie holds the token, is for this host alone, out of reach of
// scripts, and not sent by pages of others. Pages run no script, load nothing, are
// kept by no cache and shown in no frame. What a machine says of itself is shown as
// text that cannot reorder what stands around it.
//
// The package refuses to decide who may see what, to keep sessions, and to change
// anything by a page of somebody else.
package console

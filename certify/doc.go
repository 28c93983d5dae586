// Package certify proves from outside which MUSTs of the AI contract a server
// keeps. It speaks to the server over HTTP as devices and as strangers do, with
// devices that it makes itself, and believes nothing but answers.
//
// [Run] needs the app's half too, since jobs and approvals come from there: an
// [App], which [AllodApp] is for an Allod site. It writes to the server, so it is
// for one that nobody depends on. [Audit] needs nothing but a URL and writes
// nothing unless it is asked to, so it may be pointed at a server in use.
//
// Each check has an id that never changes, says what it sent and what came back,
// and ends as passed, failed or not proved. What no check can see from outside is
// listed with the reason.
//
// The package refuses to guess: what it could not see is never passed.
package certify

// Package webhook tells an app's servers that jobs have ended, signed as
// Standard Webhooks 1.0.0 says (https://www.standardwebhooks.com).
//
// The end of a job stores an event in the same transaction, see site.HookStore. A
// [Deliverer] takes events and posts them, one worker for each [Endpoint], until
// each is answered with a 2xx status or given up. It delivers at least once; what
// comes twice has the same webhook-id.
//
// A message says which job ended and how. The package refuses to send a prompt,
// an answer or whose device ran it: the app fetches those with its key. It
// connects to no address that is private or special unless it is listed, follows
// no redirect, and uses no proxy.
package webhook

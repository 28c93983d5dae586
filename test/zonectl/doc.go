// Package zonectl is a controller for tests of nodes: the real authority, TLS, carrier,
// messages, logic and store, put together here in one process, with a way to spoil what
// travels. It has no operators: whoever holds it is the administrator.
package zonectl

// Package rpctest proves of a table of methods that its server judges every
// request in the contract's order and that a refusal consumes nothing (F03, F06),
// and has a small message for tests of carriers.
//
// It refuses to judge what a handler does.
package rpctest

// Package sitekeys changes the key of a site under agents that are paired with it,
// with the real programs in processes of their own.
//
//	go test ./test/sitekeys
//
// No model runs here: a server of the test's own answers.
package sitekeys

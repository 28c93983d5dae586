// Package compose puts the parties together in one process: for the demo today,
// for whole installations and simulations later. It is the only package that
// sees every party, and it refuses to hold rules of its own: what a party may do
// is decided in that party's package.
package compose

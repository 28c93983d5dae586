// Package admin has the messages by which people come in and administer a
// controller: login links, organizations, operators, memberships, the audit log
// (F77, and of F36 what opens a client's session).
//
// A message holds its content alone. What belongs to the way it travels stands
// beside it: the member protocol, and the member identity of whoever asks (see
// package rpc). Nothing in a message says who the caller is or what they may do
// (decision O13), and each list has a bound.
//
// The package refuses to decide anything.
package admin

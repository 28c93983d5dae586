// Package command is what the programs of Allod have in common on their command
// lines: [Run] runs one, prints a refusal in one place and ends with its exit code,
// and [Root], [Group], [NoArgs] and [Print] make commands that behave alike.
//
// What a person reads is safe for a terminal, whoever wrote it ([Inert]).
//
// The package refuses to know a command, and to repeat what somebody typed.
package command

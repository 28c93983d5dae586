// Package supervisor keeps the parts of an installation up: each one runs until it
// is told to end, and is started again when it ends before that, later each time it
// does so soon.
//
// [Run] is for parts of any kind; [Process] is one that is a process of its own.
// Every change is told, with the refusal that a part ended with.
//
// The package refuses to know what a part does, and to give up on one.
package supervisor

// Package bench measures the way of a job between an app, a site and devices.
//
// [Direct] starts a site as a process of its own, on a disk, and plays the app
// and the devices in this process: every request crosses a socket, is signed
// where the contract asks for it, and is answered after the commit. No model
// runs; the answers are fixed texts.
//
// What a machine can do at best is measured beside it in the same run, so that a
// result is a ratio: how many jobs a second its processors could carry if there
// were only the contract's cryptography, and how long a single commit takes on
// the same disk.
//
// The package refuses folders that are in memory, where a commit costs nothing.
// It has no opinion on a missed bar: a [Report] says so and the caller decides.
package bench

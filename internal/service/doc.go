// Package service hands the agent to the service manager of its user: systemd's
// user manager, launchd, or the Task Scheduler of Windows. One file defines the
// service, and says no more than which words start the agent; what the agent is
// to find in its environment stands in a file in its folder.
//
// A definition is written and read by the same rules, so that what a manager
// starts and what a command believes of it do not differ.
//
// The package refuses to install as root, to install a program that other users
// can change or that stands where things are thrown away, to touch a definition
// that it did not write, and to copy secrets into one.
package service

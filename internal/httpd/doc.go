// Package httpd serves HTTP for every party: with limits on what one connection
// may take, a name for each request in all logs, and a graceful end.
//
// Health, metrics and profiles are on an admin socket, a file that only this
// user can reach, and never on the listener for strangers.
//
// The package refuses to know what is served.
package httpd

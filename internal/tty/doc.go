// Package tty draws a few lines at the foot of a terminal and lets other lines
// pass above them. Each frame is one write, and leaves the terminal as it found it:
// whoever is killed between two frames leaves nothing to mend.
//
// The package refuses to read what is typed, and to draw a character that would do
// anything else than stand in its column.
package tty

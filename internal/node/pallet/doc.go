// Package pallet is the part of Pallet that a machine needs to become and to stay a
// node: its own credential, prepared apart from Spark's and kept in a file of its
// own (families F08, F09, F10).
//
// [Core] answers what the installer asks over the control socket: prepare, bind,
// activate. Each step is on the disk before it is confirmed, and repeated it has the
// same answer. Then Core renews the credential, by the steps that [Core.Next] names
// and whoever drives it takes. It has no clock and no socket, so that a simulation
// can drive it too.
//
// It refuses to show its bearer to anybody but the controller, to be activated by
// an acknowledgement that does not bind to what it was bound to, and to forget an
// identity that it has.
package pallet

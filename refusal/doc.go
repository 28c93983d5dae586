// Package refusal gives every "no" of Allod a name.
//
// A [Kind] is one reason for refusing: its name, its HTTP status, what it
// means and the way out. Kinds are declared once, as package variables, by the
// package that refuses. A [Refusal] is one such "no" as it happened: a kind,
// perhaps a detail in our own words, perhaps an inner cause for the log.
//
// What a caller sees never holds the caller's input, a secret, or the text of
// a library's error, which may quote either. So the package has no way to show
// a cause: [HTTP], [JSON] and [Terminal] print name, meaning, detail and way
// out, and an error that is no refusal comes out as [Internal] without its
// text. The cause stays reachable through errors.Is and errors.As.
package refusal

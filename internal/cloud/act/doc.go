// Package act runs the changes that people ask a controller for: each once, with
// what was answered and an entry in the audit log in the same transaction (F07).
//
// Whoever asks again with the same mutation id and the same request gets the
// recorded answer, and nothing changes. Another request under that id is refused.
//
// The package refuses to keep secrets: an answer that holds one has no receipt, so
// such changes are not repeated but asked for anew, see [Record].
package act

// Package repocheck holds the rules of this repository that no compiler holds.
//
// It has tests only; nothing imports it. Each test states a rule, its reason and the way to mend a
// break. Each has a control beside it that feeds the check something bad and expects it to bite.
//
//   - tiers_test.go: which package may import which, and what is never linked.
//   - modules_test.go: what strangers take on who import a public package; see testdata.
//   - signatures_test.go: no public signature names an internal type.
//   - comments_test.go: every package and everything exported is explained.
//   - secrets_test.go: no message, refusal or log record can reach a private key.
//   - calls_test.go: who may export private keys, and who may look at the clock.
//   - links_test.go: links, anchors and paths in the documents lead somewhere.
//   - text_test.go: no traces of one machine and no unfinished marks.
//
// The lists that a change may have to extend stand at the top of each file. The package refuses to
// guess: a package that stands in no list fails until somebody places it.
package repocheck

// Package interop runs the programs that the authors of the AI contract publish
// against Allod's, as its judges: their certification kit and their daemon
// against our site, and our agent against their server. The published client of the
// zone contract's typed requests asks our carrier.
//
//	go test ./test/interop
//
// It needs node, npm and, the first time, the packages of package-lock.json.
// Without them the tests skip and say so; with ALLOD_INTEROP=required they fail.
// What each suite shows is in docs/interop.md.
//
// record.mjs records how the same programs read messages, as the cases of
// wire/ai/testdata/v2.
package interop

// Package v2 reads and writes the messages of protocol version "2" into the
// values of package ai.
//
// Every object refuses unknown members, and no member may be added to this
// version. It calls the audiences self and named private and team, and has no word
// for public: what is public is refused when it is written, and a server does not
// offer it to a device of this version.
//
// Where this package is stricter than the recorded behaviour, the file
// wire/ai/testdata/v2/stricter.json lists the case and the reason.
package v2

// Package realmodel runs a real inference server on a tiny model with random
// weights, and talks to it as the model agent does. Other tests talk to servers
// of our own, which can only repeat what we believe about model servers.
//
// The server is Ollama, the agent's default backend. The folder server is a
// module of its own that pins it, so that none of its modules becomes one of
// ours. A C++ compiler builds it, which takes minutes, so the test runs only
// when it is asked for:
//
//	ALLOD_REAL_SERVER=1 go test -timeout 30m ./test/realmodel
//
// Instead of 1 the variable may hold the absolute path of an Ollama program, and
// nothing is built.
//
// The package refuses to say anything about what a good model answers: the
// weights are noise. It reaches nothing but its own server on the loopback
// interface, and loads no model that it did not make.
package realmodel

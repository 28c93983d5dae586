// Package gateway runs OpenAI's own clients against Allod's gateway: the package
// openai for Node and openai-go, with our agent behind the site, and with the
// published daemon of the AI contract, whose packages are those of test/interop.
//
//	go test ./test/gateway
//
// Node, npm and, the first time, the packages of both folders are needed for the one
// for Node and for the daemon. Without them these tests skip and say so; with
// ALLOD_INTEROP=required they fail. No model runs here: a server of the test's own
// answers.
package gateway

// Package backend reaches OpenAI-compatible model servers for the model agent:
// it lists their models, runs one job, and proves that a model answers.
//
// A model server is not trusted. What is read of it is bounded in size, depth
// and time, nothing of its words but the answer travels on, and it is told
// nothing but the job and its own API key. Addresses are judged where the
// connection is made, each resolved one, and only a judged one is dialled.
//
// [Prober] decides when a model is asked to prove itself, as a step function
// without a clock of its own.
//
// The package refuses to follow redirects, to use a proxy from the environment,
// to unpack compressed answers, to keep connections, to log, to pass on its own
// API key where a server echoes it, and to start programs, which package program
// does.
package backend

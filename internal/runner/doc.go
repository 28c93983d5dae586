// Package runner is the model agent: it runs jobs of paired sites on its owner's
// models and hands the sealed answers back.
//
// An [Agent] has a folder (package home), a shelf of models (package backend,
// by the owner's settings), a log of what ran (package ingress), and for each
// server it is paired with a lane (package lane decides, client speaks, outbox
// keeps results). The owner has the last word: pause, forget, and a log that is
// written before anything runs.
//
// The package refuses to run for anybody but the person who paired it, to let a
// payload choose model, backend or address (MUST NO_PAYLOAD_ROUTING), and to run
// what it cannot log.
package runner

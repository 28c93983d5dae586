// Package ai is the vocabulary of the AI contract: apps ask, and their users'
// own machines answer.
//
// Four parties take part. A *site* is an app that asks. A *device* is a machine
// that runs models for its owner; on the wire it is a runner, named by a
// [RunnerID]. A *controller* decides who may ask whom, and a *relay* carries
// between sites and devices that do not reach each other; where a site serves
// its devices itself, there is neither.
//
// A job travels in two parts. Its *reference* is a [Stub]: what a router must
// know, in the clear. Its *material* is the [Payload] and later the
// [SealedOutcome], sealed to whoever uses it. A [Lease] is the *fence*: it says
// which grant is meant, since a device can hold one job three times. The
// outcome is the *receipt* and ends the job, once.
//
// The values here belong to no version of the protocol. Each version has a
// package that reads its messages into them ([Codec]); package protocol picks
// the codec that a request declares. How requests are signed, envelopes sealed
// and jobs matched is said in the packages signing, envelope and match.
//
// Conventions: instants are [Millis], lengths count UTF-16 code units, and text
// that came from a peer is data for people and models, never a decision.
//
// The package refuses to do I/O, to read clocks and to make randomness.
package ai

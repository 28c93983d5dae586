// Package codec makes the codecs of the zone contract out of shapes, and finds the
// shape in a codec again, so that one message can hold another.
//
// It refuses to know any message.
package codec

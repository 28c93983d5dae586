package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
)

// Pin is the SHA-256 digest of a CA certificate's SubjectPublicKeyInfo (RFC 5280,
// 4.1.2.7, in DER): it names the key, so it outlives the certificate. The zero
// Pin is none.
type Pin [sha256.Size]byte

// ParsePin reads a pin's text form: 43 characters of base64url without padding
// (RFC 4648, 5). It returns [ErrPinText], also for the zero pin.
func ParsePin(text string) (Pin, error) {
	var p Pin
	if len(text) != base64.RawURLEncoding.EncodedLen(len(p)) {
		return Pin{}, ErrPinText
	}
	// Strict refuses a second way to write the same pin. It takes line breaks,
	// which the length has ruled out: a line break more is a character less.
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(p) {
		return Pin{}, ErrPinText
	}
	if p = Pin(b); p.IsZero() {
		return Pin{}, ErrPinText
	}
	return p, nil
}

// PinOf is the pin of a certificate's key.
func PinOf(certificate *x509.Certificate) Pin {
	return sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
}

// String is the pin's text form.
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// IsZero reports whether there is no pin.
func (p Pin) IsZero() bool { return p == Pin{} }

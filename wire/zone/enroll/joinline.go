package enroll

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Pin names a controller's own certification authority: the SHA-256 of the
// SubjectPublicKeyInfo of its certificate (as RFC 7469 has it). It is public.
// Values compare with ==. The zero value is none.
type Pin struct{ sum [sha256.Size]byte }

// PinOf is the pin of a SubjectPublicKeyInfo in DER.
func PinOf(spki []byte) Pin { return Pin{sha256.Sum256(spki)} }

// ParsePin reads the text of a pin, in its one spelling: 43 base64url characters.
// It returns [ErrPin].
func ParsePin(text string) (Pin, error) {
	if !canonical(text, sha256.Size) {
		return Pin{}, ErrPin
	}
	b, _ := base64.RawURLEncoding.DecodeString(text)
	p := Pin{[sha256.Size]byte(b)}
	if p.IsZero() {
		return Pin{}, ErrPin
	}
	return p, nil
}

// String is the pin as a join line has it, or "" for none.
func (p Pin) String() string {
	if p.IsZero() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(p.sum[:])
}

// IsZero reports whether there is no pin.
func (p Pin) IsZero() bool { return p == Pin{} }

// joinPath is what stands between the origin of a join line and its secret. The
// secret is a fragment, which no program sends to a server.
const joinPath = "/join#"

// MaxJoinLine is the longest join line, in bytes.
const MaxJoinLine = MaxOrigin + len(joinPath) + JumpCodeText + 1 + 43

// JoinLine is the one line that a machine needs to become a node:
//
//	https://HOST:PORT/join#CODE.PIN
//
// It holds a secret, which prints as a placeholder; see [JoinLine.Text].
type JoinLine struct {
	Origin Origin
	Code   JumpCode
	// Pin is that of the controller's own authority. Without one, a certificate
	// that the machine trusts anyway counts, and the line has no dot.
	Pin Pin
}

// ParseJoinLine reads a join line and nothing around it. It returns [ErrJoinLine].
func ParseJoinLine(text string) (JoinLine, error) {
	if len(text) > MaxJoinLine {
		return JoinLine{}, ErrJoinLine
	}
	origin, secret, ok := strings.Cut(text, joinPath)
	if !ok {
		return JoinLine{}, ErrJoinLine
	}
	code, pin, pinned := strings.Cut(secret, ".")
	var l JoinLine
	var err error
	if l.Origin, err = ParseOrigin(origin); err != nil {
		return JoinLine{}, ErrJoinLine.Because(err)
	}
	if l.Code, err = ParseJumpCode(code); err != nil {
		return JoinLine{}, ErrJoinLine.Because(err)
	}
	if pinned {
		if l.Pin, err = ParsePin(pin); err != nil {
			return JoinLine{}, ErrJoinLine.Because(err)
		}
	}
	return l, nil
}

// Text is the line, for whoever is to type it. It is "" where origin or code is
// missing.
func (l JoinLine) Text() string {
	if l.Origin.IsZero() || l.Code.IsZero() {
		return ""
	}
	text := l.Origin.String() + joinPath + l.Code.Reveal()
	if !l.Pin.IsZero() {
		text += "." + l.Pin.String()
	}
	return text
}

package token

import (
	"errors"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

// skew is how far in the future a token may have been made.
const skew = time.Minute

// Claims are what a token says. They hold an operator, or a service and its
// organization.
type Claims struct {
	Operator     zone.OperatorID
	Service      zone.ServiceID
	Organization zone.OrganizationID
	// Generation is the operator's or the machine's when the token was made.
	Generation int64
	IssuedAt   zone.Millis // whole seconds
	ExpiresAt  zone.Millis // whole seconds; the token is over from then on
}

// Operator makes a token for a person, for [OperatorLife].
func (k *Keys) Operator(id zone.OperatorID, generation int64, now time.Time) (zone.Secret, Claims, error) {
	return k.operators.issue(Claims{Operator: id, Generation: generation}, now)
}

// Machine makes a token for a program that acts for a service, for [MachineLife].
func (k *Keys) Machine(id zone.ServiceID, o zone.OrganizationID, generation int64, now time.Time) (zone.Secret, Claims, error) {
	return k.machines.issue(Claims{Service: id, Organization: o, Generation: generation}, now)
}

// Read returns what a token of either kind says. It returns ErrToken for everything
// that this controller did not make, ErrExpired and ErrEarly.
func (k *Keys) Read(token zone.Secret, now time.Time) (Claims, error) {
	text := token.Reveal()
	if len(text) > zone.MaxToken || strings.ContainsAny(text, "\r\n") { // which decoding would skip
		return Claims{}, ErrToken
	}
	// Whoever writes the header chooses between two keys, and nothing else.
	switch header, _, _ := strings.Cut(text, "."); header {
	case k.operators.header:
		return k.operators.read(text, now)
	case k.machines.header:
		return k.machines.read(text, now)
	}
	return Claims{}, ErrToken
}

func (s *signing) issue(c Claims, now time.Time) (zone.Secret, Claims, error) {
	issued := now.Truncate(time.Second)
	c.IssuedAt, c.ExpiresAt = zone.At(issued), zone.At(issued.Add(s.life))
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &claims{Claims: c, class: s.class, iss: s.issuer, aud: s.audience})
	t.Header["typ"], t.Header["kid"] = s.typ, s.kid
	text, err := t.SignedString(s.private())
	if err != nil {
		return zone.Secret{}, Claims{}, refusal.Internal.Because(err) // an id that is none
	}
	return zone.Conceal(text), c, nil
}

func (s *signing) read(text string, now time.Time) (Claims, error) {
	c := &claims{class: s.class}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithIssuer(s.issuer), jwt.WithAudience(s.audience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now }))
	_, err := parser.ParseWithClaims(text, c, func(*jwt.Token) (any, error) { return s.public, nil })
	life := c.ExpiresAt - c.IssuedAt
	switch {
	case !c.read, errors.Is(err, jwt.ErrTokenInvalidIssuer), errors.Is(err, jwt.ErrTokenInvalidAudience):
		return Claims{}, ErrToken
	case errors.Is(err, jwt.ErrTokenExpired): // looked at only after the signature
		return Claims{}, ErrExpired
	case err != nil: // the library's text may quote the token
		return Claims{}, ErrToken
	case life <= 0 || life > zone.Millis(s.life.Milliseconds()):
		return Claims{}, ErrToken
	case c.IssuedAt.Time().After(now.Add(skew)):
		return Claims{}, ErrEarly
	}
	return c.Claims, nil
}

// claims are the second part of a token, as package jwt wants them.
type claims struct {
	Claims
	class
	iss, aud string
	read     bool // the shape was read
}

// limits bound what a token says.
var limits = exact.Limits{Bytes: zone.MaxToken, Depth: 1, Values: 16}

// shape has each claim once: a token of the other kind has another.
var shape = exact.Shape[claims]{Fields: func(o *exact.Object, c *claims) {
	exact.Text(o, "iss", &c.iss, 1, 0)
	exact.Text(o, "aud", &c.aud, 1, 0)
	if c.machine {
		id(o, "sub", &c.Service)
		id(o, "org", &c.Claims.Organization)
	} else {
		id(o, "sub", &c.Claims.Operator)
	}
	exact.Whole(o, "gen", &c.Generation, 0, 0)
	seconds(o, "iat", &c.IssuedAt)
	seconds(o, "exp", &c.ExpiresAt)
}}

func id[S ~string](o *exact.Object, name string, p *S) {
	exact.Spelled(o, name, p, zone.MaxID, "an identifier", zone.ValidID)
}

// seconds is an instant as RFC 7519 has it.
func seconds(o *exact.Object, name string, p *zone.Millis) {
	s := int64(*p) / 1000
	exact.Whole(o, name, &s, 0, exact.MaxWhole/1000)
	*p = zone.Millis(s * 1000)
}

// UnmarshalJSON reads the claims exactly.
func (c *claims) UnmarshalJSON(src []byte) error {
	parsed, err := exact.Parse(src, limits)
	if err != nil {
		return err
	}
	class := c.class
	v, err := exact.Shape[claims]{Fields: func(o *exact.Object, v *claims) { v.class = class; shape.Fields(o, v) }}.From(parsed)
	if err != nil {
		return err
	}
	v.read = true
	*c = v
	return nil
}

// MarshalJSON writes the claims.
func (c *claims) MarshalJSON() ([]byte, error) { return shape.Bytes(*c) }

// GetExpirationTime is exp.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) {
	return jwt.NewNumericDate(c.ExpiresAt.Time()), nil
}

// GetIssuedAt is iat.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) {
	return jwt.NewNumericDate(c.IssuedAt.Time()), nil
}

// GetNotBefore is nothing: iat says it.
func (*claims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuer is iss.
func (c *claims) GetIssuer() (string, error) { return c.iss, nil }

// GetSubject is sub.
func (c *claims) GetSubject() (string, error) { return string(c.Operator) + string(c.Service), nil }

// GetAudience is aud.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) {
	return jwt.ClaimStrings{c.aud}, nil
}

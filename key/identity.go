package key

import (
	"io"
	"time"
)

// DeviceRole marks keys of a device: a machine that runs models for its owner.
type DeviceRole struct{}

// SiteRole marks keys of a site: an app that asks.
type SiteRole struct{}

// Role is one of the roles that have an identity.
type Role interface{ DeviceRole | SiteRole }

// Identity is the public side of a party in one role: the signing key that is
// pinned, the sealing key, and the signature that binds the second to the
// first. A non-zero Identity has been verified. Values compare with ==.
type Identity[R Role] struct {
	signing SigningPublic
	sealing SealingPublic
	binding Signature
}

// Device is the public identity of a device.
type Device = Identity[DeviceRole]

// Site is the public identity of a site.
type Site = Identity[SiteRole]

// bindingContext precedes the text of the sealing key in the bound message. The
// signature covers the text, not the bytes (MUST KEYS_EXCHANGED_AT_CONSENT).
const bindingContext = "byollm/v1/encryption-key:"

func bindingMessage(p SealingPublic) []byte { return []byte(bindingContext + p.String()) }

// ParseIdentity reads the three texts of a public identity and verifies the
// binding. It returns [ErrText] when one is no key or signature, and
// [ErrBinding] when the signature is not the identity's over the sealing key.
func ParseIdentity[R Role](signing, sealing, binding string) (Identity[R], error) {
	var (
		id  Identity[R]
		err error
	)
	if id.signing, err = ParseSigningPublic(signing); err != nil {
		return Identity[R]{}, err
	}
	if id.sealing, err = ParseSealingPublic(sealing); err != nil {
		return Identity[R]{}, err
	}
	if id.binding, err = ParseSignature(binding); err != nil {
		return Identity[R]{}, err
	}
	if !id.signing.Verify(bindingMessage(id.sealing), id.binding) {
		return Identity[R]{}, ErrBinding
	}
	return id, nil
}

// Signing is the key that verifies what this party signed.
func (id Identity[R]) Signing() SigningPublic { return id.signing }

// Sealing is the key to seal to, so that only this party reads.
func (id Identity[R]) Sealing() SealingPublic { return id.sealing }

// Binding is the signature that binds the sealing key to the signing key.
func (id Identity[R]) Binding() Signature { return id.binding }

// Fingerprint is the party's short name, the contract's key id.
func (id Identity[R]) Fingerprint() Fingerprint { return id.signing.Fingerprint() }

// IsZero reports whether id is nobody.
func (id Identity[R]) IsZero() bool { return id == Identity[R]{} }

// String is the fingerprint.
func (id Identity[R]) String() string {
	if id.IsZero() {
		return ""
	}
	return id.Fingerprint().String()
}

// Keys are the private halves of one party, with its public identity. The zero
// value is nobody.
type Keys[R Role] struct {
	hidden
	signing  Signing
	sealing  Sealing
	identity Identity[R]
	created  time.Time
}

// DeviceKeys are the private halves of a device.
type DeviceKeys = Keys[DeviceRole]

// SiteKeys are the private halves of a site.
type SiteKeys = Keys[SiteRole]

// NewKeys makes both pairs from 64 bytes of rand and binds them. created is
// kept to the millisecond; keys from before 1970 cannot be written to a file. It
// returns rand's error.
func NewKeys[R Role](rand io.Reader, created time.Time) (Keys[R], error) {
	signing, err := NewSigning(rand)
	if err != nil {
		return Keys[R]{}, err
	}
	sealing, err := NewSealing(rand)
	if err != nil {
		return Keys[R]{}, err
	}
	binding, err := signing.Sign(bindingMessage(sealing.Public()))
	if err != nil {
		return Keys[R]{}, err
	}
	return Keys[R]{
		signing: signing,
		sealing: sealing,
		created: created.UTC().Truncate(time.Millisecond),
		identity: Identity[R]{
			signing: signing.Public(), sealing: sealing.Public(), binding: binding,
		},
	}, nil
}

// Signer signs as this party.
func (k Keys[R]) Signer() Signer { return k.signing }

// Opener opens what was sealed to this party.
func (k Keys[R]) Opener() Opener { return k.sealing }

// Identity is the public side.
func (k Keys[R]) Identity() Identity[R] { return k.identity }

// Created is when the keys were made, to the millisecond.
func (k Keys[R]) Created() time.Time { return k.created }

// IsZero reports whether k holds no keys.
func (k Keys[R]) IsZero() bool { return k.identity.IsZero() }
